"""The history of clients: one line of JSON for each send, each message given to a consumer, each committed offset.

Times are wall clock seconds of the machine; a broker's own clock may be wrong, a client's is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

#: A message's body begins with its id and this.
MARK = b"|"

OK, FAIL, UNKNOWN = "ok", "fail", "unknown"
COMMIT, ROLLBACK = "commit", "rollback"


class Send(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="send"):
    """One send. producer: sends its messages one after the other. node: "" if the client does not report the broker.

    offset: the acknowledged queue offset; -1 if there is none, and for delayed and half messages.
    due: must not be seen before. verdict: of a transaction, "" when none was ever sent; verdict_outcome: OK or UNKNOWN.
    again: the client may have sent it more than once.
    """

    producer: str
    topic: str
    id: str
    queue: int
    call: float
    back: float
    outcome: str
    node: str = ""
    offset: int = -1
    code: int = 0
    due: float = 0.0
    half: bool = False
    verdict: str = ""
    verdict_outcome: str = ""
    again: bool = False


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="seen"):
    """A message was given to a consumer."""

    consumer: str
    topic: str
    queue: int
    offset: int
    id: str
    time: float
    node: str = ""


class Committed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="committed"):
    """A consumer committed an offset, and the broker answered 0."""

    group: str
    topic: str
    queue: int
    offset: int
    time: float
    node: str = ""


Event = Send | Seen | Committed
_DECODER: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)  # type: ignore[arg-type]
encode = msgspec.json.encode


def read_history(paths: Iterable[Path]) -> Iterator[Event]:
    """Yield the events of whole lines only: the last line of a killed process may be torn."""
    for path in paths:
        whole, _, _ = path.read_bytes().rpartition(b"\n")
        for line in whole.splitlines():
            yield _DECODER.decode(line)


def id_of(body: bytes) -> str:
    """Return the id in a message's body. A body without one yields its first 40 bytes in hex, an id never sent."""
    name, mark, _ = body.partition(MARK)
    return name.decode("ascii", "replace") if mark else body[:40].hex()
