"""Tag codes of queue entries that are more than a tag's hash."""

from types import SimpleNamespace

import pytest

from appliance.engine.store.dispatch import Dispatch, parse_delay_levels, properties_tag_code, waiting_tag_code


@pytest.mark.parametrize(
    ("level", "due"),
    [("1", 1500), ("+2", 5500), ("7", 5500), ("0", None), ("-1", None), ("x", None), ("9" * 5000, None)],
)
def test_when_a_message_is_due_whatever_its_level_says(level: str, due: int | None) -> None:
    properties = f"DELAY\x01{level}\x02TAGS\x01A\x02"
    expected = properties_tag_code(properties) if due is None else due
    assert waiting_tag_code(properties, 500, (1000, 5000)) == expected


def test_a_record_of_a_deleted_topic_has_no_entry_whether_its_end_was_noted_or_not() -> None:
    """A deletion that an older version noted has no ends of queues, only where the topic ended in the log."""
    deleted = SimpleNamespace(sys_flag=0, topic="Gone", queue_id=0, queue_offset=3, physical_offset=99)
    anew = SimpleNamespace(sys_flag=0, topic="Gone", queue_id=0, queue_offset=0, physical_offset=100)
    dispatch = Dispatch([], {"Gone": 100})
    assert not dispatch.has_entry(deleted)  # type: ignore[arg-type]
    assert dispatch.has_entry(anew)  # type: ignore[arg-type]


@pytest.mark.parametrize("word", ["36526d", "99999999999999999d", "9223372036854775807s", "9" * 5000 + "s"])
def test_a_delay_that_no_queue_entry_holds_is_refused_at_the_start(word: str) -> None:
    with pytest.raises(ValueError, match="is longer than 100 years"):
        parse_delay_levels(f"1s {word}")
    assert parse_delay_levels("1s 36525d") == [1000, 36_525 * 86_400_000]
