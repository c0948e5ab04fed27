"""The parts of any page: its context, menu, words and lists, errors, and previews of changes."""
