"""Sets in the world: members that fail over, their store for leadership, and the network between all of them."""
