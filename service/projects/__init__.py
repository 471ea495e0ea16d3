"""Projects: who owns jobs, keys and budgets."""
