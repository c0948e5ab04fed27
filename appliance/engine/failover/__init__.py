"""Fail-over of a set of brokers. One key in a consensus store names the leader; only compare-and-swap changes it."""
