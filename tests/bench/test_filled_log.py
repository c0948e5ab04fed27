"""The store that the bench of Spark reads is valid: the tools find no fault with it."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")
from bench import filled_log
from tests.spark_reports.source.stores import read
from tests.support.offline import damage


def test_it_is_a_store(tmp_path, monkeypatch):
    monkeypatch.setattr(filled_log, "FILE_BYTES", 1 << 20)
    monkeypatch.setattr(filled_log, "QUEUE_FILE_BYTES", 20_000)
    messages = filled_log.write_store(tmp_path / "store", 5 << 19, 100)
    assert damage(tmp_path) == []
    rows = read(tmp_path, columns="body").rows
    assert len(rows) == messages > 7000
    assert len({row["msg_id"] for row in rows}) == messages
    assert {row["topic"] for row in rows} == set(filled_log.TOPICS)
    assert {len(row["body"]) for row in rows} == {100}
