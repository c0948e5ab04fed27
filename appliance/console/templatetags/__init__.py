"""Tags that some pages load."""
