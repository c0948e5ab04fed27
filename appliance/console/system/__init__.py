"""Pages of the process itself: configuration, definitions, replication, support, how to connect."""
