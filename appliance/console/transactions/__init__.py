"""Pages of transactions."""
