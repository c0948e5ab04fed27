"""A disk that fails under the real process: no acknowledgement is false, whatever call fails and however often."""

from __future__ import annotations

import errno
import http.client
import json
import time
from collections.abc import Iterator

import pytest

from tests.support.engine import Peer, pull_fields, records, send_fields
from tests.support.faults import Faults
from tests.support.server import Server
from tests.support.waiting import wait_for

SEND, PULL, CREATE_TOPIC, MAX_OFFSET = 310, 11, 17, 30
SYSTEM_ERROR, SERVICE_NOT_AVAILABLE = 1, 14
TOPIC = "faults"
BEFORE, AFTER = 50, 200


@pytest.fixture
def faults(tmp_path) -> Faults:
    return Faults(tmp_path)


@pytest.fixture
def start(tmp_path, faults) -> Iterator:
    """start("--flush", "async", ...) -> (server, a connection to its broker)."""
    running: list[Server] = []
    settings = tmp_path / "settings.toml"
    settings.write_text("[store]\nmappedFileSizeCommitLog = 1048576\nmaxMessageSize = 524288\n")

    def start(*arguments: str, roles: str = "broker,namesrv") -> tuple[Server, Peer]:
        arguments = ("-c", str(settings), *arguments)
        server = Server(tmp_path / "data", *arguments, roles=roles, environment=faults.environment, log_file_mib=None)
        running.append(server)
        server.start()
        return server, Peer(server.broker)

    yield start
    for server in running:
        server.kill()


def send(peer: Peer, name: str, topic: str = TOPIC) -> int:
    """The answer's code."""
    return peer.ask(SEND, send_fields(topic, properties="WAIT\x01true\x02"), name.encode()).code


def send_all(peer: Peer, names: list[str]) -> None:
    assert {send(peer, name) for name in names} == {0}


def numbered(what: str, count: int) -> list[str]:
    return [f"{what} {number}" for number in range(count)]


def read_all(peer: Peer, topic: str = TOPIC) -> list[str]:
    """Every body of queue 0; offsets must be dense."""
    found: list[str] = []
    while True:
        answer = peer.ask(PULL, pull_fields(topic, 0, len(found), sysFlag=4))
        if answer.code != 0:
            return found
        for record in records(answer.body):
            assert record.queue_offset == len(found)
            found.append(record.body.decode())


def start_again(server: Server, faults: Faults) -> Peer:
    """Kill it, let the disk be well, start."""
    server.kill()
    faults.disarm()
    server.start()
    return Peer(server.broker)


def readiness(server: Server) -> tuple[int, dict[str, str]]:
    """(status of /readyz, its checks)."""
    connection = http.client.HTTPConnection(server.ready["http"], timeout=60)
    connection.request("GET", "/readyz")
    response = connection.getresponse()
    checks = json.loads(response.read())["checks"]
    connection.close()
    return response.status, checks


@pytest.mark.parametrize("times", [-1, 1], ids=["always", "once"])
@pytest.mark.parametrize(
    ("call", "error"), [("sync", errno.EIO), ("write", errno.EIO), ("write", errno.ENOSPC)],
    ids=["sync EIO", "write EIO", "write ENOSPC"],
)  # fmt: skip
def test_after_a_failed_call_nothing_is_acknowledged(start, faults, call, error, times):
    """Also when it fails once only: the next sync would say that all is well, and the kernel has dropped the page."""
    server, peer = start()
    before = numbered("before", BEFORE)
    send_all(peer, before)
    faults.arm(call, error=error, path="/commitlog/", times=times)
    codes = [send(peer, name) for name in numbered("after", AFTER)]
    assert faults.hits(call) >= 1
    assert codes == [SERVICE_NOT_AVAILABLE] * AFTER
    assert read_all(peer) == before
    said = server.log_path.read_text()
    assert "commit log: read-only from now on" in said
    assert {errno.EIO: "Input/output error", errno.ENOSPC: "No space left on device"}[error] in said
    peer = start_again(server, faults)
    recovered = read_all(peer)
    assert recovered[:BEFORE] == before
    assert recovered[BEFORE:] == numbered("after", AFTER)[: len(recovered) - BEFORE]
    send_all(peer, ["again"])
    assert read_all(peer) == [*recovered, "again"]


