"""Consume queues: tails in memory, files, ledger, and the repair of what files lack."""
