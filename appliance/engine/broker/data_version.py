"""DataVersion: the number a configuration table carries, so that others can ask whether theirs is the same."""

from __future__ import annotations

from typing import Any, NamedTuple


class DataVersion(NamedTuple):
    """timestamp: wall ms of the last change. counter: changes since the table began. state_version: 5.x only.

    Two tables are taken for the same when all three are equal. Source: RocketMQ `DataVersion`.
    """

    timestamp: int = 0
    counter: int = 0
    state_version: int = 0

    def following(self, now_ms: int) -> DataVersion:
        """The version after one more change; never goes back in time, whatever the clock does."""
        return DataVersion(max(now_ms, self.timestamp), self.counter + 1, self.state_version)

    def is_newer_than(self, other: DataVersion) -> bool:
        """Whether this came later, for two versions of one table."""
        return (self.timestamp, self.counter) > (other.timestamp, other.counter)

    def encode(self) -> bytes:
        """Compact JSON as 5.x writes it; 4.9 ignores the field it does not know."""
        return b'{"counter":%d,"stateVersion":%d,"timestamp":%d}' % (self.counter, self.state_version, self.timestamp)

    def as_dict(self) -> dict[str, int]:
        """Its fields under Apache's names, in their order."""
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp}

    @classmethod
    def decode(cls, value: Any) -> DataVersion:
        """From a JSON object; anything missing is 0. Raises ValueError for what is no number."""
        if value is None:
            return cls()
        if not isinstance(value, dict):
            raise ValueError("dataVersion is not an object")
        numbers = [value.get(name) or 0 for name in ("timestamp", "counter", "stateVersion")]
        if not all(type(number) is int for number in numbers):
            raise ValueError("dataVersion holds something that is not a number")
        return cls(*numbers)
