"""Users, their roles, tokens and patterns, and the rule that says who may see which page; users of the wire, too."""
