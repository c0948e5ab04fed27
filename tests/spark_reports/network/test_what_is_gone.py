"""Messages that a broker deletes between plan and read are an error, or counted; and filters leave messages unread."""

from __future__ import annotations

import itertools
import time
from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan

from appliance.engine.protocol.codes import RequestCode
from appliance.engine.store.retention import clean_service
from appliance.engine.store.retention.clean_rules import Watermarks
from spark_reports.source import findings
from spark_reports.source.findings import DataLoss, Finding
from tests.spark_reports.network.reading import reader
from tests.spark_reports.network.servers import answer, one_queue, stored
from tests.support.peer import send_fields
from tests.support.waiting import wait_for


def first_offset(peer) -> int:
    return int(peer.ask(RequestCode.GET_MIN_OFFSET, {"topic": "Orders", "queueId": 0}).ext_fields["offset"])


def test_old_files_are_deleted_between_plan_and_read(engine, tmp_path, monkeypatch):
    """With a real broker, whose files have 8 MiB."""
    peer = engine.peer()
    for _ in range(24):
        for _ in range(1000):
            peer.send(RequestCode.SEND_MESSAGE_V2, send_fields("Orders"), bytes(800))
        for _ in range(1000):
            assert peer.receive().code == 0
    counted = tmp_path / "findings"
    lenient = {"failOnDataLoss": "false", "findings": counted}
    made = [reader(engine.engine.namesrv_address, topic="Orders", **more) for more in ({}, lenient)]
    strict_parts, parts = made[0].partitions(), made[1].partitions()
    # The oldest files are deleted, as on a full disk.
    monkeypatch.setattr(clean_service, "watermarks", lambda options: Watermarks(0.0, 0.0, 1.0))
    wait_for(lambda: first_offset(peer) > 0, "files were deleted", every=0.2)
    monkeypatch.undo()
    assert engine.engine.broker.store.cleaner.stop(60), "the round ends"
    first = first_offset(peer)
    assert first < 24_000
    told = f"{first} messages of Orders, queue 0 of broker-a cannot be read.*older messages"
    with pytest.raises(DataLoss, match=told):
        list(itertools.chain.from_iterable(map(made[0].read, strict_parts)))
    found = [offset for part in parts for batch in made[1].read(part) for offset in batch["queue_offset"].to_pylist()]
    assert found == list(range(first, 24_000))
    assert findings.read(counted) == [Finding("gap", 0, first, "broker-a/Orders-0")]


def test_what_was_not_read_is_counted_once_however_often_a_task_runs(tmp_path):
    def damaged(asked, said):
        """Return an answer in which the body at offset 50 does not match its CRC, and 60 to 64 are missing."""
        at = int(asked.ext_fields["queueOffset"])
        upto = min(at + 32, at + int(asked.ext_fields["maxMsgNums"]), 100)
        records = [stored("Orders", 0, offset) for offset in range(at, upto) if not 60 <= offset < 65]
        if at <= 50 < upto:
            records[50 - at] = records[50 - at].replace(b"body", b"bode")
        body = b"".join(records)
        return answer(asked, body=body, nextBeginOffset=upto, minOffset=20, maxOffset=100) if at >= 20 else said

    with one_queue() as (script, server):
        options = {"topic": "Orders", "columns": "body", "findings": tmp_path / "counts"}
        lenient = reader(server.address, failOnDataLoss="false", **options)
        strict = reader(server.address, **options)
        (part,) = lenient.partitions()
        script.spoil, script.first = damaged, 20
        for _ in range(2):
            found = [offset for batch in lenient.read(part) for offset in batch["queue_offset"].to_pylist()]
            assert found == [offset for offset in range(20, 100) if offset != 50 and not 60 <= offset < 65]
        assert set(findings.read(tmp_path / "counts")) == {
            Finding("gap", 0, 20, "broker-a/Orders-0"),
            Finding("corrupt", 50, 51, "broker-a/Orders-0"),
            Finding("gap", 60, 65, "broker-a/Orders-0"),
        }
        with pytest.raises(DataLoss, match="offsets 0 to 19"):
            list(strict.read(part))
        script.first = 0
        script.spoil = lambda asked, said: said.replace(b"Orders-0-50", b"Orders-0-5O").replace(b"body", b"bode")
        with pytest.raises(DataLoss, match=r"sent a damaged message, offset 0 of Orders, queue 0 of broker-a: .*CRC"):
            list(strict.read(part))


def ranges(made, *filters):
    made.take_filters(filters)
    return [
        (part.queue.topic, part.queue.queue_id, part.start, part.end)
        for task in made.partitions()
        for part in task.ranges
    ]


def test_filters_leave_unread_what_cannot_pass(engine):
    for queue in range(2):
        engine.put("Orders", *[b"x"] * 10, queue=queue)
    time.sleep(0.05)
    between = time.time()
    engine.put("Other", *[b"y"] * 5)
    namesrv = engine.engine.namesrv_address
    moment = datetime.fromtimestamp(between, UTC)
    # A new topic reaches the name server only after the answer to its first send.
    wait_for(lambda: len(ranges(reader(namesrv))) == 3, "both topics to be known")
    assert ranges(reader(namesrv)) == [("Orders", 0, 0, 10), ("Orders", 1, 0, 10), ("Other", 0, 0, 5)]
    assert ranges(reader(namesrv), EqualTo(("topic",), "Other")) == [("Other", 0, 0, 5)]
    assert ranges(reader(namesrv), In(("topic",), ("Nowhere", "Other"))) == [("Other", 0, 0, 5)]
    assert ranges(reader(namesrv), EqualTo(("topic",), "Nowhere")) == []
    assert ranges(reader(namesrv, topic="Orders"), EqualTo(("topic",), "Other")) == []
    assert ranges(reader(namesrv), EqualTo(("queue_id",), 1)) == [("Orders", 1, 0, 10)]
    assert ranges(reader(namesrv), GreaterThanOrEqual(("queue_offset",), 7), LessThan(("queue_offset",), 9)) == [
        ("Orders", 0, 7, 9),
        ("Orders", 1, 7, 9),
    ]
    assert ranges(reader(namesrv), GreaterThanOrEqual(("store_ts",), moment)) == [("Other", 0, 0, 5)]
    read_early = ranges(reader(namesrv), LessThan(("store_ts",), moment))
    assert read_early[:2] == [("Orders", 0, 0, 10), ("Orders", 1, 0, 10)]
