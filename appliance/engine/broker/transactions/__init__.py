"""Transactions: half messages, how they end, and the questions to producers that have not decided."""
