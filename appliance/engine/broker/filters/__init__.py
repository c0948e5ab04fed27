"""The expressions besides tags by which consumer groups filter, from heartbeats; `consumerFilter.json` as Apache keeps
it."""
