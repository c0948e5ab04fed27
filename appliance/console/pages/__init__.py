"""How any page is made: its context, menu, words and lists, errors, and previews of changes."""
