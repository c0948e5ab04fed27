"""Shells perform the effects that the core requests: sockets, time, threads."""
