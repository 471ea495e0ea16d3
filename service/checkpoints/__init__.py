"""The register of checkpoints: the authority on what a job resumes from."""
