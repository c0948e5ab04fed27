"""Messages with a delivery time of their own: where they wait, the index by due time, and their delivery."""
