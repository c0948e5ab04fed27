"""A store seen from outside, while no broker runs: inspect, verify, export. Nothing here writes into a store."""
