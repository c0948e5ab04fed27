"""Names of topics and groups in addresses.

Names made here hold nothing that an address could not. A store that something else wrote may hold any: a slash, which
servers decode before they look for one, or `..`, which browsers resolve. `~` escapes them, as in a JSON pointer.
"""

from __future__ import annotations

from django.urls import register_converter

_ESCAPES = (("~", "~0"), ("/", "~1"), ("\\", "~2"))
_DOTS = {"": "~3", ".": "~4", "..": "~5"}


class NameConverter:
    """`<name:topic>`: any name as one segment of a path."""

    regex = "[^/]+"

    def to_python(self, value: str) -> str:
        for name, escaped in _DOTS.items():
            if value == escaped:
                return name
        for sign, escape in reversed(_ESCAPES):
            value = value.replace(escape, sign)
        return value

    def to_url(self, value: str) -> str:
        if value in _DOTS:
            return _DOTS[value]
        for sign, escape in _ESCAPES:
            value = value.replace(sign, escape)
        return value


register_converter(NameConverter, "name")
