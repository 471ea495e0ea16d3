"""The control plane: the REST API, the command line and the domain they stand on."""
