"""Texts of properties: what is taken out, and what stays as it is."""

import pytest

from appliance.engine.protocol.properties import without_properties


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("", ""),
        ("A\x011\x02", ""),
        ("A\x011", ""),
        ("A\x011\x02B\x012\x02", "B\x012\x02"),
        ("B\x012\x02A\x011", "B\x012"),
        ("B\x012\x02A\x011\x02B\x013\x02A\x014\x02C\x015", "B\x012\x02B\x013\x02C\x015"),
        ("XA\x011\x02AX\x01A\x02\x02B\x01A\x01x\x02", "XA\x011\x02AX\x01A\x02\x02B\x01A\x01x\x02"),
        ("A", ""),
    ],
)
def test_properties_are_taken_out_and_all_else_stays(text: str, rest: str) -> None:
    assert without_properties(text, ("A",)) == rest