def test_health_says_that_the_log_is_read_only_until_a_restart(start, faults):
    server, peer = start("--http-port", "0", roles="broker,namesrv,console")
    send_all(peer, ["before"])
    assert readiness(server)[0] == 200
    faults.arm("sync", error=errno.EIO, path="/commitlog/", times=1)
    assert send(peer, "after") == SERVICE_NOT_AVAILABLE
    status, checks = readiness(server)
    assert status == 503
    assert checks["store"] != "ok"
    start_again(server, faults)
    status, checks = readiness(server)
    assert (status, checks["store"]) == (200, "ok")


def test_in_asynchronous_flush_nothing_is_acknowledged_once_the_sync_has_failed(start, faults):
    server, peer = start("--flush", "async")
    before = numbered("before", BEFORE)
    send_all(peer, before)
    faults.arm("sync", error=errno.EIO, path="/commitlog/")
    deadline = time.monotonic() + 60
    sent = list(before)
    while (code := send(peer, f"after {len(sent)}")) == 0:
        sent.append(f"after {len(sent)}")
        assert time.monotonic() < deadline, "the sync every 500 ms never failed"
        time.sleep(0.01)
    assert code == SERVICE_NOT_AVAILABLE
    assert {send(peer, "refused") for _ in range(AFTER)} == {SERVICE_NOT_AVAILABLE}
    assert read_all(peer) == sent
    assert read_all(start_again(server, faults))[:BEFORE] == before


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_writes_that_fall_short_are_completed(start, faults, flush):
    """Every file of the process, 7 bytes a call: log, queues, journal, tables."""
    server, peer = start("--flush", flush)
    faults.arm("write", limit=7, path=str(server.data_dir))
    assert peer.ask(CREATE_TOPIC, topic_fields("made")).code == 0
    names = numbered("piece by piece", 30)
    send_all(peer, names)
    wait_for(lambda: faults.hits("write") > 100, "queue files and tables to be written behind")
    assert "ERROR" not in server.log_path.read_text()
    peer = start_again(server, faults)
    assert read_all(peer) == names
    assert send(peer, "there", topic="made") == 0


def test_a_disk_without_room_for_the_next_file_refuses_and_comes_back(start, faults):
    server, peer = start()
    faults.arm("allocate", error=errno.ENOSPC, path="/commitlog/")
    kept: list[str] = []
    while True:
        name = f"{len(kept)} " + "x" * 50_000
        answer = peer.ask(SEND, send_fields(TOPIC, properties="WAIT\x01true\x02"), name.encode())
        if answer.code != 0:
            break
        kept.append(name)
        assert len(kept) < 100
    assert answer.code == SERVICE_NOT_AVAILABLE
    assert "No space left on device" in str(answer.remark)
    assert read_all(peer) == kept
    faults.disarm()
    wait_for(lambda: send(peer, "there is room") == 0, "it does not come back by itself")
    assert read_all(start_again(server, faults)) == [*kept, "there is room"]


@pytest.mark.parametrize(("call", "error"), [("sync", errno.EIO), ("write", errno.ENOSPC)], ids=["sync", "write"])
def test_queue_files_that_fail_cost_no_message(start, faults, call, error):
    """The log has it all: the queues' recovery position stays where it was, and a start builds on from there."""
    server, peer = start()
    send_all(peer, numbered("before", BEFORE))
    faults.arm(call, error=error, path="/consumequeue/")
    send_all(peer, numbered("after", AFTER))
    wait_for(lambda: faults.hits(call), "it to be seen")
    send_all(peer, numbered("later", AFTER))
    everything = [*numbered("before", BEFORE), *numbered("after", AFTER), *numbered("later", AFTER)]
    assert read_all(peer) == everything
    assert read_all(start_again(server, faults)) == everything


@pytest.mark.parametrize(("call", "error"), [("sync", errno.EIO), ("write", errno.ENOSPC)], ids=["sync", "write"])
def test_a_configuration_that_is_not_saved_is_the_error_of_who_asked(start, faults, call, error):
    server, peer = start()
    assert peer.ask(CREATE_TOPIC, topic_fields("before")).code == 0
    faults.arm(call, error=error, path="config.journal")
    answer = peer.ask(CREATE_TOPIC, topic_fields("after"))
    assert faults.hits(call) >= 1
    assert answer.code == SYSTEM_ERROR
    assert {errno.EIO: "Input/output error", errno.ENOSPC: "No space left on device"}[error] in str(answer.remark)
    assert send(peer, "goes on", topic="before") == 0
    peer = start_again(server, faults)
    assert peer.ask(MAX_OFFSET, {"topic": "before", "queueId": 0}).ext_fields["offset"] == "1"


def topic_fields(topic: str) -> dict[str, object]:
    return {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
