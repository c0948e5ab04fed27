"""Fail-over of a set of brokers: who leads is one key in a consensus store, changed only by compare-and-swap."""
