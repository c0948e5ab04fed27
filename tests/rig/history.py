"""What clients saw: one line of JSON for each send, each message given to a consumer, each committed offset.

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
    """One send. producer: sends its messages one after the other. node: "" where the client does not tell.

    offset: where it was acknowledged in its queue; -1 for none, and for what waits somewhere else first.
    due: not to be seen before. verdict: of a transaction, "" when none was ever sent; verdict_outcome: OK or UNKNOWN.
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
    """A consumer said how far it is, and was answered 0."""

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
    """Whole lines only: the last of a process that was killed may be torn."""
    for path in paths:
        whole, _, _ = path.read_bytes().rpartition(b"\n")
        for line in whole.splitlines():
            yield _DECODER.decode(line)


def id_of(body: bytes) -> str:
    """The id in a message's body; the whole body in hex where it has none, so that nobody has sent it."""
    name, mark, _ = body.partition(MARK)
    return name.decode("ascii", "replace") if mark else body[:40].hex()
