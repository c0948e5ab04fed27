"""Pages of topics."""
