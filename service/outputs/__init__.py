"""Outputs: files that a job left behind, in the bucket."""
