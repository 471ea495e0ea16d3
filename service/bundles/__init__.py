"""Bundles: a user's working directory, bounded, hashed and checked before it is kept."""
