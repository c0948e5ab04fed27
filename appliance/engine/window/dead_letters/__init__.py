"""Dead letters, their counts, and their replay."""
