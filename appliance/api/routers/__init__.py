"""One module per resource. A handler parses the request, asks the window, and shapes the answer."""
