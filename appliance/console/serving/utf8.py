"""Addresses and forms are UTF-8, whatever charset a request names.

Django decodes the fields of a form by the charset in Content-Type, which the caller chooses and which may name a codec
that decodes no text (`zlib`, `rot13`): then every page would fail with a stack trace.
"""

from __future__ import annotations

import codecs

from django.http import HttpRequest

CHARSET = "utf-8"
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
# By the names that `codecs` gives them.
_TAKEN = (CHARSET, "ascii")


def is_form_in_utf8(request: HttpRequest) -> bool:
    """False if the request has a form that its sender encoded in another charset. Called before its fields are read,
    which are then decoded as UTF-8."""
    named = (request.content_params or {}).get("charset")
    if named is None or request.content_type not in _FORMS:
        return True
    try:
        taken = codecs.lookup(named).name in _TAKEN
    except (LookupError, ValueError):  # ValueError: a zero in the name
        return False
    if taken:
        request.encoding = CHARSET
    return taken
