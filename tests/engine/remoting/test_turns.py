"""Frames that take long: a connection's turn ends, others come, and none of its frames is lost or out of order."""

import socket
import struct
import threading

import pytest

from appliance.engine.protocol.command import FLAG_ONEWAY, RemotingCommand
from appliance.engine.remoting import connection as connection_module
from appliance.engine.remoting import server as server_module
from appliance.engine.remoting.connection import TURN_S
from appliance.engine.remoting.event_loop import RECEIVE_BUFFER_BYTES
from appliance.engine.remoting.server import PRESSURE_READ_BYTES, TURNS_S
from tests.support.clock import FakeClock
from tests.support.engine import Peer, pull_fields, send_fields, start_engine
from tests.support.remoting import ECHO, HOT, Rig, request
from tests.support.waiting import wait_for

TAKES_A_MILLISECOND = 9
ECHO_FRAME = request(ECHO)


class Turns(Rig):
    """A server whose clock only moves for requests that take a millisecond; `handled` lists the handled ones."""

    def __init__(self):
        self.clock = FakeClock()
        super().__init__(self.clock)
        self.handled = []
        self.ticks = 0
        self.meanwhile = {}
        self.loop.at_tick_end(self._count)
        self.server._listeners[0].dispatcher.add(TAKES_A_MILLISECOND, self._take)

    def _count(self):
        self.ticks += 1

    def _take(self, request, conn):
        self.clock.advance(1)
        self.handled.append(request.ext_fields["n"])
        self.meanwhile.pop(request.ext_fields["n"], lambda: None)()
        return RemotingCommand.response(0, ext=dict(request.ext_fields))

    def echo(self, request, conn):
        self.handled.append("echo")
        return super().echo(request, conn)

    def together(self, *sends):
        """Let the loop see all of it at once. A peer that is not accepted yet would come a tick later."""
        peers = {id(peer) for peer, _ in sends}
        wait_for(lambda: len(self.server.connections) >= len(peers), "the peers are accepted")
        held, go = threading.Event(), threading.Event()
        self.loop.call_soon(lambda: (held.set(), go.wait(60)))
        assert held.wait(60)
        for peer, data in sends:
            peer.send_bytes(data)
        go.set()

    def held(self):
        return self.server._partial_total


@pytest.fixture
def rig():
    rig = Turns()
    yield rig
    rig.stop()


def slow(name, count, body=b""):
    """Return the frames of `count` requests that take a millisecond each."""
    return b"".join(request(TAKES_A_MILLISECOND, opaque=n, body=body, n=f"{name}{n}") for n in range(count))


def test_a_turn_is_short():
    assert TURN_S <= 0.001 and TURNS_S <= 0.001  # noqa: PT018


def test_connections_take_turns_and_each_is_answered_in_order(rig):
    peers = {name: rig.peer() for name in "abc"}
    rig.together(*((peer, slow(name, 20)) for name, peer in peers.items()))
    for peer in peers.values():
        assert [peer.receive().opaque for _ in range(20)] == list(range(20))
    for begin in range(0, 60, 3):
        assert len({name[1:] for name in rig.handled[begin : begin + 3]}) == 1, rig.handled
    assert rig.held() == 0


def test_who_asks_in_the_middle_of_it_is_answered_first(rig):
    peers = {name: rig.peer() for name in "abcdefghij"}
    one = rig.peer()
    rig.meanwhile["a3"] = lambda: one.send(ECHO)
    rig.together(*((peer, slow(name, 20)) for name, peer in peers.items()))
    assert one.receive().code == 0
    for peer in peers.values():
        assert [peer.receive().opaque for _ in range(20)] == list(range(20))
    # It comes in the next tick.
    assert rig.handled.index("echo") - rig.handled.index("a3") <= 2, rig.handled


def test_many_that_have_something_to_read_share_the_tick(rig, monkeypatch):
    """With a turn for each of many connections a tick would be long, so they have one frame each."""
    monkeypatch.setattr(connection_module, "TURN_S", 0.010)
    monkeypatch.setattr(connection_module, "LONG_TICK_S", 0.030)
    peers = {f"{name}-": rig.peer() for name in range(20)}
    one = rig.peer()
    seen = {}
    rig.meanwhile["0-0"] = lambda: seen.update(first=rig.ticks)
    rig.loop.at_tick_end(lambda: seen.setdefault(rig.ticks, len(rig.handled)))
    rig.together(*((peer, slow(name, 15)) for name, peer in peers.items()), (one, ECHO_FRAME))
    assert one.receive().code == 0
    for peer in peers.values():
        assert [peer.receive().opaque for _ in range(15)] == list(range(15))
    for name in peers:
        assert [n for n in rig.handled if n.startswith(name)] == [f"{name}{n}" for n in range(15)]
    assert rig.handled.index("echo") <= 3 * 10 + 17, rig.handled
    assert seen[seen["first"] + 1] <= 3 * 10 + 17 + 1 + 10
    wait_for(lambda: rig.held() == 0, "nothing is held")


