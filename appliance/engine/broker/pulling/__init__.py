"""From what a pull asks to what it came to; answers are made in processors/pull_answers.py."""
