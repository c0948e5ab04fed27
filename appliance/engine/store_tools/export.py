"""`rocketbox store export`: messages as lines of JSON, or records as the log holds them. Reads only.

Messages come in the order of the log. A body that is UTF-8 text is `body`, any other is `bodyBase64`; with --decompress
compressed bodies are decompressed first. Damaged records are skipped and counted.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from ..protocol.compression import compression_of
from ..protocol.message_id import encode_host, encode_offset_id
from ..protocol.properties import KEYS, TAGS, UNIQUE_KEY, decode_properties
from ..protocol.record import Record
from ..window.messages.bodies import decompressed
from ..window.topics.views import host_text
from .log_check import CheckingScan
from .offline_store import OfflineStore
from .problems import Problems
from .verification import Progress


class Wanted(NamedTuple):
    """The messages to export. topics: empty means all. Times in ms; to_ms itself is not included."""

    topics: frozenset[str] = frozenset()
    queue_id: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def has(self, record: Record) -> bool:
        return (
            (not self.topics or record.topic in self.topics)
            and self.queue_id in (None, record.queue_id)
            and (self.from_ms is None or record.store_time_ms >= self.from_ms)
            and (self.to_ms is None or record.store_time_ms < self.to_ms)
        )


def records(
    store: OfflineStore, wanted: Wanted, problems: Problems, durable: int, progress: Progress
) -> Iterator[Record]:
    """Yield the wanted records, in the order of the log. Damage goes to `problems`."""
    scan = CheckingScan(store, problems, durable)
    total = store.log.end - store.log.min_offset

    def told(offset: int) -> None:
        progress("records", offset - store.log.min_offset, total)

    for record in scan.all_records(told):
        if wanted.has(record):
            yield record


def json_line(record: Record, encoding: str, decompress: bool) -> bytes:
    """Return one message as a line. encoding: "auto" (text if it is text), "base64" or "text" (bytes that are not UTF-8
    are replaced)."""
    body, kind = record.body, compression_of(record.sys_flag)
    problem = None
    if kind is not None and decompress:
        body, problem = decompressed(body, kind)
        kind = kind if problem else None
    properties = decode_properties(record.properties)
    line: dict[str, Any] = {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "size": record.size,
        "offsetMsgId": encode_offset_id(encode_host(*record.store_host), record.physical_offset),
        "uniqKey": properties.get(UNIQUE_KEY),
        "keys": properties.get(KEYS),
        "tags": properties.get(TAGS),
        "bornTimestamp": record.born_time_ms,
        "bornHost": host_text(record.born_host),
        "storeTimestamp": record.store_time_ms,
        "storeHost": host_text(record.store_host),
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "properties": properties,
        "compression": kind,
    }
    if problem is not None:
        line["problem"] = problem
    if encoding == "text":
        line["body"] = body.decode("utf-8", "replace")
    else:
        try:
            if encoding == "base64":
                raise UnicodeDecodeError("utf-8", b"", 0, 0, "base64 was asked for")
            line["body"] = body.decode()
        except UnicodeDecodeError:
            line["bodyBase64"] = base64.b64encode(body).decode()
    return msgspec.json.encode({name: value for name, value in line.items() if value is not None}) + b"\n"


def raw_record(store: OfflineStore, record: Record) -> bytes:
    """Return the bytes of a record, as the log holds them."""
    return store.raw.read(record.physical_offset, record.size)