def test_what_takes_no_time_is_handled_in_one_tick(rig):
    peer = rig.peer()
    peer.ask(ECHO)
    before = rig.ticks
    rig.together((peer, b"".join(request(ECHO, opaque=n) for n in range(200))))
    assert [peer.receive().opaque for _ in range(200)] == list(range(200))
    assert rig.ticks - before <= 3


def test_a_frame_that_is_not_whole_waits_behind_the_turn(rig):
    peer = rig.peer()
    frames = slow("p", 5)
    last = request(ECHO, opaque=77, body=b"x" * 3000)
    for cut in (2, 6, 100, len(last) - 1):
        rig.handled.clear()
        rig.together((peer, frames + last[:cut]))
        assert [peer.receive().opaque for _ in range(5)] == list(range(5))
        assert rig.handled == [f"p{n}" for n in range(5)]
        peer.send_bytes(last[cut:])
        assert peer.receive().opaque == 77
    wait_for(lambda: rig.held() == 0, "nothing is held")


def test_a_bad_frame_behind_the_turn_is_refused_when_it_is_reached(rig):
    peer = rig.peer()
    rig.together((peer, slow("p", 5) + struct.pack(">iI", -1, 0)))
    *answers, refusal = peer.receive_all()
    assert [answer.opaque for answer in answers] == list(range(5))
    assert "bad frame" in refusal.remark
    assert rig.held() == 0


def test_who_has_nothing_more_to_say_gets_all_its_answers(rig):
    peer = rig.peer()
    rig.together((peer, slow("p", 30)))
    peer.sock.shutdown(socket.SHUT_WR)
    assert [answer.opaque for answer in peer.receive_all()] == list(range(30))
    assert len(rig.closed) == 1


def reset(peer):
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


@pytest.mark.parametrize("codec", [0, 1])
def test_what_was_sent_one_way_before_a_hang_up_counts(rig, codec):
    """A client that stops sends its offsets and closes, with an answer or a notice of ours still unread."""
    peer, other = rig.peer(), rig.peer()
    frames = [
        request(TAKES_A_MILLISECOND, codec=codec, flag=0 if n % 3 == 0 else FLAG_ONEWAY, n=f"p{n}") for n in range(60)
    ]
    rig.meanwhile["p0"] = lambda: reset(peer)
    rig.together((peer, b"".join(frames)), (other, slow("o", 20)))
    assert [other.receive().opaque for _ in range(20)] == list(range(20))
    wait_for(lambda: rig.closed, "the connection is closed")
    assert [n for n in rig.handled if n.startswith("p")] == ["p0", *(f"p{n}" for n in range(60) if n % 3)]
    assert rig.held() == 0


@pytest.mark.parametrize("why", ["rests", "takes no answers"])
def test_what_was_sent_one_way_counts_while_nothing_is_dispatched(rig, why):
    peer = rig.peer()
    if why == "rests":
        rig.meanwhile["p0"] = lambda: next(iter(rig.server.connections.values())).rest(3600.0)
        first = slow("p", 1)
    else:
        first = request(ECHO, body=bytes(14 << 20))
    offsets = [request(TAKES_A_MILLISECOND, flag=FLAG_ONEWAY, n=f"offset {n}") for n in range(5)]
    peer.send_bytes(first + slow("a", 3) + b"".join(offsets))
    [conn] = wait_for(lambda: list(rig.server.connections.values()), "the peer is accepted")
    wait_for(lambda: conn.halted, "nothing is dispatched")
    reset(peer)
    wait_for(lambda: rig.closed, "the connection is closed")
    assert [n for n in rig.handled if n.startswith("o")] == [f"offset {n}" for n in range(5)]
    assert rig.held() == 0


