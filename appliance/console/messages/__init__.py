"""Pages that find, show, send, export and import messages."""
