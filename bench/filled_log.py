"""A store with a log of equal records, written as fast as the disk takes it: a template, and numbers put in by numpy.

The files are those of a broker that was stopped: log, consume queues, checkpoint; anything that reads stores reads it.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.record import MAGIC_BLANK, MAGIC_V1, SIZE_MAGIC, Record, encode_record
from appliance.engine.store.dispatch import properties_tag_code

FILE_BYTES = 1 << 30
QUEUE_FILE_BYTES = 6_000_000
TOPICS = ("orders", "refund", "parcel", "notice")  # of one length: so are the records
QUEUES = 4
START_MS = 1_795_255_431_830
_BLOCK = 8192
_DIGITS = 12
_TEXT = (
    "MSG_REGION\x01DefaultRegion\x02UNIQ_KEY\x017F00000122484E0E2F2A{0}\x02CLUSTER\x01DefaultCluster\x02TAGS\x01TagA\x02"
    "KEYS\x01order-{0}\x02WAIT\x01true\x02TRACE_ON\x01true\x02"
)


def write_store(directory: Path, log_bytes: int, body_bytes: int) -> int:
    """A store with `log_bytes` of log; returns how many messages it has. They lie 1 ms apart, in turn by topic."""
    zeros = "0" * _DIGITS
    templates = [_template(topic, _TEXT.format(zeros), body_bytes) for topic in TOPICS]
    size = len(templates[0])
    each = np.frombuffer(b"".join(templates), np.uint8).reshape(len(TOPICS), size)
    marks = [at for at in range(size) if bytes(each[0][at : at + _DIGITS]) == zeros.encode()]
    (directory / "commitlog").mkdir(parents=True)
    (directory / "config").mkdir()
    lists = [[bytearray() for _ in range(QUEUES)] for _ in TOPICS]
    tag = properties_tag_code(_TEXT)
    number = 0
    for start in range(0, log_bytes, FILE_BYTES):
        room = min(FILE_BYTES, log_bytes - start)
        count = (room - 8) // size
        with open(directory / "commitlog" / f"{start:020d}", "wb") as file:
            for low in range(0, count, _BLOCK):
                numbers = np.arange(number + low, number + min(low + _BLOCK, count))
                places = start + size * (numbers - number)
                _write_block(file, each, marks, numbers, places, size)
                _add_entries(lists, numbers, places, size, tag)
            rest = FILE_BYTES - count * size
            if count == (FILE_BYTES - 8) // size:
                file.write(SIZE_MAGIC.pack(rest, MAGIC_BLANK))
            file.truncate(FILE_BYTES)
        number += count
    for topic, queues in zip(TOPICS, lists, strict=True):
        for queue_id, entries in enumerate(queues):
            _write_queue(directory / "consumequeue" / topic / str(queue_id), entries)
    (directory / "checkpoint").write_bytes(struct.pack(">qqq", *[START_MS + number] * 3).ljust(4096, b"\0"))
    return number


def _template(topic: str, text: str, body_bytes: int) -> bytes:
    body = (b'{"order": 4711, "items": [1, 2, 3], "note": "as ever"} ' * (body_bytes // 50 + 1))[:body_bytes]
    host = encode_host("10.1.2.3", 34567)
    record = Record(0, MAGIC_V1, 0, 0, 0, 0, 0, 0, 0, ("", 0), 0, ("", 0), 0, 0, body, topic, text)
    return encode_record(record, host, encode_host("10.1.2.4", 10911))


def _write_block(file, each: np.ndarray, marks: list[int], numbers: np.ndarray, places: np.ndarray, size: int) -> None:
    block = each[numbers % len(TOPICS)]
    turn = numbers // len(TOPICS)
    for at, kind, values in (
        (12, ">i4", turn % QUEUES),
        (20, ">i8", turn // QUEUES),
        (28, ">i8", places),
        (40, ">i8", START_MS + numbers),
        (56, ">i8", START_MS + numbers + 1),
    ):
        width = np.dtype(kind).itemsize
        block[:, at : at + width] = values.astype(kind).view(np.uint8).reshape(-1, width)
    digits = (numbers[:, None] // 10 ** np.arange(_DIGITS - 1, -1, -1) % 10 + 48).astype(np.uint8)
    for at in marks:
        block[:, at : at + _DIGITS] = digits
    file.write(block.data)


def _add_entries(lists, numbers: np.ndarray, places: np.ndarray, size: int, tag: int) -> None:
    entries = np.empty(len(numbers), [("physical", ">i8"), ("size", ">i4"), ("tag", ">i8")])
    entries["physical"], entries["size"], entries["tag"] = places, size, tag
    turn = numbers // len(TOPICS)
    for topic in range(len(TOPICS)):
        for queue in range(QUEUES):
            lists[topic][queue] += entries[(numbers % len(TOPICS) == topic) & (turn % QUEUES == queue)].tobytes()


def _write_queue(directory: Path, entries: bytearray) -> None:
    directory.mkdir(parents=True)
    for at in range(0, len(entries), QUEUE_FILE_BYTES):
        with open(directory / f"{at:020d}", "wb") as file:
            file.write(entries[at : at + QUEUE_FILE_BYTES])
            file.truncate(QUEUE_FILE_BYTES)
