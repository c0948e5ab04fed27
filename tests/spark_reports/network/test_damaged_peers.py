"""Servers that send half an answer, none, rubbish, or an answer to another request: one clear error that names them."""

from __future__ import annotations

import pickle
import struct
import time
from itertools import pairwise

import pytest

from appliance.engine.protocol.command import RemotingCommand, encode_command
from spark_reports.source.findings import DataLoss, Ledger
from spark_reports.source.network.access import Access
from spark_reports.source.network.connection import Connection
from spark_reports.source.network.errors import Garbled, NetworkError, Refused, Unreachable
from spark_reports.source.network.pulls import Pulls, Range
from spark_reports.source.network.routes import NameServers, Queue
from spark_reports.source.network.task import noted_in
from tests.spark_reports.network.servers import Scripted, answer, one_queue, stored
from tests.support.ports import reserve_port

ORDERS = Queue("broker-a", "Orders", 0)


def access(*addresses: str, **changes) -> Access:
    """Patient, so that a slow machine is not taken for a peer that is silent or away."""
    return Access(addresses, **({"answer_s": 60, "patience_s": 60} | changes))


def pull_all(server: Scripted, start: int = 0, end: int = 100, on_gap=None, **changes) -> list[tuple[int, int]]:
    """Pull a range; return its pieces. on_gap: by default as with failOnDataLoss=true."""
    wanted = Range(ORDERS, start, end, (server.address,))
    pulls = Pulls(wanted, access(server.address, **changes), on_gap or noted_in(Ledger(fails=True)))
    return [(piece.start, piece.end) for piece in pulls.pieces()]


@pytest.mark.parametrize(
    ("said", "error", "text"),
    [
        (b"", Unreachable, "did not answer"),
        (None, Unreachable, "closed the connection instead of an answer"),
        (b"\0\0", Unreachable, "stopped in the middle of an answer"),
        (b"\0\0\0\x50\0\0\0\x20{", Unreachable, "stopped in the middle of an answer"),
        (struct.pack(">iI", 2**31 - 1, 20) + b"x" * 100, Garbled, "does not speak the remoting protocol"),
        (struct.pack(">iI", -5, 20), Garbled, "does not speak the remoting protocol"),
        (struct.pack(">iI", 100, 97) + b"x" * 96, Garbled, "does not speak the remoting protocol"),
        (struct.pack(">iI", 100, 0) + b"x" * 96, Garbled, "does not speak the remoting protocol"),
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", Garbled, "does not speak the remoting protocol"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", Garbled, "does not speak the remoting protocol"),
        (struct.pack(">iI", 24, 20) + b"\xff" * 20, Garbled, "does not speak the remoting protocol"),
        (struct.pack(">iI", 24, 7 << 24 | 20) + b"{}" * 10, Garbled, "does not speak the remoting protocol"),
    ],
)
def test_what_is_no_answer(said, error, text):
    changes = {"answer_s": 0.5} if error is Unreachable else {}
    with Scripted(lambda asked: said) as server, pytest.raises(NetworkError) as failed:
        Connection(server.address, access(**changes)).ask(106)
    assert type(failed.value) is error
    assert str(failed.value).startswith(server.address)
    assert text in str(failed.value)
    assert len(str(failed.value)) < 300


def test_half_an_answer_and_the_end():
    """The peer dies in the middle of its answer."""

    class Dying(Scripted):
        def _serve(self, sock):
            sock.recv(1000)
            sock.sendall(b"\0\0\0\x50\0\0\0\x20{")
            sock.close()

    with Dying(lambda asked: None) as server, pytest.raises(Unreachable, match="in the middle of an answer"):
        Connection(server.address, access()).ask(106)


def test_an_answer_to_something_else():
    def other(asked):
        asked.opaque += 5
        return answer(asked)

    with Scripted(other) as server, pytest.raises(Garbled, match="answered request 6, which it was not asked"):
        Connection(server.address, access()).ask(106)


