"""A store with damage or wrong files: one sentence, or a warning, and nothing is harmed."""

import json
import os
import shutil
import time

import pytest

from appliance.engine.errors import StartError
from appliance.engine.protocol.codes import ResponseCode
from tests.support.engine import Peer, pull_fields, records, send_fields, start_engine
from tests.support.server import Server, ServerError
from tests.support.small_disk import NoSmallDisk, SmallDisk
from tests.support.waiting import wait_for

SMALL = {"mapped_file_size_commit_log": 256 * 1024, "max_message_size": 64 * 1024, "clean_resource_interval_ms": 100}
BODIES = [b"%d" % n * 2000 for n in range(40)]


def put(address, *bodies, topic="T"):
    peer = Peer(address)
    for body in bodies:
        assert peer.ask(310, send_fields(topic), body).code == 0
    peer.close()


def bodies(address, topic="T"):
    peer, found, offset = Peer(address), [], 0
    while True:
        answer = peer.ask(11, pull_fields(topic, 0, offset))
        if answer.code != 0:
            peer.close()
            return found
        found += [record.body for record in records(answer.body)]
        offset = int(answer.ext_fields["nextBeginOffset"])


@pytest.fixture
def data_dir(tmp_path):
    """A data directory with messages in it, stopped in order."""
    engine = start_engine(tmp_path / "data", store=SMALL)
    put(engine.broker_address, *BODIES)
    assert bodies(engine.broker_address) == BODIES
    peer = Peer(engine.broker_address)
    assert peer.ask(15, {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 5}).code == 0
    peer.close()
    engine.stop()
    return tmp_path / "data"


