"""A typed client of the public API: what the command line uses, and anyone else may."""
