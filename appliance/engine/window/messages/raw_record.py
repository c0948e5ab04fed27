"""Lists a record's fields: name, position, size, value. The layout is drawn in `protocol/record.py`."""

from __future__ import annotations

from ...protocol.record import MAGIC_V1, SYS_BORN_IPV6, SYS_STORE_IPV6, Record
from ..topics.views import host_text
from .bodies import dump_of
from .snapshots import RawRecord


def raw_of(record: Record, data: bytes, dump_bytes: int) -> RawRecord:
    born_size = 20 if record.sys_flag & SYS_BORN_IPV6 else 8
    store_size = 20 if record.sys_flag & SYS_STORE_IPV6 else 8
    topic_size = len(record.topic.encode())
    properties_size = len(record.properties.encode())
    layout: tuple[tuple[str, int, object], ...] = (
        ("total size", 4, record.size),
        ("magic", 4, f"{record.magic:#010x} ({'V1' if record.magic == MAGIC_V1 else 'V2'})"),
        ("body CRC", 4, f"{record.body_crc:#010x}"),
        ("queue id", 4, record.queue_id),
        ("flag", 4, record.flag),
        ("queue offset", 8, record.queue_offset),
        ("physical offset", 8, record.physical_offset),
        ("sys flag", 4, f"{record.sys_flag:#x}"),
        ("born time", 8, record.born_time_ms),
        ("born host", born_size, host_text(record.born_host)),
        ("store time", 8, record.store_time_ms),
        ("store host", store_size, host_text(record.store_host)),
        ("reconsume times", 4, record.reconsume_times),
        ("prepared transaction offset", 8, record.prepared_transaction_offset),
        ("body length", 4, len(record.body)),
        ("body", len(record.body), ""),
        ("topic length", 1 if record.magic == MAGIC_V1 else 2, topic_size),
        ("topic", topic_size, record.topic),
        ("properties length", 2, properties_size),
        ("properties", properties_size, record.properties.replace("\x01", " = ").replace("\x02", "; ")),
    )
    fields = []
    at = 0
    for name, size, value in layout:
        fields.append((name, at, size, str(value)))
        at += size
    assert at == record.size
    return RawRecord(
        physical_offset=record.physical_offset,
        size_bytes=record.size,
        fields=tuple(fields),
        dump=tuple(dump_of(data[:dump_bytes])),
        dump_truncated=len(data) > dump_bytes,
    )
