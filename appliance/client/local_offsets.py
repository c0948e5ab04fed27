"""Offsets of a broadcasting consumer, in the file where Java's clients keep theirs."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from .errors import BadAnswer
from .message import MessageQueue
from .wire import read_json

_DIRECTORY = ".rocketmq_offsets"


class LocalOffsets:
    """`~/.rocketmq_offsets/CLIENT/GROUP/offsets.json`, with the state before in `offsets.json.bak`."""

    def __init__(self, client: str, group: str) -> None:
        """client: "IP@DEFAULT", unless the client has a name of its own."""
        self._path = Path.home() / _DIRECTORY / client / group / "offsets.json"
        # Guarded by _lock, as is the file.
        self._lock = threading.Lock()
        self._offsets: dict[MessageQueue, int] = {}

    def load(self) -> None:
        """Read the file, or the one before it if it is missing or broken; none of them is no error. Raises BadAnswer if
        both are broken, and OSError."""
        try:
            self._offsets = _read(self._path)
        except (FileNotFoundError, BadAnswer) as error:
            try:
                self._offsets = _read(self._backup)
            except FileNotFoundError:
                if isinstance(error, BadAnswer):
                    raise error from None

    @property
    def _backup(self) -> Path:
        return self._path.with_suffix(".json.bak")

    def read(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def save(self, offsets: Mapping[MessageQueue, int]) -> str | None:
        """Write these offsets beside those of other queues; return why that failed, None if it did not."""
        with self._lock:
            merged = self._offsets | dict(offsets)
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                fresh = self._path.with_suffix(".json.tmp")
                fresh.write_text(_write(merged), encoding="utf-8")
                if self._path.exists():
                    os.replace(self._path, self._backup)
                os.replace(fresh, self._path)
            except OSError as error:
                return str(error)
            self._offsets = merged
        return None


def _read(path: Path) -> dict[MessageQueue, int]:
    data = path.read_bytes()
    try:
        found = {}
        for key, offset in read_json(data)["offsetTable"].items():
            place = read_json(key)
            found[MessageQueue(place["topic"], place["brokerName"], place["queueId"])] = int(offset)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadAnswer(f"{path} holds no offsets: {error!r}. Remove it to begin anew.") from None
    return found


def _write(offsets: Mapping[MessageQueue, int]) -> str:
    """Return offsets as fastjson writes them: a queue is a key."""
    entries = (
        json.dumps({"brokerName": one.broker_name, "queueId": one.queue_id, "topic": one.topic}, separators=(",", ":"))
        + f":{offset}"
        for one, offset in sorted(offsets.items())
    )
    return '{\n\t"offsetTable":{' + ",\n\t\t".join(entries) + "\n\t}\n}"
