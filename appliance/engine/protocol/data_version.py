"""DataVersion: the version of a configuration table, by which two sides compare their copies. PURE.

    {"counter":3,"stateVersion":0,"timestamp":1700000000000}

A broker sends it with its topic table (103), alone to find out if the name server still has that table (322), and
writes it into its JSON files. 4.9 has no `stateVersion`.
"""

from __future__ import annotations

from typing import Any

from ..named_tuple import NamedTuple

#: A field of RocketBox in a name server's answer to a whole table: while the table does not change, later registrations
#: over this connection may leave it out and name it in `SAME_TABLE`. Apache's answer does not have it.
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
        """Return the version after one more change; it never goes back in time, whatever the clock does.

        The largest counter, which can only come from a file, starts again at 0: no name server accepts a larger one.
        """
        counter = self.counter + 1 if self.counter < _LARGEST else 0
        return DataVersion(max(now_ms, self.timestamp), counter, self.state_version)

    def is_newer_than(self, other: DataVersion) -> bool:
        """True if this is the later of two versions of one table."""
        return (self.timestamp, self.counter) > (other.timestamp, other.counter)

    def plus_ms(self, ms: int) -> DataVersion:
        """Return a different version: name servers check if two are equal, not which is later."""
        return self._replace(timestamp=self.timestamp + ms)

    def encode(self) -> bytes:
        """Return compact JSON as 5.x writes it; 4.9 ignores the unknown field."""
        return b'{"counter":%d,"stateVersion":%d,"timestamp":%d}' % (self.counter, self.state_version, self.timestamp)

    def as_dict(self) -> dict[str, int]:
        """Return the fields under Apache's names, in Apache's order."""
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.timestamp}

    @classmethod
    def decode(cls, value: Any) -> DataVersion:
        """Decode a JSON object from a file or a peer; missing fields are 0. Raises ValueError for anything else.

        A number may be written as a string, which fastjson accepts.
        """
        if value is None:
            return cls()
        if type(value) is not dict:
            raise ValueError("dataVersion is not an object")
        get = value.get
        return cls(_long(get("timestamp")), _long(get("counter")), _long(get("stateVersion")))


class SameTable(NamedTuple):
    """The table that a registration leaves out: its version, and the size in bytes of the body that contained it."""

    version: DataVersion
    size: int

    def encode(self) -> str:
        version = self.version
        return f"{self.size}:{version.timestamp}:{version.counter}:{version.state_version}"

    @classmethod
    def decode(cls, text: str) -> SameTable:
        """Decode the text that `encode` makes. Raises ValueError."""
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