def hang_up_behind(rig, first, waits):
    """Have a peer send `first` and one-way offsets, and hang up when `waits(conn)`. Return its connection."""
    peer = rig.peer()
    [conn] = wait_for(lambda: list(rig.server.connections.values()), "the peer is accepted")
    offsets = [request(TAKES_A_MILLISECOND, flag=FLAG_ONEWAY, n=f"offset {n}") for n in range(5)]
    peer.send_bytes(first + slow("a", 2) + b"".join(offsets))
    wait_for(lambda: waits(conn), "it waits")
    reset(peer)
    return conn


OFFSETS = [f"offset {n}" for n in range(5)]


def test_offsets_behind_a_send_that_back_pressure_holds_count(rig):
    rig.loop.call_soon(lambda: rig.server.hold_producers(True))
    hang_up_behind(rig, request(HOT, a="1"), lambda conn: conn in rig.server.held_back)
    wait_for(lambda: rig.closed, "the connection is closed")
    assert rig.server.producers_held
    assert rig.handled == OFFSETS
    assert (rig.hot_calls, rig.held(), rig.server.held_back) == (0, 0, {})


def test_a_one_way_send_of_who_hung_up_waits_for_the_end_of_back_pressure(rig):
    """It may not be stored before, and the offsets behind it keep their place."""
    rig.loop.call_soon(lambda: rig.server.hold_producers(True))
    send = request(HOT, flag=FLAG_ONEWAY, a="1")
    conn = hang_up_behind(rig, send, lambda conn: conn in rig.server.held_back)
    wait_for(lambda: not rig.loop._is_watched(conn.fd), "the hang-up does not wake the loop")
    assert (rig.hot_calls, rig.handled, rig.closed) == (0, [], [])
    rig.loop.call_soon(lambda: rig.server.hold_producers(False))
    wait_for(lambda: rig.closed, "the connection is closed")
    assert (rig.hot_calls, rig.handled, rig.held()) == (1, OFFSETS, 0)


def test_offsets_that_wait_while_a_port_is_paused_count_after_it(rig):
    """A broker's port is paused while its role changes."""
    dispatcher = rig.server._listeners[0].dispatcher

    def pause(paused):
        dispatcher.paused = paused
        rig.server.update_reading()

    rig.meanwhile["p0"] = lambda: pause(True)
    conn = hang_up_behind(rig, slow("p", 1), lambda conn: dispatcher.paused and rig.held())
    wait_for(lambda: not rig.loop._is_watched(conn.fd), "the hang-up does not wake the loop")
    assert (rig.handled, rig.closed) == (["p0"], [])
    rig.loop.call_soon(lambda: pause(False))
    wait_for(lambda: rig.closed, "the connection is closed")
    assert (rig.handled, rig.held()) == (["p0", *OFFSETS], 0)


def test_who_hung_up_while_a_port_is_paused_is_closed_at_a_stop(rig):
    dispatcher = rig.server._listeners[0].dispatcher
    rig.meanwhile["p0"] = lambda: setattr(dispatcher, "paused", True)
    conn = hang_up_behind(rig, slow("p", 1), lambda conn: dispatcher.paused and rig.held())
    wait_for(lambda: not rig.loop._is_watched(conn.fd), "the hang-up does not wake the loop")
    rig.loop.call_soon(rig.server.close_all)
    wait_for(lambda: rig.closed, "the connection is closed")
    assert rig.held() == 0


def test_what_arrives_between_an_answer_and_a_hang_up_counts(rig):
    """The answer cannot be sent; what is in the socket is read first."""
    peer = rig.peer()

    def stop():
        peer.send_bytes(request(TAKES_A_MILLISECOND, flag=FLAG_ONEWAY, n="offsets") + ECHO_FRAME)
        reset(peer)

    rig.meanwhile["p0"] = stop
    rig.together((peer, slow("p", 1)))
    wait_for(lambda: rig.closed, "the connection is closed")
    assert rig.handled == ["p0", "offsets"]


@pytest.mark.parametrize("size", [100, 100_000], ids=["pieces", "file"])
def test_offsets_behind_pulls_that_cannot_be_answered_count(tmp_path, size):
    """Pulls are answered at once, whichever twin takes them, not at the end of the tick."""
    engine = start_engine(tmp_path, store={"flush_disk_type": "ASYNC_FLUSH"})
    try:
        peer, other = Peer(engine.broker_address), Peer(engine.broker_address)
        for queue in range(4):
            assert peer.ask(310, send_fields("T", queue), bytes(size)).code == 0
        here = peer.sock.getsockname()[1]
        [conn] = [one for one in engine.server.connections.values() if one.remote_host.endswith(f":{here}")]
        held, go = threading.Event(), threading.Event()
        engine.loop.call_soon(lambda: (held.set(), go.wait(60)))
        assert held.wait(60)
        for queue in range(4):
            peer.send(11, pull_fields("T", queue, 0))
        peer.send(15, {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 1}, flag=FLAG_ONEWAY)
        reset(peer)
        go.set()
        wait_for(lambda: conn.closed, "the connection is closed")
        assert other.ask(14, {"consumerGroup": "CG", "topic": "T", "queueId": 0}).ext_fields == {"offset": "1"}
        other.close()
    finally:
        engine.stop()


