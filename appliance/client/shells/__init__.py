"""What does for the core what it asks for: sockets, time, threads."""
