"""A package of one's own."""
