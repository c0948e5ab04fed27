"""Brokers of both kinds in one set: who follows whom, byte for byte, and read from the slave."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.exchange.both_ways import missing_keys, read_everything
from tests.support.apache import VERSIONS, ApacheBroker, ApacheRocketMQ
from tests.support.directories import shared_directory
from tests.support.engine import Peer, RunningEngine, send_fields
from tests.support.ports import reserve_port
from tests.support.set_of_brokers import log_of as log_of_ours
from tests.support.set_of_brokers import start_slave
from tests.support.waiting import wait_for

FILE = 1 << 20
SIZES = {"mappedFileSizeCommitLog": FILE, "diskMaxUsedSpaceRatio": 95, "maxMessageSize": 65_536}
#: A 5.3.3 slave asks for its tables for the first time when it is a minute old.
TABLES_S = 90


def log_of(directory: Path, end: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((directory / "commitlog").iterdir()))[:end]


@pytest.fixture(scope="module", autouse=True)
def followed(request: pytest.FixtureRequest) -> Iterator[dict[str, tuple[Path, RunningEngine, ApacheBroker]]]:
    """Apache's version -> directory, master of ours, and the slave of that version. They begin before all tests, and
    the last tests look at them: the slave's tables come late."""
    found = {}
    with ExitStack() as stack:
        for version in VERSIONS:
            directory = shared_directory(request, version)
            store = {"ha_listen_port": reserve_port(), "mapped_file_size_commit_log": FILE, "max_message_size": 65_536}
            master = RunningEngine(directory, store=store)
            stack.callback(master.stop)
            for n in range(60):
                master.put("Orders", b"%d " % n * 8000, queue=n % 4)
            master.hang_up()  # a connection that is silent for long is closed
            slave = ApacheBroker(
                version, master.engine.namesrv_address, broker_id=1, config=SIZES | {"slaveReadEnable": True}
            )
            found[version] = directory, master, stack.enter_context(slave)
        yield found


def fill(peer: Peer, count: int, begin: int = 0) -> None:
    for n in range(begin, begin + count):
        properties = f"KEYS\x01key{n}\x02UNIQ_KEY\x01{n:032X}\x02"
        assert peer.ask(310, send_fields("Orders", n % 4, properties), b"%d " % n * 4000).code == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_our_slave_follows_an_apache_master_byte_for_byte(tmp_path, version):
    topics = {"Orders": 4}
    with ApacheRocketMQ(version, config=SIZES) as apache:
        peer = Peer(apache.broker)

        def end_there() -> int:
            return int(json.loads(peer.ask(28, {}).body)["table"]["commitLogMaxOffset"])

        fill(peer, 40)
        slave = start_slave(tmp_path, apache.namesrv)
        try:
            for step in range(4):
                follower = slave.engine.broker.follower
                log = slave.engine.broker.store.log
                # Apache's 4.9.7 answers 28 with nothing for a moment after a start.
                wait_for(lambda: log.written == end_there(), "the whole log", not_yet=(KeyError, ValueError))  # noqa: B023
                theirs = log_of(apache.broker_server.store_dir, log.written)
                assert log_of_ours(slave) == theirs
                if step == 1:
                    slave.restart()
                elif step == 2:
                    apache.broker_server.kill()
                    wait_for(lambda: follower.follower.status.why_not, "it to notice")  # noqa: B023
                    apache.broker_server.launch()
                    apache.broker_server.wait_until_ready()
                    peer.close()
                    peer = Peer(apache.broker)
                fill(peer, 40, 40 * (step + 1))
            wait_for(lambda: log.written == end_there(), "the whole log", not_yet=(KeyError, ValueError))
            assert log.written > 2 * FILE
            wait_for(lambda: follower.sync.failure is None and slave.engine.broker.topics.get("Orders"), "the tables")
            content = read_everything(apache.broker, topics)
            assert len(content.records) == 200
            assert read_everything(slave.engine.broker_address, topics) == content
            assert missing_keys(slave.engine.broker_address, content) == []
        finally:
            slave.stop()
            peer.close()


@pytest.mark.nightly
def test_an_empty_slave_of_an_apache_master_begins_with_its_last_file(tmp_path):
    """All that such a master gives. Its queues begin in their midst, here and after a restart."""
    with ApacheRocketMQ("5.3.3", config=SIZES) as apache:
        peer = Peer(apache.broker)
        fill(peer, 130)
        slave = start_slave(tmp_path, apache.namesrv)
        try:
            for _ in range(2):
                log = slave.engine.broker.store.log
                wait_for(
                    lambda: log.written == int(json.loads(peer.ask(28, {}).body)["table"]["commitLogMaxOffset"]),  # noqa: B023
                    "the whole log", not_yet=(KeyError, ValueError),
                )  # fmt: skip
                assert log.min_offset == FILE
                assert log_of_ours(slave) == log_of(apache.broker_server.store_dir, log.written)[FILE:]
                wait_for(lambda: slave.engine.broker.topics.get("Orders"), "the tables")
                here = read_everything(slave.engine.broker_address, {"Orders": 4})
                there = read_everything(apache.broker, {"Orders": 4})
                assert len(here.records) > 30
                assert all(there.records[place] == record for place, record in here.records.items())
                for place, (low, high) in here.queues.items():
                    assert high == there.queues[place][1]
                    assert low == high - sum(at[:2] == place for at in here.records)
                slave.restart()
        finally:
            slave.stop()
            peer.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_apache_slave_follows_us_byte_for_byte(followed, version):
    directory, master, slave = followed[version]
    replication = master.engine.broker.replication
    log = master.engine.broker.store.log

    def has_all() -> bool:
        return any(one.acknowledged == log.written for one in replication.slaves)

    wait_for(has_all, "the slave to have what was there")
    for n in range(60, 80):
        master.put("Orders", b"%d " % n * 8000, queue=n % 4)
    wait_for(has_all, "the slave to have what came")
    assert log.written > FILE
    assert log_of(slave.store_dir, log.written) == log_of(directory / "store", log.written)
    topics = {"Orders": 4}
    wait_for(
        lambda: read_everything(slave.address, topics) == read_everything(master.engine.broker_address, topics),
        "the slave to serve what the master serves",
        TABLES_S,
        not_yet=(AssertionError,),
    )
    # Cut off and back, with records in between.
    slave.kill()
    wait_for(lambda: not replication.slaves, "the dead slave to go")
    master.put("Orders", *[b"meanwhile %d" % n for n in range(50)])
    slave.launch()
    slave.wait_until_ready()
    wait_for(has_all, "the slave to catch up")
    assert log_of(slave.store_dir, log.written) == log_of(directory / "store", log.written)
