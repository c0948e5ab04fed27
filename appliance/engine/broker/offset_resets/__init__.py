"""Offsets moved by administrators: planned, written down, done as one act, sent to the members, taken back."""
