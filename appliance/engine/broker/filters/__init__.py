"""What consumer groups filter by besides tags, as heartbeats say it; `consumerFilter.json` as Apache keeps it."""
