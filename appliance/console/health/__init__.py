"""The overview and what it shows: needs, probes and metrics."""
