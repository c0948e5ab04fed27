"""Apache goes on with a RocketBox store whose first files have expired, and RocketBox takes it back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.exchange.both_ways import BROKER_NAME, SIZES, conf, read_everything
from tests.support.apache import ApacheBroker
from tests.support.directories import shared_directory
from tests.support.engine import Peer, send_fields, start_engine
from tests.support.server import Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.nightly

TOPICS = {"Kept": 1, "Front": 1}
FILES_GONE = 3


@pytest.fixture(scope="module")
def namesrv(request: pytest.FixtureRequest) -> Iterator[str]:
    with Server(shared_directory(request, "namesrv") / "data", roles="namesrv") as server:
        yield server.namesrv


def put(broker: str, topic: str, first: int, count: int) -> None:
    peer = Peer(broker)
    for number in range(first, first + count):
        fields = send_fields(topic, 0, f"KEYS\x01k{number}\x02", d=1)
        answer = peer.ask(310, fields, b"%d." % number * 400)
        assert answer.code == 0, answer
    peer.close()


def wait(condition, what: str) -> None:
    wait_for(condition, what)


def fill_and_clean(data_dir: Path) -> None:
    """Write messages in six log files and delete the first three, which hold all messages of Front."""
    engine = start_engine(
        data_dir,
        store={
            "mapped_file_size_commit_log": SIZES["mappedFileSizeCommitLog"],
            "mapped_file_size_consume_queue": SIZES["mappedFileSizeConsumeQueue"],
            "max_message_size": SIZES["maxMessageSize"],
            "delete_commit_log_files_interval_ms": 0,
            "delete_consume_queue_files_interval_ms": 0,
        },
    )
    store = engine.broker.store
    try:
        put(engine.broker_address, "Front", 0, 110)
        put(engine.broker_address, "Kept", 0, 700)
        assert len(store.log.segments) > FILES_GONE + 2
        wait(
            lambda: (p := store.files.recovery_position.position) and p.offset == store.published,
            "the queue files are not written",
        )
        store.cleaner._count_expired = lambda now_ms, spans, limit: FILES_GONE - store.cleaner.status.log_files_deleted
        store.cleaner.request()
        wait(lambda: store.find_queue("Kept", 0).min_offset > 100, "the queues did not follow")
        wait(lambda: store.cleaner.status.queue_files_deleted > 0, "no queue file went")
    finally:
        engine.stop()


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_apache_opens_what_retention_left(namesrv: str, tmp_path: Path, version: str) -> None:
    fill_and_clean(tmp_path / "data")
    store = tmp_path / "data" / "store"
    names = sorted(path.name for path in (store / "commitlog").iterdir())
    assert int(names[0]) == FILES_GONE * SIZES["mappedFileSizeCommitLog"]

    where = {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
    ours = Server(tmp_path / "data", "-c", str(conf(tmp_path / "broker.conf", **where)), log_file_mib=None)
    ours.start()
    written = read_everything(ours.broker, TOPICS)
    assert written.queues["Front", 0] == (110, 110)
    low, high = written.queues["Kept", 0]
    assert high == 700
    assert len(written.records) == high - low
    ours.stop()

    apache = ApacheBroker(
        version, namesrv, scratch=tmp_path, heap="256m", broker_name=BROKER_NAME, config={**SIZES, **where}
    )
    with apache:
        served = read_everything(apache.address, {"Kept": 1})
        assert served.records == written.records
        assert served.queues["Kept", 0] == (low, high)
        put(apache.address, "Front", 110, 1)
        put(apache.address, "Kept", 700, 30)
        apache.kill()

    ours.start()
    back = read_everything(ours.broker, TOPICS)
    assert back.queues == {("Front", 0): (110, 111), ("Kept", 0): (low, 730)}
    assert {place: back.records[place] for place in written.records} == written.records
    ours.stop()
