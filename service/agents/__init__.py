"""The service's side of the node protocol: three verbs, each for the one attempt that a token names."""
