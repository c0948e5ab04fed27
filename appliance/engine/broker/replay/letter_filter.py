"""Which dead letters are meant: by where they come from, their retries, a key, and earlier replays. PURE."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...protocol.properties import KEYS, ORIGIN_MESSAGE_ID, RETRY_TOPIC, UNIQUE_KEY, decode_properties
from ...protocol.record import Record
from .provenance import provenance_of

#: Values of `replayed`: not replayed from where it lies; replayed from there; the copy of a replay, dead once more.
NOT_YET, REPLAYED, AGAIN = "no", "yes", "again"
REPLAYS = (NOT_YET, REPLAYED, AGAIN)


class LetterFilter(msgspec.Struct, frozen=True):
    """None for anything. topic: it was first sent to; "" for those that do not say. retries: exactly so many. key: one
    of its keys, its unique id, or the offset id of the message it once was. replayed: one of REPLAYS."""

    topic: str | None = None
    retries: int | None = None
    key: str | None = None
    replayed: str | None = None

    @property
    def all(self) -> bool:
        """Whether nothing is left out."""
        return self == ALL_LETTERS

    @property
    def given(self) -> dict[str, str | int]:
        """What is asked for, by name."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}

    def fits(self, record: Record, properties: Mapping[str, str] | None = None) -> bool:
        """Whether a dead letter may be meant as far as it says by itself. properties: its own, if they are at hand."""
        if self.retries is not None and record.reconsume_times != self.retries:
            return False
        if self.topic is None and self.key is None and self.replayed != AGAIN:
            return True
        found = decode_properties(record.properties) if properties is None else properties
        if self.topic is not None and found.get(RETRY_TOPIC, "") != self.topic:
            return False
        if self.key is not None and not self._named(found):
            return False
        return self.replayed != AGAIN or provenance_of(found).job is not None

    def _named(self, properties: Mapping[str, str]) -> bool:
        return (
            self.key in properties.get(KEYS, "").split()
            or self.key == properties.get(UNIQUE_KEY)
            or self.key == properties.get(ORIGIN_MESSAGE_ID)
        )

    def fits_replays(self, times: int) -> bool:
        """times: how often it was replayed from where it lies."""
        return not (self.replayed == NOT_YET and times) and not (self.replayed == REPLAYED and not times)


ALL_LETTERS = LetterFilter()
