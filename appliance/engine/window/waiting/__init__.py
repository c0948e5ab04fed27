"""Delayed messages, retries and timers before they are due."""
