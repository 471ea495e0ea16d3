"""The ledger: append-only, one idempotency key an entry, never repriced."""
