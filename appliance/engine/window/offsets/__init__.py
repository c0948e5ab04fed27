"""Resets, clones and undone resets of a group's offsets."""
