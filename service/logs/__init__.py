"""Log lines of ranks and agents."""
