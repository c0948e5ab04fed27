"""A filter that chooses dead letters by original topic, retries, key and earlier replays. PURE."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ...protocol.properties import KEYS, ORIGIN_MESSAGE_ID, RETRY_TOPIC, UNIQUE_KEY, decode_properties
from ...protocol.record import Record
from .provenance import provenance_of

#: Values of `replayed`: not replayed from its place; replayed from its place; the copy of a replay, dead again.
NOT_YET, REPLAYED, AGAIN = "no", "yes", "again"
REPLAYS = (NOT_YET, REPLAYED, AGAIN)


class LetterFilter(msgspec.Struct, frozen=True):
    """Conditions on a dead letter; None accepts any value. topic: the one it was first sent to; "" for letters that
    name none. retries: their exact number. key: one of its keys, its unique id, or the offset id of the message it once
    was. replayed: one of REPLAYS."""

    topic: str | None = None
    retries: int | None = None
    key: str | None = None
    replayed: str | None = None

    @property
    def all(self) -> bool:
        """True if the filter accepts every dead letter."""
        return self == ALL_LETTERS

    @property
    def given(self) -> dict[str, str | int]:
        """The conditions that are set, by name."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}

    def fits(self, record: Record, properties: Mapping[str, str] | None = None) -> bool:
        """True if the dead letter's own record fits; `fits_replays` judges the rest. properties: those of the record,
        if they are decoded already."""
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
        """True if a dead letter fits that was replayed `times` times from its place."""
        return not (self.replayed == NOT_YET and times) and not (self.replayed == REPLAYED and not times)


ALL_LETTERS = LetterFilter()
