"""What a subscription lets through, as a value: made once from its expression, shared by every pull that has it.

A filter is asked at three places, the cheapest first:

    queue entry       `codes`, a set and not a method: a read of a thousand entries calls nothing
    extension unit    the same codes, where Apache wrote the address of a unit into the entry
    record            `matches`, if the filter `reads_records`; its properties are read in the pool, never on the loop

Source: RocketMQ `MessageFilter`: `isMatchedByConsumeQueue`, `isMatchedByCommitLog`.
"""

from __future__ import annotations

from collections.abc import Mapping


class MessageFilter:
    """Tells the messages of a queue that are wanted. Never changes, so that any thread may ask it.

    codes: the tag codes that may match, None when an entry's code keeps nothing out. reads_records: whether a code
    that passes settles nothing yet.
    """

    __slots__ = ("codes", "reads_records")

    def __init__(self, codes: frozenset[int] | None = None, reads_records: bool = False) -> None:
        self.codes = codes
        self.reads_records = reads_records

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties is wanted. Asked only of a filter that reads records."""
        return True


#: What a pull without tags has.
EVERYTHING = MessageFilter()
