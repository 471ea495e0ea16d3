"""From text to batches: sources, the byte-pair tokeniser, packed shards, their cache, and the sampling order."""
