"""From a pull's request to its outcome; `processors/pull_answers.py` makes the answers."""
