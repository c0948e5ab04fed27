"""What a subscription lets through, as a value: made once from its expression, shared by every pull that has it.

A filter is asked at three places, the cheapest first:

    queue entry       `codes`, a set and not a method: a read of a thousand entries calls nothing
    extension unit    the same codes, where Apache wrote the address of a unit into the entry
    record            `verdicts` of many, `matches` of one, if the filter `reads_records`; much of it in a pool

Source: RocketMQ `MessageFilter`: `isMatchedByConsumeQueue`, `isMatchedByCommitLog`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..protocol.properties import decode_properties
from .projection import properties_at

#: An SQL92 expression of this length is compiled in well under a millisecond.
QUICK_CHARS = 400


class MessageFilter:
    """Tells the messages of a queue that are wanted. Never changes, so that any thread may ask it.

    codes: the tag codes that may match, None when an entry's code keeps nothing out. reads_records: whether a code
    that passes settles nothing yet. costly: whether judging a record takes more than some microseconds; the I/O thread
    then leaves it to a pool. names: of the properties whose values settle it, in the order in which `verdicts_of` is
    given them; None when it asks for the whole map.
    """

    __slots__ = ("codes", "costly", "names", "reads_records")

    def __init__(self, codes: frozenset[int] | None = None, reads_records: bool = False, costly: bool = False) -> None:
        self.codes = codes
        self.reads_records = reads_records
        self.costly = costly
        self.names: tuple[bytes, ...] | None = None

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties is wanted. Asked only of a filter that reads records."""
        return True

    def verdicts_of(self, keys: Sequence[bytes | None]) -> list[bool]:
        """Of messages with these values of `names` (`projection`): whether each is wanted. None passes: no record."""
        raise NotImplementedError

    def verdicts(self, data: bytes, places: Sequence[tuple[int, int]]) -> list[bool]:
        """Of each record of `data`, as (place, size), whether it is wanted. What is no record passes: who reads it next
        finds out."""
        found = []
        for at, size in places:
            begin = properties_at(data, at, at + size)
            try:
                found.append(begin is None or self.matches(decode_properties(data[begin : at + size].decode())))
            except UnicodeDecodeError:
                found.append(True)
        return found


#: What a pull without tags has.
EVERYTHING = MessageFilter()
