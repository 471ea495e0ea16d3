"""What a node and the service say to each other: specs, messages, manifests and the bucket's layout.

The one package that both sides import. It depends on pydantic and obstore and on nothing of either side.
"""
