"""Removes secrets from addresses in logs: links to set a password, to set up, or to a secret shown once contain one."""

from __future__ import annotations

import logging
import re

# The part of a path after one of these words is secret. `urls.py` has it as "secret" or "ticket".
_KEYS = re.compile(r"/(password|setup|made|codes)/(?!(?:address|message)/)[^/\s?\"']+")
# Secret parts of a query: a provider's code and state, and the page to go to next, which may hold a secret itself.
_QUERY = re.compile(r"\b(code|state|next)=[^&\s\"']+")


def without_secret(text: str) -> str:
    """Return an address, or a text with addresses in it, with its secrets replaced by "…"."""
    return _QUERY.sub(r"\1=…", _KEYS.sub(r"/\1/…", text))


class NoSecrets(logging.Filter):
    """Removes secrets from log records; for the loggers that write addresses of requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        clean = without_secret(text)
        if clean != text:
            record.msg, record.args = clean, ()
        return True
