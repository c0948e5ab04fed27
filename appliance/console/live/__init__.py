"""Pages that move while they are open: feeds, the live tail, WebSockets, and their bounds."""
