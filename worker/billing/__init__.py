"""Accrual and the guard over it."""
