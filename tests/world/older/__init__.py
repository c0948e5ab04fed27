"""The world with the engine of commit 4c9568e: what it would have found there by itself."""
