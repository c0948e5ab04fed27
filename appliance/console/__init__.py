"""The console: pages for people over HTTP, and addresses for their monitoring."""
