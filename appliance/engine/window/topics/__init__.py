"""Topics: lists and pages of them, their settings, and what cleans up unused ones."""
