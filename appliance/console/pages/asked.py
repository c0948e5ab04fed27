"""Records which parameters of a page's address its view has read.

A page with a parameter that it does not support shows a notice, and a file is not sent if a filter in its address was
not applied: otherwise a misspelt filter would show everything and look like an answer. No table lists the parameters
of each page: those that a view has not read by the time its notices are written are unsupported. `test_every_page.py`
follows every link of every page and fails if one leads to such a notice.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, QueryDict

from ..serving.utf8 import CHARSET


class Asked(QueryDict):
    """Parameters that record in `read` which of them were read."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.read: set[str] = set()
        super().__init__(*arguments, **options)
        self.read.clear()  # the constructor reads, too, while it fills the dict

    def __getitem__(self, key: Any) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: Any) -> bool:
        self.read.add(key)
        return super().__contains__(key)

    def getlist(self, key: Any, default: Any = None) -> Any:
        self.read.add(key)
        return super().getlist(key, default)


def watch(request: HttpRequest) -> None:
    """Record from now on which parameters of the request are read."""
    if request.META.get("QUERY_STRING"):
        request.GET = Asked(request.META["QUERY_STRING"], encoding=CHARSET)


def unread(request: HttpRequest) -> list[str]:
    """Return the names of up to five parameters that were not read so far."""
    found = request.GET
    if not isinstance(found, Asked):
        return []
    names: list[str] = list(dict.keys(found))
    return [name[:60] for name in names if name not in found.read][:5]
