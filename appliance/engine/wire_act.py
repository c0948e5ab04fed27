"""One act of administration over the wire, and its line in the audit file (D22).

    {"series":"9f86d081884c7d65","from":17}                                  the first line of a file: its head
    {"n":17,"at_ms":1700000000000,"host":"10.0.0.5","port":4711,"action":"topic.set","target":"T","after":{...}}

Fields with their default (empty, 0, "done") are left out. `wire_audit` writes the files; the console reads them through
the window.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from .host_port import join_host_port

logger = logging.getLogger(__name__)

DONE, REFUSED, FAILED = "done", "refused", "failed"


class WireAct(msgspec.Struct, frozen=True, omit_defaults=True):
    """One administrative request. before, after: JSON values of the state that it changed.

    n: its number in the file, 0 before it is written. host, port: the peer's. result: DONE, REFUSED or FAILED. more:
    in an entry that is a count, the number of further acts of this address and kind; its port is 0.
    """

    n: int = 0
    at_ms: int = 0
    host: str = ""
    port: int = 0
    action: str = ""
    target: str = ""
    before: Any = None
    after: Any = None
    result: str = DONE
    more: int = 0

    @property
    def peer(self) -> str:
        """The peer's address, as "10.0.0.5:4711"."""
        return join_host_port(self.host, self.port) if self.port else self.host


class FileHead(msgspec.Struct, frozen=True, rename={"first": "from"}):
    """The first line of a file. first: the number of its first act."""

    series: str
    first: int


def read_acts(raw: bytes) -> tuple[FileHead | None, list[WireAct]]:
    """Return (head, acts) of a file's bytes. head: None if there are none, or the first line is no head. Torn and
    damaged lines are left out."""
    lines = [line for line in raw.splitlines(keepends=True) if line.endswith(b"\n")]
    try:
        head = msgspec.json.decode(lines[0], type=FileHead) if lines else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        head = None
    return head, [act for act in map(decode_act, lines[1:]) if act is not None]


def decode_act(line: bytes) -> WireAct | None:
    try:
        return msgspec.json.decode(line, type=WireAct)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        logger.error("wire audit: left out a damaged line line=%r", line[:200])
        return None
