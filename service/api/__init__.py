"""What every endpoint shares: problems, keys, idempotency, limits, pages and streams."""
