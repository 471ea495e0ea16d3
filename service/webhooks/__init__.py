"""Webhooks: endpoints that users register, and deliveries that are signed, tried again, and sent nowhere private."""
