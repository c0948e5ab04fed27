"""The REST API: every page's twin for programs, below /api/v1. A handler parses, calls the window, and shapes."""
