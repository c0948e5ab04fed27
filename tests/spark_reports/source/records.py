"""Records of any shape, and the plain loop whose results the columns must equal."""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Iterable

from hypothesis import strategies as st

from appliance.engine.errors import CorruptFile
from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.record import MAGIC_V1, MAGIC_V2, Record, decode_record, encode_record
from spark_reports.source.names import topic_of
from spark_reports.source.rows import batch_of, row_of
from spark_reports.source.wanted import Wanted

SHORT_HOST = encode_host("10.1.2.3", 10911)
LONG_HOST = encode_host("fd00::17", 10911)
MAPPED_HOST = bytes(10) + b"\xff\xff" + SHORT_HOST


def record(number: int = 0, topic: str = "orders", properties: str = "", body: bytes = b"body", **changes) -> Record:
    """Return a record as a store holds it; `number` is its queue offset."""
    values = {
        "size": 0, "magic": MAGIC_V1, "body_crc": 0, "queue_id": 0, "flag": 0, "queue_offset": number,
        "physical_offset": 0, "sys_flag": 0, "born_time_ms": 1_700_000_000_000 + number, "born_host": ("", 0),
        "store_time_ms": 1_700_000_000_001 + number, "store_host": ("", 0), "reconsume_times": 0,
        "prepared_transaction_offset": 0, "body": body, "topic": topic, "properties": properties,
    }  # fmt: skip
    return Record(**{**values, **changes})


def packed(records: Iterable[Record | tuple[Record, bytes, bytes]], base: int = 0) -> bytes:
    """Return the records' bytes one after another, from physical offset `base`; hosts as given, else short ones."""
    data = b""
    for one in records:
        made, born, stored = one if not isinstance(one, Record) else (one, SHORT_HOST, SHORT_HOST)
        data += encode_record(made._replace(physical_offset=base + len(data)), born, stored)
    return data


def plain(data: bytes, starts: list[int], wanted: Wanted, base: int | None = None):
    """Decode record by record; return (batch, indices of corrupt ones)."""
    rows, corrupt = [], []
    for index, at in enumerate(starts):
        try:
            found = decode_record(data, at, check_crc=False)
            if (
                found.queue_id < 0
                or found.queue_offset < 0
                or topic_of(found.topic.encode()) is None
                or (base is not None and found.physical_offset != base + at)
            ):
                raise CorruptFile("it belongs to no queue")
            if wanted.has(found):
                decode_record(data, at, check_crc=wanted.body)
                rows.append(row_of(found, wanted.body, wanted.broker))
        except CorruptFile:
            corrupt.append(index)
    return batch_of(rows, wanted.body), corrupt


_NAMES = st.sampled_from(("UNIQ_KEY", "KEYS", "TAGS", "PGROUP", "WAIT", "é", "名", "a b", "x" * 40))
_VALUES = st.sampled_from(("true", "TagA", "k1 k2", "ü", "值" * 3, "v" * 300, "0"))
_USUAL = st.lists(st.tuples(_NAMES, _VALUES), max_size=6).flatmap(
    lambda pairs: st.sampled_from(
        ("".join(f"{name}\x01{value}\x02" for name, value in pairs), "\x02".join(f"{n}\x01{v}" for n, v in pairs))
    )
)
#: Properties with separators in any places, and with empty names and values.
_ODD = st.text(st.sampled_from("\x01\x02\x00abé"), max_size=12)
_TEXTS = st.one_of(_USUAL, _USUAL, _ODD)
_BODY = b"a body that says little " * 20


def _bodies() -> st.SearchStrategy[tuple[int, bytes]]:
    """(sys flag, body): plain, compressed in each way, or marked as compressed and not so."""
    import lz4.frame
    import zstandard

    return st.sampled_from(
        (
            (0, b""), (0, b"body"), (0, _BODY), (1, zlib.compress(_BODY)), (0x301, zlib.compress(_BODY)),
            (0x101, lz4.frame.compress(_BODY)), (0x201, zstandard.compress(_BODY)), (1, b"no zlib"), (0x101, b""),
            (0x501, bz2.compress(_BODY)), (0x201, zstandard.compress(_BODY)[:-9]), (0x80, b"a batch"), (8, b"tx"),
        )
    )  # fmt: skip


_MS = st.one_of(st.integers(1_700_000_000_000, 1_700_000_001_000), st.sampled_from((0, -1, 1 << 62, -(1 << 63))))
_HOSTS = st.sampled_from((SHORT_HOST, SHORT_HOST, LONG_HOST, MAPPED_HOST))


@st.composite
def any_records(draw: st.DrawFn) -> list[tuple[Record, bytes, bytes]]:
    found = []
    for number in range(draw(st.integers(0, 8))):
        sys_flag, body = draw(_bodies())
        made = record(
            number,
            draw(st.sampled_from(("orders", "refunds", "%DLQ%g", "rmq_sys_wheel_timer", "bücher", "t" * 127))),
            draw(_TEXTS),
            body,
            sys_flag=sys_flag,
            magic=draw(st.sampled_from((MAGIC_V1, MAGIC_V2))),
            queue_id=draw(st.integers(0, 2)),
            born_time_ms=draw(_MS),
            store_time_ms=draw(_MS),
            reconsume_times=draw(st.integers(0, 3)),
            flag=draw(st.integers(-(1 << 31), (1 << 31) - 1)),
        )
        found.append((made, draw(_HOSTS), draw(_HOSTS)))
    return found


@st.composite
def any_wanted(draw: st.DrawFn) -> Wanted:
    queues = st.dictionaries(
        st.tuples(st.sampled_from(("orders", "refunds")), st.integers(0, 2)), st.integers(0, 8), max_size=2
    )
    times = st.one_of(st.none(), st.integers(1_700_000_000_000, 1_700_000_001_000))
    offsets = st.one_of(st.none(), st.integers(0, 8))
    return Wanted(
        topics=draw(st.one_of(st.none(), st.sets(st.sampled_from(("orders", "%DLQ%g", "none"))).map(frozenset))),
        system=draw(st.booleans()),
        queue_ids=draw(st.one_of(st.none(), st.sets(st.integers(0, 2)).map(frozenset))),
        from_ms=draw(times),
        to_ms=draw(times),
        from_offset=draw(offsets),
        to_offset=draw(offsets),
        starts=draw(queues),
        ends=draw(queues),
        body=draw(st.booleans()),
        broker=draw(st.sampled_from((None, "broker-a"))),
    )
