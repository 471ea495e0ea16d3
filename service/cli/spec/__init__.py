"""From a user's file to a job spec: bounded YAML, overrides, secrets, and the folder that travels with it."""
