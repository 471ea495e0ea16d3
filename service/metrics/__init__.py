"""Metrics: what ranks measured, a point a step."""
