"""`df.write.format("rocketbox")`: rows become messages that brokers have confirmed."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row
from pyspark.sql.types import StringType, StructType

from appliance.client import ClientError, Message, NotConnected, Pending
from appliance.engine.config import Secret
from spark_reports import RocketBoxDataSource
from spark_reports.source.network import sink
from spark_reports.source.network.errors import Unreachable
from spark_reports.source.network.sink import Sender
from spark_reports.source.options import parse
from tests.spark_reports.source.stores import read as read_files
from tests.support.engine import RunningEngine
from tests.support.ports import reserve_port
from tests.support.server import Server
from tests.support.tls import make_pair
from tests.support.waiting import wait_for


@pytest.fixture
def session(spark):
    spark.dataSource.register(RocketBoxDataSource)
    return spark


@pytest.fixture
def brokers(engine):
    """Name servers of a broker with the topics Orders and Copies."""
    for topic in ("Orders", "Copies"):
        engine.window.topic_commands.create(topic, read_queues=4, write_queues=4)
    return engine.engine.namesrv_address


def read(session, brokers, topic):
    rows = session.read.format("rocketbox").options(brokers=brokers, topic=topic, columns="body").load()
    return rows.select("topic", "body", "keys", "tags", "properties").collect()


def test_each_row_is_a_message_with_its_keys_tags_and_properties(session, brokers):
    schema = "topic string, body string, keys string, tags string, properties map<string,string>"
    rows = [("Orders", f"order {n}", f"k{n} all", "paid" if n % 2 else None, {"colour": "red"}) for n in range(100)]
    frame = session.createDataFrame([*rows, ("Copies", "ü", None, None, None)], schema).repartition(3)
    frame.write.format("rocketbox").option("brokers", brokers).mode("append").save()
    found = sorted(read(session, brokers, "Orders"), key=lambda row: bytes(row.body))
    assert [(bytes(row.body).decode(), row.keys, row.tags) for row in found] == sorted(row[1:4] for row in rows)
    assert {row.properties["colour"] for row in found} == {"red"}
    assert [bytes(row.body).decode() for row in read(session, brokers, "Copies")] == ["ü"]


def test_what_was_read_can_be_written_to_another_topic(session, brokers, engine):
    engine.put("Orders", b"\x00\xff", properties="TAGS\x01paid\x02KEYS\x01a b\x02UNIQ_KEY\x01old\x02mine\x01yes\x02")
    rows = session.read.format("rocketbox").options(brokers=brokers, topic="Orders", columns="body").load()
    out = rows.select("body", "keys", "tags", "properties").write.format("rocketbox")
    out.options(brokers=brokers, topic="Copies").mode("append").save()
    (row,) = read(session, brokers, "Copies")
    assert (bytes(row.body), row.keys, row.tags, row.properties["mine"]) == (b"\x00\xff", "a b", "paid", "yes")
    assert row.properties["UNIQ_KEY"] != "old", "it is a message of its own"


def test_rows_of_one_shard_go_to_one_queue_in_their_order(session, brokers):
    frame = session.createDataFrame([(f"{n:03}", f"s{n % 3}") for n in range(90)], "body string, shard string")
    out = frame.coalesce(1).write.format("rocketbox").options(brokers=brokers, topic="Orders")
    out.mode("append").save()
    rows = session.read.format("rocketbox").options(brokers=brokers, topic="Orders", columns="body").load()
    by_shard = {}
    for row in rows.orderBy("queue_id", "queue_offset").collect():
        shard = int(bytes(row.body)) % 3
        by_shard.setdefault(shard, []).append((row.queue_id, bytes(row.body)))
    assert len(by_shard) == 3
    for shard, found in by_shard.items():
        assert len({queue for queue, _ in found}) == 1, shard
        assert [body for _, body in found] == [b"%03d" % n for n in range(shard, 90, 3)]


def test_columns_delay_messages(session, brokers, engine):
    tomorrow = int(time.time() * 1000) + 86_400_000
    rows = [
        ("now", None, None, None),
        ("level", 18, None, None),
        ("in", None, 600_000, None),
        ("at", None, None, tomorrow),
    ]
    frame = session.createDataFrame(rows, "body string, delay_level int, delay_ms bigint, deliver_at_ms bigint")
    frame.coalesce(1).write.format("rocketbox").options(brokers=brokers, topic="Copies").mode("append").save()
    assert [bytes(row.body) for row in read(session, brokers, "Copies")] == [b"now"]

    def in_files() -> dict[bytes, Row]:
        store = session.read.format("rocketbox").options(
            store=engine.engine.config.store_dir, includeSystem="true", columns="body"
        ).load()  # fmt: skip
        return {bytes(row.body): row for row in store.where("topic != 'Copies'").collect() if row.body}

    wait_for(lambda: len(in_files()) == 3, "the queues' files, which are written behind the log")
    waiting = in_files()
    assert {body: row.topic for body, row in waiting.items()} == {
        b"level": "SCHEDULE_TOPIC_XXXX", b"in": "rmq_sys_wheel_timer", b"at": "rmq_sys_wheel_timer",
    }  # fmt: skip
    assert {row.properties["REAL_TOPIC"] for row in waiting.values()} == {"Copies"}
    assert waiting[b"level"].properties["DELAY"] == "18"


def test_a_stream_is_written_batch_by_batch(session, brokers, engine, tmp_path):
    engine.put("Orders", *[b"%d" % n for n in range(50)])
    rows = session.readStream.format("rocketbox").options(
        brokers=brokers, topic="Orders", columns="body", maxRowsPerTrigger=20
    ).load()  # fmt: skip
    stream = rows.select("body", "keys").writeStream.format("rocketbox").options(brokers=brokers, topic="Copies")
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    try:
        assert stream.awaitTermination(600)
    finally:
        stream.stop()
    assert sorted(int(bytes(row.body)) for row in read(session, brokers, "Copies")) == list(range(50))


@pytest.mark.parametrize(
    ("schema", "options", "sentence"),
    [
        ("key string", {"topic": "Orders"}, "from a column body"),
        ("body string, value string", {"topic": "Orders"}, "The column value cannot be written"),
        ("body int", {"topic": "Orders"}, "The column body is binary or string when it is written, not int"),
        ("body string", {}, "Each row needs one topic"),
        ("body string, topic string", {"topic": "Orders"}, "Each row needs one topic"),
        ("body string", {"topic": "Orders,Copies"}, "Each row needs one topic"),
        ("body string", {"topic": "Orders", "store": "/tmp", "brokers": ""}, "The files of a store cannot be written"),
        ("body string", {"topic": "Orders", "mode": "overwrite"}, "Messages cannot be overwritten"),
        ("body string", {"topic": "Orders", "maxBytesPerSecond": "9"}, "The option maxBytesPerSecond is for reading"),
    ],
)
def test_what_cannot_be_written_is_said_in_a_sentence(session, brokers, schema, options, sentence):
    options = {"brokers": brokers, **options}
    mode = options.pop("mode", "append")
    with pytest.raises(PySparkException, match=sentence):
        session.createDataFrame([], schema).write.format("rocketbox").options(**options).mode(mode).save()


def test_a_user_writes_by_tls(tmp_path):
    """As a task does it, without Spark."""
    certificate, key = make_pair(tmp_path, also=("127.0.0.1",))
    tls = {"tls_mode": "enforcing", "tls_cert_file": str(certificate), "tls_key_file": str(key)}
    first = Secret('{"username": "writer", "password": "what the writer knows"}')
    access = {"access_control": "enforce", "init_authentication_user": first}
    engine = RunningEngine(tmp_path / "data", broker=tls | access)
    try:
        servers = {"brokers": engine.engine.namesrv_address, "useTls": "true", "tlsCaFile": str(certificate)}
        user = {"accessKey": "writer", "secretKey": "what the writer knows"}
        schema = StructType().add("body", StringType())
        rows = [Row(body="one"), Row(body="two")]
        senders = [Sender(parse(servers | asked | {"topic": "Orders"}), schema, False) for asked in (user, {})]
        written, refused = (pickle.loads(pickle.dumps(sender)) for sender in senders)
        assert written.write(iter(rows)).messages == 2
        with pytest.raises(ClientError, match="credentials"):
            refused.write(iter(rows))
        stored = engine.window.messages.page("Orders").rows
        assert len(stored) == 2
    finally:
        engine.stop()


def test_each_row_is_a_message_though_the_broker_is_killed_meanwhile(tmp_path):
    """As a task does it, without Spark. What was confirmed before stays, and what was under way is sent again."""
    schema = StructType().add("body", StringType())
    with Server(tmp_path / "data") as server:
        sender = Sender(parse({"brokers": server.namesrv, "topic": "Orders"}), schema, False)

        def rows() -> Iterator[Row]:
            for number in range(6000):
                if number == 3000:
                    server.kill()
                    server.restart()
                yield Row(body=str(number))

        assert pickle.loads(pickle.dumps(sender)).write(rows()).messages == 6000
        server.stop()
        found = [int(row["body"]) for row in read_files(tmp_path / "data", topic="Orders", columns="body").rows]
    assert set(found) == set(range(6000))


class Flaky:
    """Stands in for a producer: the sends with these numbers do not reach a broker. stored: confirmed bodies."""

    def __init__(self, *lost: int) -> None:
        self.stored: list[str] = []
        self._lost = lost
        self._count = 0

    def submit(self, message: Message) -> Pending:
        self._count += 1
        promised: Pending = Pending()
        if self._count in self._lost or self._lost == ():
            promised.complete(None, NotConnected("away"))
        else:
            self.stored.append(message.body)
            promised.complete(None, None)
        return promised


def test_of_a_shard_the_last_copies_are_in_order(monkeypatch):
    monkeypatch.setattr(sink, "_PAUSE_S", 0)
    producer = Flaky(3, 7, 10)
    sending = sink._Sending(producer)
    rows = [("x", None), ("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a"), ("y", None), ("b2", "b"), ("a4", "a")]
    for body, shard in rows:
        sending.send(Message("T", body, shard=shard))
    sending.wait(0)
    last = [body for at, body in enumerate(producer.stored) if body not in producer.stored[at + 1 :]]
    assert sorted(last) == sorted(body for body, _ in rows)
    for shard in "ab":
        assert [body for body in last if body[0] == shard] == [body for body, of in rows if of == shard]
    assert producer.stored.count("x") == producer.stored.count("y") == 1


def pass_time_by_sleeping(monkeypatch):
    """Return the seconds that have passed for the sink, in a list. Other threads sleep as ever."""
    passed = [0.0]
    sleep = lambda seconds: passed.__setitem__(0, passed[0] + seconds)  # noqa: E731
    monkeypatch.setattr(sink, "time", SimpleNamespace(monotonic=lambda: passed[0], sleep=sleep))
    return passed


def test_a_broker_that_stays_away_fails_the_task(monkeypatch):
    passed = pass_time_by_sleeping(monkeypatch)
    for producer in (Flaky(), Flaky(*range(2, 1000))):
        passed[0] = 0.0
        sending = sink._Sending(producer)
        for body in ("one", "two"):
            sending.send(Message("T", body))
        with pytest.raises(NotConnected):
            sending.wait(0)
        assert passed[0] == sink.AWAY_S + sink._PAUSE_S


def test_time_without_rows_is_none_without_brokers(monkeypatch):
    passed = pass_time_by_sleeping(monkeypatch)
    producer = Flaky(1, 3)  # the broker is away when the first is sent, and when it is sent again
    sending = sink._Sending(producer)
    for body in ("one", "two", "three"):
        sending.send(Message("T", body))
        sending.wait(1)
        passed[0] += 2 * sink.AWAY_S
    sending.wait(0)
    assert sorted(producer.stored) == ["one", "three", "two"]


def test_a_row_without_a_body_fails_the_job(session, brokers):
    frame = session.createDataFrame([(None,)], "body string")
    out = frame.write.format("rocketbox").options(brokers=brokers, topic="Orders").mode("append")
    with pytest.raises(PySparkException, match="A row has no body") as failed:
        out.save()
    assert "Traceback" not in str(failed.value)


def test_a_server_that_is_not_there_is_named(monkeypatch):
    """As a task does it, without Spark, and with less patience."""
    monkeypatch.setattr(sink, "AWAY_S", 0.5)
    address = f"127.0.0.1:{reserve_port()}"
    sentence = f"^No name server answers: {address} cannot be .*[.] They were tried for 0.5 s[.] The option brokers has"
    sender = Sender(parse({"brokers": address, "topic": "Orders"}), StructType().add("body", StringType()), False)
    with pytest.raises(Unreachable, match=sentence) as failed:
        sender.write(iter([Row(body="x")]))
    assert "Client(" not in str(failed.value)
