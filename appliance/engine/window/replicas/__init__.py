"""Slaves, members of a set, and messages that were cut from a log."""
