"""The reference, written from the code: `make docs` writes `docs/reference/`, and a test says when it is not current."""
