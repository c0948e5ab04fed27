"""Delayed messages: the levels, how a message is made to wait, and its delivery when it is due."""
