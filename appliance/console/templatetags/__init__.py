"""Template tags and filters that some pages load."""
