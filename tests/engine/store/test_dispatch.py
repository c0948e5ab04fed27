"""Tag codes of queue entries, where they are more than a tag's hash."""

import pytest

from appliance.engine.store.dispatch import properties_tag_code, waiting_tag_code


@pytest.mark.parametrize(
    ("level", "due"),
    [("1", 1500), ("+2", 5500), ("7", 5500), ("0", None), ("-1", None), ("x", None), ("9" * 5000, None)],
)
def test_when_a_message_is_due_whatever_its_level_says(level: str, due: int | None) -> None:
    properties = f"DELAY\x01{level}\x02TAGS\x01A\x02"
    expected = properties_tag_code(properties) if due is None else due
    assert waiting_tag_code(properties, 500, (1000, 5000)) == expected
