"""Checks, needs and their limits; the front page."""
