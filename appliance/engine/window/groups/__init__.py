"""Consumer groups: lists, progress, settings, and the diagnosis of a group that is behind."""
