"""Facts: small tables of one day each, counted out of the log. Reports are made of them and of nothing else."""
