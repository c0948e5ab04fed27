"""Deliveries to consumers, as the answers to pulls show them; kept in a ring of files (D17)."""
