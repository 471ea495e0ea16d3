"""Keeps the price book fresh."""
