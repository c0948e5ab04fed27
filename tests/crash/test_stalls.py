"""A process that stands still, a clock that jumps, a peer that is gone: nothing is lost, no request waits for ever."""

import os
import signal
import socket
import struct
import time

import pytest

from tests.crash.test_disk_faults import PULL, SEND, numbered, read_all, send, send_all, start_again
from tests.crash.test_disk_faults import faults as faults
from tests.crash.test_disk_faults import start as start
from tests.support.effort import NIGHTLY
from tests.support.engine import Peer, pull_fields, records, send_fields
from tests.support.standstill import stop_process
from tests.support.waiting import wait_for

TOPIC = "faults"


def test_a_process_that_was_stopped_goes_on_where_it_was(start, faults):
    """SIGSTOP with sends under way: each is answered once, in order, and a parked pull is woken."""
    server, peer = start()
    send_all(peer, ["first"])
    waiting = Peer(server.broker)
    parked = waiting.send(PULL, pull_fields(TOPIC, 0, 1, sysFlag=6, suspendTimeoutMillis=60_000))
    stop_process(server.pid)
    names = numbered("while it stood still", 50)
    fields = send_fields(TOPIC, properties="WAIT\x01true\x02")
    opaques = [peer.send(SEND, fields, name.encode()) for name in names]
    time.sleep(2)
    os.kill(server.pid, signal.SIGCONT)
    answers = [peer.receive() for _ in names]
    assert [answer.opaque for answer in answers] == opaques
    assert {answer.code for answer in answers} == {0}
    assert [int(answer.ext_fields["queueOffset"]) for answer in answers] == list(range(1, 51))
    woken = waiting.receive()
    assert (woken.opaque, woken.code) == (parked, 0)
    assert read_all(peer) == ["first", *names]
    assert read_all(start_again(server, faults)) == ["first", *names]


YEAR = 86_400 * 365
JUMPS = {"back": -90, "a year on": YEAR}
if NIGHTLY:
    JUMPS |= {"on": 90, "a year back": -YEAR}


@pytest.mark.parametrize("seconds", JUMPS.values(), ids=JUMPS)
def test_a_clock_that_jumps_costs_nothing(start, faults, seconds):
    """Store times never go back, sends and long polls are answered as before, a restart finds it all."""
    server, peer = start()
    send_all(peer, numbered("before", 5))
    faults.move_clock(seconds)
    send_all(peer, numbered("after", 20))
    held = peer.ask(PULL, pull_fields(TOPIC, 0, 25, sysFlag=6, suspendTimeoutMillis=1_000))
    assert held.code != 0  # nothing new: it was held for a second and answered
    times = store_times(peer)
    assert times == sorted(times)
    assert len(times) == 25
    faults.move_clock(0)
    send_all(peer, ["back in time"])
    everything = [*numbered("before", 5), *numbered("after", 20), "back in time"]
    assert read_all(peer) == everything
    faults.move_clock(seconds)
    assert read_all(start_again(server, faults)) == everything


def store_times(peer: Peer) -> list[int]:
    answer = peer.ask(PULL, pull_fields(TOPIC, 0, 0, sysFlag=4))
    return [record.store_time_ms for record in records(answer.body)]


def test_a_slow_sync_is_answered_as_slow_and_is_stored(start, faults):
    """Each sync takes longer than syncFlushTimeout: 10, FLUSH_DISK_TIMEOUT, and the message is there."""
    server, peer = start()
    send_all(peer, ["before"])
    faults.arm("sync", delay_ms=7_000, path="/commitlog/", times=1)
    assert send(peer, "slow") == 10
    assert faults.hits("sync") == 1
    wait_for(lambda: len(read_all(peer)) >= 2, "both to be there")
    assert read_all(start_again(server, faults)) == ["before", "slow"]


def test_peers_that_are_half_gone_hold_nobody_up(start):
    """Half a frame and silence, a closed writing side, a reset in the middle: others are served."""
    server, peer = start()
    host, _, port = server.broker.rpartition(":")
    half = [socket.create_connection((host, int(port))) for _ in range(20)]
    for number, connection in enumerate(half):
        connection.sendall(struct.pack(">i", 1000) + b"\0" * (number * 10))
        if number % 3 == 0:
            connection.shutdown(socket.SHUT_WR)
        elif number % 3 == 1:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()  # a reset
    send_all(peer, numbered("beside them", 50))
    assert read_all(peer) == numbered("beside them", 50)
    for connection in half:
        connection.close()
