"""Facts: small tables of one day each, counted from the log. Reports are made from facts and snapshots only."""
