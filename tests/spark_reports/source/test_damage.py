"""One task over a file with damage anywhere: its rows and findings equal those of the plain loop."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.engine.protocol.record import MAGIC_BLANK, SIZE_MAGIC, body_crc
from spark_reports.source import body_columns, file_task
from spark_reports.source.file_task import FileTask
from spark_reports.source.findings import Finding, read
from spark_reports.source.log_files import LogFile, LogReader
from spark_reports.source.plan import FilePartition
from spark_reports.source.rows import batch_of, row_of
from spark_reports.source.wanted import Wanted
from tests.spark_reports.source.records import packed, record
from tests.support.directories import shared_directory

BASE = 1 << 30


def plain(file: LogFile, wanted: Wanted) -> tuple[list[dict], list[Finding]]:
    """Read record by record; a finding spans from the first byte that is no record to the next record."""
    reader = LogReader(file)
    rows, found, at = [], [], file.start
    try:
        while at < file.end:
            one = reader.record_at(at, file.end)
            if one is not None:
                if wanted.body and one.body and body_crc(one.body) != one.body_crc:
                    found.append((at, at + one.size))
                elif wanted.has(one):
                    rows.append(row_of(one, wanted.body))
                at += one.size
                continue
            head = reader.read(at, 8)
            if len(head) == 8 and SIZE_MAGIC.unpack(head) == (file.end - at, MAGIC_BLANK):
                break
            following = reader.next_record(at + 1, file.end) or file.end
            found.append((at, following))
            at = following
    finally:
        reader.close()
    joined: list[list[int]] = []
    for begin, end in found:
        if joined and joined[-1][1] == begin:
            joined[-1][1] = end
        else:
            joined.append([begin, end])
    return batch_of(rows, wanted.body).to_pylist(), [Finding("corrupt", *one) for one in joined]


def task_of(path: Path, data: bytes, wanted: Wanted, directory: Path) -> tuple[list[dict], list[Finding]]:
    for old in directory.glob("*.json"):
        old.unlink()
    path.write_bytes(data)
    file = LogFile(str(path), BASE, BASE + len(data))
    task = FileTask(FilePartition(file, file.start, file.end), wanted, fails=False)
    rows = [row for batch in task.batches(str(directory)) for row in batch.to_pylist()]
    return rows, read(directory)


def file_bytes(sizes: list[int], blank: int) -> bytes:
    data = packed([record(n, body=b"%03d" % n * size) for n, size in enumerate(sizes)], BASE)
    return data + (SIZE_MAGIC.pack(blank, MAGIC_BLANK).ljust(blank, b"\0") if blank else b"")


@st.composite
def harm(draw: st.DrawFn) -> tuple[bytes, bool]:
    """Draw (a file's bytes, some of them changed; True to read bodies)."""
    sizes = draw(st.lists(st.sampled_from((0, 1, 20, 90, 300)), min_size=1, max_size=12))
    data = bytearray(file_bytes(sizes, draw(st.sampled_from((0, 8, 100)))))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data) - 1))
        values = draw(st.one_of(st.binary(min_size=1, max_size=4), st.sampled_from((bytes(60), b"\xff" * 12))))
        data[at : at + len(values)] = values[: len(data) - at]
    return bytes(data), draw(st.booleans())


@pytest.fixture(scope="module")
def place(request):
    return shared_directory(request, "damage")


@settings(max_examples=300, deadline=None)
@given(harm(), st.sampled_from((300, 1000, 1 << 20)), st.sampled_from((2, 1000)))
def test_what_is_read_and_counted(place, harmed, chunk, rows):
    data, body = harmed
    wanted = Wanted(body=body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_task, "CHUNK_BYTES", chunk)
        patch.setattr(file_task, "MOST_ROWS", rows)
        found = task_of(place / "file", data, wanted, place / "findings")
    assert found == plain(LogFile(str(place / "file"), BASE, BASE + len(data)), wanted)


def test_a_size_that_is_wrong_by_a_whole_record_hides_nothing(place):
    data = bytearray(file_bytes([100, 100, 100, 100], 0))
    size = int.from_bytes(data[:4], "big")
    data[size : size + 4] = (2 * size).to_bytes(4, "big")
    rows, found = task_of(place / "file", bytes(data), Wanted(), place / "findings")
    assert [row["queue_offset"] for row in rows] == [0, 2, 3]
    assert found == [Finding("corrupt", BASE + size, BASE + 2 * size)]


def test_batches_are_bounded_by_what_bodies_decompress_to(place, monkeypatch):
    monkeypatch.setattr(body_columns, "BODIES_BYTES", 1 << 20)
    bomb = zlib.compress(bytes(600 << 10))
    data = packed([record(n, body=bomb if n % 2 else b"plain", sys_flag=n % 2) for n in range(9)], BASE)
    (place / "file").write_bytes(data)
    file = LogFile(str(place / "file"), BASE, BASE + len(data))
    task = FileTask(FilePartition(file, file.start, file.end), Wanted(body=True), fails=True)
    batches = list(task.batches(None))
    assert [number for batch in batches for number in batch["queue_offset"].to_pylist()] == list(range(9))
    assert max(sum(len(body.as_py()) for body in batch["body"]) for batch in batches) < 1 << 20


def test_a_body_that_never_ends_stays_as_it_is(place):
    bomb = zlib.compress(bytes(20 << 20))
    rows, found = task_of(
        place / "file", packed([record(0, body=bomb, sys_flag=1)], BASE), Wanted(body=True), place / "findings"
    )
    assert [(row["body"], row["body_encoding"]) for row in rows] == [(bomb, "zlib")]
    assert found == []


def rows_in(batches: Iterator) -> int:
    return sum(batch.num_rows for batch in batches)


def test_chunks_and_rows_of_a_batch_are_bounded(place, monkeypatch):
    monkeypatch.setattr(file_task, "CHUNK_BYTES", 10_000)
    monkeypatch.setattr(file_task, "MOST_ROWS", 7)
    data = file_bytes([20] * 500, 0)
    (place / "file").write_bytes(data)
    file = LogFile(str(place / "file"), BASE, BASE + len(data))
    batches = list(FileTask(FilePartition(file, file.start, file.end), Wanted(), fails=True).batches(None))
    assert max(batch.num_rows for batch in batches) == 7
    assert rows_in(iter(batches)) == 500
