"""Checkpoints: what one holds, how it is written without a torn one ever being seen, and how it is read back."""