def tree(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def refusal(data_dir, **store):
    with pytest.raises(StartError) as caught:
        start_engine(data_dir, store=SMALL | store)
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    assert "Traceback" not in text
    return text


def served_as_before(data_dir, **store):
    engine = start_engine(data_dir, store=SMALL | store)
    try:
        assert bodies(engine.broker_address) == BODIES
        put(engine.broker_address, b"more")
        assert bodies(engine.broker_address) == [*BODIES, b"more"]
    finally:
        engine.stop()


def test_a_read_only_directory_is_named_and_left_as_it_is(tmp_path):
    try:
        with SmallDisk(tmp_path / "data", 112) as disk:
            environment = {"ROCKETBOX_STORE_MAPPED_FILE_SIZE_COMMIT_LOG": str(8 << 20)}
            server = Server(disk.path, environment=environment, prefix=disk.prefix)
            server.start()
            put(server.broker, b"a")
            server.stop()
            before = tree(disk.inside)
            disk.run(f'mount -o remount,ro "{disk.path}"')
            with pytest.raises(
                ServerError, match=r"rocketbox: The [^\n]* (is not writable|cannot be [^\n]*): Read-only"
            ):
                server.start()
            assert tree(disk.inside) == before
            disk.run(f'mount -o remount,rw "{disk.path}"')
            server.start()
            assert bodies(server.broker) == [b"a"]
            server.stop()
    except NoSmallDisk as error:
        pytest.skip(str(error))


def test_a_store_that_vanishes_takes_nothing_more_and_says_so(data_dir):
    engine = start_engine(data_dir, store=SMALL)
    try:
        os.rename(data_dir / "store", data_dir / "elsewhere")
        (data_dir / "store" / "commitlog").mkdir(parents=True)  # an unmounted disk leaves this behind
        wait_for(lambda: not engine.health()["store"]["ok"], "nobody noticed")
        assert "commitlog has vanished" in engine.health()["store"]["detail"]
        peer = Peer(engine.broker_address)
        answer = peer.ask(310, send_fields("T"), b"lost")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "has vanished" in answer.remark
        peer.close()
        assert list((data_dir / "store" / "commitlog").iterdir()) == []
    finally:
        engine.stop()
    shutil.rmtree(data_dir / "store")
    os.rename(data_dir / "elsewhere", data_dir / "store")
    served_as_before(data_dir)


def test_foreign_files_are_left_alone(data_dir):
    foreign = {}
    for place in ("", "commitlog", "consumequeue", "consumequeue/T", "consumequeue/T/0", "index", "config"):
        for name in ("notes.txt", ".DS_Store", "12", "0000000000000000000x", "000000000000000000000", "lost+found/x"):
            path = data_dir / "store" / place / name
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_bytes(b"somebody else's")
            foreign[path] = path.read_bytes()
    (data_dir / "rocketbox" / "notes.txt").write_bytes(b"mine")
    served_as_before(data_dir)
    assert {path: path.read_bytes() for path in foreign} == foreign


def test_a_newer_versions_files_are_not_touched(data_dir):
    (data_dir / "rocketbox" / "format").write_text("rocketbox 2\n")
    before = tree(data_dir)
    text = refusal(data_dir)
    assert "rocketbox was written by a newer version of RocketBox (format 2, this one knows 1)" in text
    assert tree(data_dir) == before
    (data_dir / "rocketbox" / "format").write_text("rocketbox 1\n")
    served_as_before(data_dir)


def test_a_store_from_before_the_mark_is_ours(data_dir):
    (data_dir / "rocketbox" / "format").unlink()
    served_as_before(data_dir)
    assert (data_dir / "rocketbox" / "format").read_text() == "rocketbox 1\n"


@pytest.mark.parametrize(
    "name",
    [
        "store/config/topics.json",
        "store/config/subscriptionGroup.json",
        "store/config/consumerOffset.json",
        "store/checkpoint",
        "store/lock",
        "rocketbox/recovery-position",
        "rocketbox/config.journal",
        "rocketbox/options.json",
        "rocketbox/deleted-topics.json",
        "rocketbox/purged-queues.json",
        "rocketbox/format",
        "rocketbox/queue-ledger-00000001",
        "rocketbox/settled-delays",
    ],
)
def test_a_file_of_no_bytes_is_as_good_as_none(data_dir, name):
    path = data_dir / name
    path.write_bytes(b"")
    engine = start_engine(data_dir, store=SMALL)
    try:
        put(engine.broker_address, b"more")  # makes the topic anew if the table's copy is older than it
        assert bodies(engine.broker_address) == [*BODIES, b"more"]
    finally:
        engine.stop()


def test_tables_of_no_bytes_with_copies_of_no_bytes_are_empty_tables(data_dir):
    for path in list((data_dir / "store" / "config").iterdir()):
        path.write_bytes(b"")
    engine = start_engine(data_dir, store=SMALL)
    try:
        put(engine.broker_address, b"more")  # makes the topic anew
        assert bodies(engine.broker_address) == [*BODIES, b"more"]
    finally:
        engine.stop()


def test_a_configuration_that_is_no_json_is_named_and_kept(data_dir):
    for name in ("topics.json", "topics.json.bak"):
        (data_dir / "store" / "config" / name).write_bytes(b'{"topicConfigTable":{"T":')
    before = tree(data_dir / "store" / "commitlog")
    text = refusal(data_dir)
    assert "topics.json is damaged and there is no good copy of it" in text
    assert tree(data_dir / "store" / "commitlog") == before


def test_a_log_file_of_another_size_is_named(data_dir):
    before = tree(data_dir / "store" / "commitlog")
    text = refusal(data_dir, mapped_file_size_commit_log=512 * 1024)
    assert "has 262144 bytes, but mappedFileSizeCommitLog is 524288: set it to the size" in text
    assert tree(data_dir / "store" / "commitlog") == before
    served_as_before(data_dir)


def test_a_missing_log_file_is_named(data_dir):
    engine = start_engine(data_dir, store=SMALL)
    put(engine.broker_address, *[b"x" * 60_000] * 12)
    engine.stop()
    files = sorted((data_dir / "store" / "commitlog").iterdir())
    assert len(files) > 3
    kept = files[1].read_bytes()
    files[1].unlink()
    text = refusal(data_dir)
    assert f"The commit log has a gap: {files[2].name} does not follow {files[0].name}" in text
    files[1].write_bytes(kept)
    engine = start_engine(data_dir, store=SMALL)
    assert bodies(engine.broker_address)[: len(BODIES)] == BODIES
    engine.stop()


def test_queue_files_of_another_size_are_named(data_dir):
    text = refusal(data_dir, mapped_file_size_consume_queue=2000)
    assert "has 6000000 bytes, but mappedFileSizeConsumeQueue is 2000" in text
    served_as_before(data_dir)


def test_a_directory_where_a_file_should_be_is_named(data_dir):
    journal = data_dir / "rocketbox" / "config.journal"
    journal.unlink()
    journal.mkdir()
    assert "config.journal" in refusal(data_dir)
    journal.rmdir()
    served_as_before(data_dir)


def test_a_clock_that_jumped_back_between_two_runs_keeps_order_and_everything(data_dir, monkeypatch):
    """Store times never go back, so searches by time still work; no message is older than the one before."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 400 * 86_400)
    engine = start_engine(data_dir, store=SMALL)
    put(engine.broker_address, b"later")
    peer = Peer(engine.broker_address)
    answer = peer.ask(11, pull_fields("T", 0, len(BODIES) - 1))
    times = [record.store_time_ms for record in records(answer.body)]
    assert len(times) == 2
    assert times == sorted(times)

    def found(ms):
        return int(peer.ask(29, {"topic": "T", "queueId": 0, "timestamp": ms}).ext_fields["offset"])

    assert found(times[-1]) <= len(BODIES)
    assert found(times[0] - 3_600_000) == 0, "an hour before them all, by a clock that is right"
    peer.close()
    assert bodies(engine.broker_address) == [*BODIES, b"later"]
    engine.stop()


def test_an_options_file_of_tomorrow_is_read_as_far_as_it_goes(data_dir):
    path = data_dir / "rocketbox" / "options.json"
    path.write_text(json.dumps({"store.fileReservedTime": "48", "store.somethingNew": "1", "broker.x": None}))
    engine = start_engine(data_dir, store=SMALL)
    try:
        assert engine.window.retention.snapshot().reserved_hours == 48
    finally:
        engine.stop()
    served_as_before(data_dir)
