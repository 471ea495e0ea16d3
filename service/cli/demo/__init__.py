"""The demonstration: a service of its own, one job through the public API, and what came of it."""
