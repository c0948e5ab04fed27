"""Some addresses are keys: links to set a password, to set up, to a secret shown once. Logs show them without it."""

from __future__ import annotations

import logging
import re

# What comes behind these words in a path. The converters of `urls.py` are called "secret" and "ticket" there.
_KEYS = re.compile(r"/(password|setup|made|codes)/(?!(?:address|message)/)[^/\s?\"']+")
# Of a query: a provider's code and state, and the page to go to afterwards, which may be a key itself.
_QUERY = re.compile(r"\b(code|state|next)=[^&\s\"']+")


def without_secret(text: str) -> str:
    """An address, or a text with addresses in it, without what opens something."""
    return _QUERY.sub(r"\1=…", _KEYS.sub(r"/\1/…", text))


class NoSecrets(logging.Filter):
    """For the loggers that name addresses of requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        clean = without_secret(text)
        if clean != text:
            record.msg, record.args = clean, ()
        return True
