"""Models, sessions and claims: the one place that knows both databases."""
