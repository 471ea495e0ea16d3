"""The embedded default: every process of the service as a child of one supervisor, under one data folder."""
