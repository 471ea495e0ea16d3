"""Whether the service lives and can serve, and its figures."""