def test_a_server_that_drips_does_not_hold_a_task_for_ever():
    class Dripping(Scripted):
        def _serve(self, sock):
            try:
                for octet in struct.pack(">iI", 1000, 20) + b"x" * 900:
                    sock.sendall(bytes([octet]))
                    dripped.append(octet)
                    time.sleep(0.05)
            except OSError:
                pass

    dripped = []
    with Dripping(lambda asked: None) as server, pytest.raises(Unreachable, match="stopped in the middle"):
        Connection(server.address, access(answer_s=0.5)).ask(106)
    assert len(dripped) < 900, "it was given up before the end"


def test_nobody_listens():
    address = f"127.0.0.1:{reserve_port()}"
    with pytest.raises(Unreachable, match=f"{address} cannot be reached: Connection refused"):
        Connection(address, access())


def test_no_such_host():
    with pytest.raises(Unreachable, match=r"no-such-host.invalid:9876 cannot be reached"):
        Connection("no-such-host.invalid:9876", access())


def test_requests_of_the_server_are_passed_over():
    def also_asks(asked):

        return encode_command(RemotingCommand(40, opaque=asked.opaque)) + answer(asked, body=b"here")

    with Scripted(also_asks) as server:
        assert bytes(Connection(server.address, access()).ask(106).body) == b"here"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"brokerDatas":[]}',
        b'{"brokerDatas":{},"queueDatas":[3]}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"x":"y"}}],"queueDatas":[]}',
        b'{"brokerDatas":[],"queueDatas":[{"brokerName":"a","perm":"x","readQueueNums":1}]}',
        b'{"brokerDatas":[],"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":2147483647,"writeQueueNums":1}]}',
        b'{"a":' * 100_000,
    ],
)
def test_a_route_that_is_none(body):
    with Scripted(lambda asked: answer(asked, body=body)) as server, pytest.raises(Garbled) as failed:
        NameServers(access(server.address)).routes(["Orders"])
    assert str(failed.value).startswith(server.address)


def test_answers_of_a_pull_in_any_size_are_put_in_order():
    for most in (1, 3, 7, 32, 50, 1000):
        with one_queue(end=1000, most=most) as (_, server):
            pieces = pull_all(server, 5, 995)
        assert pieces[0][0] == 5
        assert pieces[-1][1] == 995
        assert all(one[1] == other[0] for one, other in pairwise(pieces))
        assert len(server.asked) <= 990 // min(most, 990) + 60


def test_answers_that_come_in_another_order_are_put_in_order():
    """A broker's compiled part may first answer the pulls that it can answer at once."""
    with one_queue(end=400, most=8) as (script, server):
        held = []

        def hold_one_in_three(asked, said):
            if len(held) < 1 and int(asked.ext_fields["queueOffset"]) % 24 == 0 and len(server.asked) > 5:
                held.append(said)
                return b""
            late, held[:] = b"".join(held), []
            return said + late

        script.spoil = hold_one_in_three
        pieces = pull_all(server, 0, 392, answer_s=0.5)  # the last one may be held
    assert [piece[0] for piece in pieces] == sorted(piece[0] for piece in pieces)
    assert pieces[-1][1] == 392


@pytest.mark.parametrize(
    "spoil",
    [
        lambda asked, said: answer(asked, body=b"not a record" * 20, nextBeginOffset=32, minOffset=0, maxOffset=100),
        lambda asked, said: answer(asked, body=b"", nextBeginOffset=32, minOffset=0, maxOffset=100),
        lambda asked, said: answer(asked, body=b"x", nextBeginOffset=0, minOffset=0, maxOffset=100),
        lambda asked, said: answer(asked, body=b"x", minOffset=0, maxOffset=100),
        lambda asked, said: answer(asked, body=b"x", nextBeginOffset="many"),
        lambda asked, said: answer(asked, 21),
    ],
    ids=["rubbish", "empty", "stands still", "no next offset", "no number", "no bounds"],
)
def test_a_pull_that_is_answered_wrongly_ends_at_once(spoil):
    with one_queue() as (script, server):
        script.spoil = spoil
        with pytest.raises(Garbled) as failed:
            pull_all(server)
    assert str(failed.value).startswith(server.address)


def test_messages_of_another_place_are_not_taken():
    def other_offsets(asked, said):

        return answer(asked, body=stored("Orders", 0, 77), nextBeginOffset=1, minOffset=0, maxOffset=100)

    with one_queue() as (script, server):
        script.spoil = other_offsets
        with pytest.raises(Garbled, match="sent records that are none"):
            pull_all(server)


