"""The commit log: its files, their sync, their reading from end to end, and their checksums."""
