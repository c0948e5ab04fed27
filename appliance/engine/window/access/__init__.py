"""Users of the wire and their entries."""
