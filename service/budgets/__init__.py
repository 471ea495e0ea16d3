"""Caps: what is spent, what is reserved, what is refused."""
