"""Peers have taken all the descriptors that they may: the store goes on, and new peers are refused."""

import os
import socket
import time
from pathlib import Path

import pytest

from appliance.engine.remoting.server import RESERVED_DESCRIPTORS
from appliance.engine.store.queues.consume_queue_table import descriptors_below
from tests.support.engine import Peer, pull_fields, records, send_fields
from tests.support.server import Server
from tests.support.waiting import wait_for

LIMIT = 400
TOPICS, QUEUES = 40, 4
BODY = os.urandom(60_000)
ENVIRONMENT = {
    "ROCKETBOX_STORE_MAPPED_FILE_SIZE_COMMIT_LOG": str(1 << 20),
    "ROCKETBOX_STORE_MAX_MESSAGE_SIZE": str(1 << 17),
    "ROCKETBOX_STORE_MAX_HASH_SLOT_NUM": "5000",
    "ROCKETBOX_STORE_MAX_INDEX_NUM": "100",
    "ROCKETBOX_BROKER_FLUSH_CONSUMER_OFFSET_INTERVAL": "500",
}


@pytest.fixture
def server(tmp_path):
    prefix = ("bash", "-c", f'ulimit -n {LIMIT} && exec "$0" "$@"')
    with Server(tmp_path / "data", environment=ENVIRONMENT, prefix=prefix) as server:
        yield server


def descriptors(server):
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def is_refused(address):
    host, port = address.split(":")
    try:
        with socket.create_connection((host, int(port)), timeout=60) as sock:
            sock.settimeout(0.3)
            return sock.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def fill(server):
    """Connect to all ports, until no further connection is taken."""
    taken = []
    addresses = [server.broker, server.namesrv]
    for number in range(LIMIT):
        host, port = addresses[number % 2].split(":")
        taken.append(socket.create_connection((host, int(port)), timeout=60))
    wait_for(lambda: is_refused(server.broker) and is_refused(server.namesrv), "new peers are not refused")
    return taken


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_store_opens_files_when_peers_have_taken_all_they_may(server):
    early = Peer(server.broker)
    taken = fill(server)
    assert descriptors(server) <= LIMIT - LIMIT // 2 + 20
    sent = {}
    for number in range(TOPICS):
        topic = f"T{number}"
        for queue_id in range(QUEUES):
            body = BODY[:: -1 if number % 2 else 1] + b"%d" % queue_id
            assert early.ask(310, send_fields(topic, queue_id, f"KEYS\x01k{number}\x02"), body).code == 0
            sent[topic, queue_id] = body
        assert early.ask(11, pull_fields(topic, 0, 0)).code == 0
        fields = {"consumerGroup": "CG", "topic": topic, "queueId": 0, "commitOffset": 1}
        assert early.ask(15, fields).code == 0
    store = server.data_dir / "store"
    assert len(list((store / "commitlog").iterdir())) >= 9
    wait_for(lambda: len(list(store.glob("consumequeue/*/*/*"))) == TOPICS * QUEUES, "queue files are missing")
    for name, wanted in ("topics", f'"T{TOPICS - 1}"'), ("consumerOffset", f"T{TOPICS - 1}@CG"):
        path = store / "config" / f"{name}.json"
        wait_for(lambda path=path, wanted=wanted: path.exists() and wanted in path.read_text(), f"no {name}")
    wait_for(lambda: is_refused(server.broker), "a new peer is not refused")

    def check(peer):
        for (topic, queue_id), body in sent.items():
            (record,) = records(peer.ask(11, pull_fields(topic, queue_id, 0)).body)
            assert record.body == body

    check(early)
    before = cpu_seconds(server.pid)
    time.sleep(2)
    assert cpu_seconds(server.pid) - before < 0.5, "it spins"
    for sock in taken:
        sock.close()
    wait_for(lambda: not is_refused(server.broker), "it goes on refusing")
    check(Peer(server.broker))
    said = server.log_path.read_text()
    assert "Too many open files" not in said
    assert 1 <= said.count("closed a new connection") <= 12
    server.kill()
    server.start()
    check(Peer(server.broker))


@pytest.mark.parametrize("limit", [256, 1024, 4096, 20_000, 1 << 20])
def test_what_the_store_may_open_fits_what_is_kept_back(limit):
    reserve = min(RESERVED_DESCRIPTORS, limit // 2)
    own = descriptors_below(limit)
    # Reading and writing side; cleaner, repair, time search; some for the log, the index, tables and HTTP.
    assert 2 * own + 3 * min(64, own) + 32 <= reserve