def test_a_server_that_comes_back_is_read_on_from_the_same_message():
    with one_queue(end=300) as (script, server):
        script.spoil = lambda asked, said: None if len(server.asked) % 5 == 4 else said
        pieces = pull_all(server, 0, 300)
    assert [start for start, _ in pieces] == [0, *(end for _, end in pieces[:-1])]
    assert pieces[-1][1] == 300


def test_a_server_that_stays_away_is_named_and_how_long_it_was_tried():
    with one_queue() as (script, server):
        script.spoil = lambda asked, said: None
        with pytest.raises(Unreachable, match=rf"{server.address} closed .*tried again for 1\.2 s"):
            pull_all(server, patience_s=1.2)


def test_a_busy_server_is_asked_again():
    with one_queue(end=32) as (script, server):
        script.spoil = lambda asked, said: (
            answer(asked, 2, remark="[OVERLOAD]system busy") if len(server.asked) < 3 else said
        )
        assert pull_all(server, 0, 32)[-1][1] == 32


def test_a_refusal_is_told_at_once_in_the_brokers_words():
    with one_queue() as (script, server):
        script.spoil = lambda asked, said: answer(asked, 16, remark="the topic[Orders] pulling message\n is forbidden")
        with pytest.raises(Refused, match=r"code 16, the topic\[Orders\] pulling message is forbidden") as failed:
            pull_all(server)
        again = pickle.loads(pickle.dumps(failed.value))
        assert (str(again), again.code) == (str(failed.value), 16)


def test_messages_that_were_deleted_meanwhile():
    with one_queue(first=40) as (_, server):
        with pytest.raises(
            DataLoss, match="40 messages of Orders, queue 0 of broker-a cannot be read, offsets 0 to 39"
        ):
            pull_all(server)
        gaps = []
        pieces = pull_all(server, on_gap=lambda *gap: gaps.append(gap))
    assert pieces[0] == (0, 40)
    assert pieces[-1][1] == 100
    assert [gap[:3] for gap in gaps] == [(ORDERS, 0, 40)]


def test_a_whole_range_that_was_deleted_meanwhile():
    with one_queue(first=40) as (_, server):
        gaps = []
        pieces = pull_all(server, 10, 30, on_gap=lambda *gap: gaps.append(gap))
    assert pieces == [(10, 30)]
    assert [gap[:3] for gap in gaps] == [(ORDERS, 10, 30)]


def test_messages_that_are_missing_in_between():
    def holes(asked, said):

        at = int(asked.ext_fields["queueOffset"])
        body = b"".join(stored("Orders", 0, offset) for offset in range(at, at + 10) if offset % 10 not in (0, 4, 5, 9))
        return answer(asked, body=body, nextBeginOffset=at + 10, minOffset=0, maxOffset=100)

    with one_queue() as (script, server):
        script.spoil = holes
        with pytest.raises(DataLoss, match=r"1 message of .* offsets 0 to 0"):
            pull_all(server, 0, 20)
        gaps = []
        pull_all(server, 0, 20, on_gap=lambda queue, start, end, why: gaps.append((start, end)))
    assert gaps == [(0, 1), (4, 6), (9, 10), (10, 11), (14, 16), (19, 20)]


def test_newest_messages_that_a_broker_lost_in_a_crash():
    with one_queue(end=60) as (_, server):
        with pytest.raises(DataLoss, match=r"40 messages .* offsets 60 to 99: .* it ends at 60"):
            pull_all(server, patience_s=0.2)
        gaps = []
        pieces = pull_all(server, patience_s=0.2, on_gap=lambda *gap: gaps.append(gap))
    assert pieces[-1] == (60, 100)
    assert [gap[:3] for gap in gaps] == [(ORDERS, 60, 100)]


def test_a_limit_of_bytes_is_kept():
    with one_queue(end=200) as (_, server):
        began = time.monotonic()
        pull_all(server, 0, 200, bytes_per_s=60_000)
        took = time.monotonic() - began
    size = sum(len(stored_) for stored_ in _records(200))
    assert took > size / 60_000 * 0.9


def _records(count):

    return [stored("Orders", 0, offset) for offset in range(count)]
