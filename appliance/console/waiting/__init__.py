"""Pages of messages that wait: delayed ones and retries."""
