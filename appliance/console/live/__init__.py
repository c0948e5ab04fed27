"""What goes on while a page is open: feeds, the live tail, WebSockets, and their bounds."""
