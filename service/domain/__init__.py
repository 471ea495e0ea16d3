"""The functional core: frozen values and pure functions.

Standard library only; no I/O and no clock (time is an argument).
"""
