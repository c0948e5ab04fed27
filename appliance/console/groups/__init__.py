"""Pages of consumer groups and their clients."""
