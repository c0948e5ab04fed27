"""Users of the wire in the window of an engine whose own access control is off: pages and operations have them, and no
request is asked for one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.engine.access.book import Book
from appliance.engine.window.access.users import WireUsers
from appliance.engine.window.window import Window


@contextmanager
def wire_users(window: Window, directory: Path) -> Iterator[Book]:
    """Lend a window the users of a new journal; yield their book."""
    book = Book(directory / "access.journal")
    window.take_users(WireUsers(book, lambda: "report", list))
    try:
        yield book
    finally:
        window.take_users(None)
        book.close()
