"""Models: decoder-only transformers of every shape that a ModelSpec can name."""
