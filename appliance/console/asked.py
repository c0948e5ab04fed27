"""What the address of a page asks for, and which of it the page has read.

A page that does not know a parameter says so, and a file with a filter that nobody applied is not handed out: else a
misspelt filter would show everything and look like an answer. No table says which page knows what: what a view has not
looked at by the time its notices are written, it does not know. `test_every_page.py` follows every link of every page
and fails where one leads to such a notice.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, QueryDict


class Asked(QueryDict):
    """Parameters that note which of them were looked at."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.read: set[str] = set()
        super().__init__(*arguments, **options)
        self.read.clear()  # it looks, too, while it is filled

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
    """From now on note what is looked at."""
    if request.META.get("QUERY_STRING"):
        request.GET = Asked(request.META["QUERY_STRING"], encoding=request.encoding)


def unread(request: HttpRequest) -> list[str]:
    """Names that nobody has looked at so far."""
    found = request.GET
    if not isinstance(found, Asked):
        return []
    names: list[str] = list(dict.keys(found))
    return [name[:60] for name in names if name not in found.read][:5]
