"""Inspects, verifies and exports a store from outside, without a broker. Nothing here writes into a store."""
