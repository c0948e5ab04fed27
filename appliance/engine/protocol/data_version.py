"""DataVersion: the version of a configuration table, so that others can ask whether theirs is the same. PURE.

    {"counter":3,"stateVersion":0,"timestamp":1700000000000}

A broker sends it with its topic table (103), alone to ask whether the name server still has that table (322), and
writes it into its JSON files. 4.9 knows no `stateVersion`.
"""

from __future__ import annotations

from typing import Any

from ..named_tuple import NamedTuple

#: Ours, a field in a name server's answer to a whole table: as long as that stays as it is, the next registrations over
#: this connection may leave it out and say which one it is, in `SAME_TABLE`. Apache's answer without it.
KNOWS_TABLES = "rocketboxKnowsTables"
SAME_TABLE = "rocketboxSameTable"

_LONG = 1 << 63
_LARGEST = _LONG - 1


class DataVersion(NamedTuple):
    """timestamp: wall ms of the last change. counter: number of changes. state_version: 5.x only.

    Two tables count as the same when all three are equal. Source: RocketMQ `DataVersion`.
    """

    timestamp: int = 0
    counter: int = 0
    state_version: int = 0

    def following(self, now_ms: int) -> DataVersion:
        """The version after one more change; never goes back in time, whatever the clock does.

        The largest counter, which only a file may bring, begins again: no name server takes a table with a larger one.
        """
        counter = self.counter + 1 if self.counter < _LARGEST else 0
        return DataVersion(max(now_ms, self.timestamp), counter, self.state_version)

    def is_newer_than(self, other: DataVersion) -> bool:
        """Whether this came later, for two versions of one table."""
        return (self.timestamp, self.counter) > (other.timestamp, other.counter)

    def plus_ms(self, ms: int) -> DataVersion:
        """Another version: name servers ask whether two are equal, not which is later."""
        return self._replace(timestamp=self.timestamp + ms)

    def encode(self) -> bytes:
        """Compact JSON as 5.x writes it; 4.9 ignores the field it does not know."""
        return b'{"counter":%d,"stateVersion":%d,"timestamp":%d}' % (self.counter, self.state_version, self.timestamp)

    def as_dict(self) -> dict[str, int]:
        """Its fields under Apache's names, in their order."""
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp}

    @classmethod
    def decode(cls, value: Any) -> DataVersion:
        """From a JSON object, a file's or a peer's; what is missing is 0. Raises ValueError for anything else.

        A number may be written as a string, as fastjson takes it.
        """
        if value is None:
            return cls()
        if type(value) is not dict:
            raise ValueError("dataVersion is not an object")
        get = value.get
        return cls(_long(get("timestamp")), _long(get("counter")), _long(get("stateVersion")))


class SameTable(NamedTuple):
    """Which table a registration leaves out: its version, and the length of the body that brought it, in bytes."""

    version: DataVersion
    size: int

    def encode(self) -> str:
        version = self.version
        return f"{self.size}:{version.timestamp}:{version.counter}:{version.state_version}"

    @classmethod
    def decode(cls, text: str) -> SameTable:
        """Raises ValueError."""
        size, timestamp, counter, state_version = map(_long, text.split(":"))
        return cls(DataVersion(timestamp, counter, state_version), size)


def _long(value: Any) -> int:
    if value is None:
        return 0
    try:
        number = int(value) if type(value) is str else value
    except ValueError:
        number = None
    if type(number) is not int or not -_LONG <= number < _LONG:
        raise ValueError(f"dataVersion holds {str(value)[:64]!r}, which is not a number of 64 bits")
    return number
