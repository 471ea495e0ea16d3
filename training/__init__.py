"""The training runtime, the node agent and the protocol they share with the service."""
