"""The filter of a subscription as a value: made once from its expression, shared by every pull that has it.

A filter is applied at three places, the cheapest first:

    queue entry       `codes`, a set and not a method: a read of a thousand entries calls nothing
    extension unit    the same codes, where Apache wrote the address of a unit into the entry
    record            `verdicts` of many, `matches` of one, if the filter `reads_records`; much of it in a pool

Source: RocketMQ `MessageFilter`: `isMatchedByConsumeQueue`, `isMatchedByCommitLog`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..protocol.properties import decode_properties
from .projection import properties_at

#: An SQL92 expression of this length is compiled in well under a millisecond, and so are the tags in one.
QUICK_CHARS = 400


class MessageFilter:
    """Decides which messages of a queue are wanted. Never changes, so that any thread may use it.

    codes: the tag codes that may match, None when an entry's code keeps nothing out. reads_records: True if an entry
    whose code passes is only decided by its record. costly: True if judging a record takes more than some microseconds;
    the I/O thread then leaves it to a pool. names: the properties whose values decide, in the order in which
    `verdicts_of` gets the values; None if the filter needs the whole map. lasts: False if the filter counts as in use
    while anything refers to it (`shelf.py`), so that only its pulls and subscriptions may.
    """

    __slots__ = ("codes", "costly", "names", "reads_records")
    lasts = True

    def __init__(self, codes: frozenset[int] | None = None, reads_records: bool = False, costly: bool = False) -> None:
        self.codes = codes
        self.reads_records = reads_records
        self.costly = costly
        self.names: tuple[bytes, ...] | None = None

    def matches(self, properties: Mapping[str, str]) -> bool:
        """True if a message with these properties is wanted. Called only if the filter reads records."""
        return True

    def verdicts_of(self, keys: Sequence[bytes | None]) -> list[bool]:
        """Return one bool for each message, given by its values of `names` (`projection`): is it wanted? None
        passes."""
        raise NotImplementedError

    def verdicts(self, data: bytes, places: Sequence[tuple[int, int]]) -> list[bool]:
        """Return one bool for each (place, size) in `data`: is the record there wanted? Bytes that are no record pass,
        and the next reader finds out."""
        found = []
        for at, size in places:
            begin = properties_at(data, at, at + size)
            try:
                found.append(begin is None or self.matches(decode_properties(data[begin : at + size].decode())))
            except UnicodeDecodeError:
                found.append(True)
        return found


#: The filter of a pull without tags.
EVERYTHING = MessageFilter()
