"""Consume queues: tails in memory, files, the ledger, and the repair of missing entries."""
