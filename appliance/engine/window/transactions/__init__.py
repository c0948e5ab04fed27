"""Open, discarded and ended transactions, and decisions for a producer."""
