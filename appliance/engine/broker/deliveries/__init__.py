"""What was delivered to whom, as far as answers to pulls tell it; kept in a ring of files (D17)."""
