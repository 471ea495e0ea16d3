"""API keys: made, listed, revoked; a secret is shown once."""
