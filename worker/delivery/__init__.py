"""Events to webhooks: the relay makes deliveries, the delivery sends what is due."""
