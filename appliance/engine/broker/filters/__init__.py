"""The expressions besides tags that consumer groups filter by, from heartbeats; `consumerFilter.json` in Apache's
format."""