def test_who_hangs_up_in_the_middle_of_a_turn_costs_nothing_more(rig):
    peer, other = rig.peer(), rig.peer()
    rig.meanwhile["p3"] = lambda: reset(peer)
    rig.together((peer, slow("p", 500)), (other, slow("o", 20)))
    assert [other.receive().opaque for _ in range(20)] == list(range(20))
    wait_for(lambda: rig.closed, "the connection is closed")
    assert 4 <= sum(name.startswith("p") for name in rig.handled) <= 6
    assert rig.held() == 0


def test_a_handler_that_closes_its_connection_ends_the_turn(rig):
    peer = rig.peer()
    rig.meanwhile["p3"] = lambda: next(iter(rig.server.connections.values())).close()
    rig.together((peer, slow("p", 20)))
    wait_for(lambda: rig.closed, "the connection is closed")
    assert rig.handled == [f"p{n}" for n in range(4)]
    assert rig.held() == 0


def test_one_read_is_held_and_no_more_is_read(rig, monkeypatch):
    held = []
    whole = rig._take

    def take(request, conn):
        held.append(rig.held())
        return whole(request, conn)

    rig.server._listeners[0].dispatcher.add(TAKES_A_MILLISECOND, take)
    peer = rig.peer()
    sender = threading.Thread(target=peer.send_bytes, args=[slow("p", 60, bytes(60_000))])
    sender.start()
    assert [peer.receive().opaque for _ in range(60)] == list(range(60))
    sender.join()
    assert 0 < max(held) <= RECEIVE_BUFFER_BYTES


def test_reads_are_short_while_much_is_held(rig, monkeypatch):
    monkeypatch.setattr(server_module, "MANY_PARTIAL_BYTES", 20_000)
    reads = []
    rig.meanwhile["a3"] = lambda: reads.append(rig.server.read_bytes)
    peer = rig.peer()
    rig.together((peer, slow("a", 10, bytes(4_000))))
    assert [peer.receive().opaque for _ in range(10)] == list(range(10))
    assert reads == [PRESSURE_READ_BYTES]
    assert rig.server.read_bytes == 0


def test_an_error_of_ours_in_a_turn_costs_its_connection_and_no_other(rig, monkeypatch):
    peer, other = rig.peer(), rig.peer()
    whole = connection_module.Connection._dispatch_held

    def fail(conn):
        if "a2" in rig.handled and conn.remote_host.endswith(str(peer.sock.getsockname()[1])):
            raise RuntimeError("a mistake of ours")
        whole(conn)

    monkeypatch.setattr(connection_module.Connection, "_dispatch_held", fail)
    rig.together((peer, slow("a", 10)), (other, slow("b", 10)))
    assert [other.receive().opaque for _ in range(10)] == list(range(10))
    assert len(peer.receive_all()) <= 3


@pytest.mark.parametrize("turn_s", [0.0, TURN_S])
def test_sends_between_other_requests_keep_their_order(tmp_path, monkeypatch, turn_s):
    """This holds whichever twin takes the sends."""
    monkeypatch.setattr(connection_module, "TURN_S", turn_s)
    engine = start_engine(tmp_path, store={"flush_disk_type": "ASYNC_FLUSH"})
    try:
        peer = Peer(engine.broker_address)
        assert peer.ask(310, send_fields("T", 0), b"first").code == 0
        sent = []
        for n in range(200):
            sent.append(peer.send(310, send_fields("T", 0), b"%d" % n))
            if n % 3 == 0:
                peer.send(30, {"topic": "T", "queueId": 0}, opaque=10_000 + n)
        answers = {}
        for _ in range(200 + 67):
            answer = peer.receive()
            answers[answer.opaque] = answer
        assert {answer.code for answer in answers.values()} == {0}
        assert [int(answers[opaque].ext_fields["queueOffset"]) for opaque in sent] == list(range(1, 201))
        assert peer.ask(11, pull_fields("T", 0, 200)).code == 0
        peer.close()
    finally:
        engine.stop()
