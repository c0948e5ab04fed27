"""Pages of dead letters: archives and replays."""
