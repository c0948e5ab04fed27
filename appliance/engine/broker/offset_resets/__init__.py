"""Offsets moved by administrators: planned, written down, done as one act, told to the members, taken back."""
