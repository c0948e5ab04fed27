"""Cursors: read as they were written, and refused in every other form."""

from typing import NamedTuple

import pytest

from appliance.engine.cursors import decode_cursor, encode_cursor, whole
from appliance.engine.window.snapshots import Page
from appliance.engine.window.tables import page_of


class Place(NamedTuple):
    topic: str
    newest_first: bool
    position: int


PLACE = Place("Orders \u00e9", True, 2**63 - 1)
TEXT = encode_cursor(PLACE)


def test_a_cursor_holds_what_was_put_into_it():
    assert decode_cursor(TEXT, Place) == PLACE
    assert TEXT.isalnum()


@pytest.mark.parametrize(
    "text",
    ["", "x", "00", "00" * 4, TEXT[:-2], TEXT + "00", "00" + TEXT[2:], TEXT[:-1] + "\u0661", encode_cursor((1, "x"))],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        decode_cursor(text, Place)


def test_a_whole_table_has_each_row_once_whatever_goes_meanwhile():
    rows = list(range(25_000))

    def fetch(page: int, page_size: int) -> Page:
        found = page_of(list(rows), page, page_size)
        del rows[:6000]
        return found

    page = whole(fetch)
    assert page.rows == tuple(range(25_000))
    assert (page.total, page.page, page.pages) == (25_000, 1, 1)
