"""Messages: search, pages, one message and its story, live tail, tests and imports."""
