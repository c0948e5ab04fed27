"""Copies of the file with the schemas of topics (`window/topics/schemas.py`), from a master to its slaves.

request   the one of `topic_places.py`, with the field `schemas`, "version:offset": of the file that is known, and
          where to go on in it; "0:0" at first
answer    the field `schemas`, "version:size", and bytes of the file: from the offset, or from its beginning if that
          is another version; "0:0" without a file
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ..disk import Disk
from ..fastjson import loads
from ..json_file import save_json_atomically
from ..protocol.codes import RequestCode, ResponseCode
from ..protocol.command import RemotingCommand

#: The field of request and answer.
SCHEMAS = "schemas"
FILE = "schemas.json"
#: Bytes of the file in one answer, and of a file that is taken.
_PIECE, _MOST = 1 << 20, 64 << 20
_NONE = "0:0"


def piece(path: Path, disk: Disk, asked: str) -> tuple[str, bytes]:
    """Return the answer's field and its body. Raises OSError."""
    known, _, at = asked.partition(":")
    try:
        fd = disk.open(path, read_only=True)
    except FileNotFoundError:
        return _NONE, b""
    try:
        stat = os.fstat(fd)
        # A save makes another file and keeps the one before, so no two versions that follow each other are equal.
        version = f"{stat.st_mtime_ns:x}.{stat.st_ino:x}"
        begin = int(at) if known == version and at.isdecimal() and len(at) < 19 else 0
        return f"{version}:{stat.st_size}", disk.pread(fd, _PIECE, begin)
    finally:
        disk.close(fd)


class SchemaCopy:
    """A slave's copy of its master's file. One thread."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._known = _NONE
        # False at first: a former master has a file of its own, which this master may not have.
        self._is_compared = False

    def take(self, ask: Callable[[RemotingCommand], RemotingCommand]) -> bool:
        """Save the master's file here if it is another one; return True if it was. An Apache broker has none.

        ask: returns the master's answer. Raises what it raises, ValueError if the answer is none, and OSError.
        """
        version, _, at = self._known.partition(":")
        size, pieces = int(at), bytearray()
        begin = size
        while True:
            answer = ask(
                RemotingCommand(RequestCode.ROCKETBOX_TOPIC_PLACES, ext_fields={SCHEMAS: f"{version}:{begin}"})
            )
            told = (answer.ext_fields or {}).get(SCHEMAS)
            if answer.code != ResponseCode.SUCCESS or told is None:
                return False
            news, _, at = told.partition(":")
            size = int(at)
            if news != version:
                version, begin, pieces = news, 0, bytearray()
            pieces += answer.body
            begin += len(answer.body)
            if begin >= size:
                break
            if not answer.body or size > _MOST:
                raise ValueError("the schemas of topics are cut off, or too long")
        if told == self._known and self._is_compared:
            return False
        changed = self._save(None if told == _NONE else bytes(pieces))
        self._known, self._is_compared = told, True
        return changed

    def _save(self, data: bytes | None) -> bool:
        here = self._disk.read_if_any(self._path)
        if data is None:  # the master has no file; an empty one is damaged, and the master uses the one before it
            if here is None:
                return False
            data = b'{"schemas":{}}'
        elif not isinstance(loads(data).get("schemas"), dict):
            raise ValueError("the file with the schemas of topics has none")
        if here == data:
            return False
        save_json_atomically(self._path, data, self._disk)
        return True
