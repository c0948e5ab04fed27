"""Names of topics and groups in addresses.

Names that RocketBox creates fit into an address as they are. A store that another program wrote may have any name: with
a slash, which servers decode before they split a path, or `..`, which browsers resolve. `~` escapes them, as in a JSON
pointer.
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
