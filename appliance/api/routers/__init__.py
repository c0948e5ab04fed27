"""One module per resource. A handler parses the request, calls the window, and shapes the answer."""
