"""Formats of requests and of stored data, byte for byte. PURE: no I/O, no clock, no thread, no log."""
