"""The name server: which broker serves which topic, key-values, and its settings."""
