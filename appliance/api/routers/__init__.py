"""One module a noun. A handler is three lines: parse, ask the window, shape."""
