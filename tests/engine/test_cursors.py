"""Cursors: read as they were written, and refused in every other form."""

from typing import NamedTuple

import pytest

from appliance.engine.cursors import decode_cursor, encode_cursor


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
