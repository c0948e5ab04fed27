"""The index from keys to physical offsets."""
