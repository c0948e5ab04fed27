"""The blocking client against a name server, and against peers that behave badly."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from appliance.engine.errors import CallTimeout, ConnectError
from appliance.engine.protocol.codes import RequestCode
from appliance.engine.protocol.command import RemotingCommand, decode_frame, encode_command
from appliance.engine.remoting.client import RemotingClient
from tests.support.waiting import wait_for

from .conftest import LiveNamesrv


def _ask() -> RemotingCommand:
    return RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)


def _answer_to(request: RemotingCommand, remark: str = "") -> bytes:
    answer = RemotingCommand.response(0, remark or None)
    answer.opaque = request.opaque
    return encode_command(answer)


@contextmanager
def peer(behave: Callable[[socket.socket, RemotingCommand], None]) -> Iterator[str]:
    """A server that hands every whole request it reads to `behave`, connection after connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    accepted: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
                accepted.append(sock)
                with sock, sock.makefile("rb") as stream:
                    while length := stream.read(4):
                        frame = length + stream.read(struct.unpack(">i", length)[0])
                        behave(sock, decode_frame(frame))
            except OSError:
                if listener.fileno() < 0:
                    return

    thread = threading.Thread(target=serve)
    thread.start()
    host, port = listener.getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for sock in accepted:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("codec", [0, 1])
def test_a_call_gets_its_answer_in_either_header_encoding(live_namesrv: LiveNamesrv, codec: int) -> None:
    client = RemotingClient(live_namesrv.address)
    request = _ask()
    request.codec = codec
    answer = client.invoke_sync(request, 3000)
    assert (answer.code, answer.body) == (0, b'{"brokerAddrTable":{},"clusterAddrTable":{}}')
    client.close()


def test_many_threads_share_one_connection(live_namesrv: LiveNamesrv) -> None:
    client = RemotingClient(live_namesrv.address)
    failures: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for at in range(50):
                topic = f"T{n}-{at}"
                request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic})
                assert f": {topic}\n" in str(client.invoke_sync(request, 5000).remark)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert len(live_namesrv.server.connections) == 1
    client.close()


def test_it_connects_again_after_the_server_came_back(live_namesrv: LiveNamesrv) -> None:
    client = RemotingClient(live_namesrv.address)
    assert not client.is_connected()
    assert client.invoke_sync(_ask(), 3000).code == 0
    assert client.is_connected()
    live_namesrv.stop()
    wait_for(lambda: not client.is_connected(), "the client to notice the end of its connection")
    with pytest.raises(ConnectError, match="connect to"):
        client.invoke_sync(_ask(), 1000)
    live_namesrv.start()
    assert client.invoke_sync(_ask(), 3000).code == 0
    client.close()
    assert not client.is_connected()
    assert client.invoke_sync(_ask(), 3000).code == 0
    client.close()


def test_frames_that_are_not_the_answer_are_skipped() -> None:
    def behave(sock: socket.socket, request: RemotingCommand) -> None:
        other = RemotingCommand.response(0, "to another")
        other.opaque = request.opaque + 7
        notice = RemotingCommand(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, opaque=request.opaque)
        stream = encode_command(notice) + encode_command(other) + _answer_to(request, "mine")
        for at in range(0, len(stream), 11):  # in small pieces
            sock.sendall(stream[at : at + 11])

    with peer(behave) as address:
        client = RemotingClient(address)
        for _ in range(3):
            assert client.invoke_sync(_ask(), 3000).remark == "mine"
        client.close()


def test_a_late_answer_is_not_taken_for_the_next_one() -> None:
    seen: list[RemotingCommand] = []

    def behave(sock: socket.socket, request: RemotingCommand) -> None:
        seen.append(request)
        if len(seen) > 1:
            sock.sendall(_answer_to(request, "second"))

    with peer(behave) as address:
        client = RemotingClient(address)
        with pytest.raises(CallTimeout):
            client.invoke_sync(_ask(), 100)
        assert client.invoke_sync(_ask(), 3000).remark == "second"
        assert seen[0].opaque != seen[1].opaque
        client.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x7f\xff\xff\xff....",
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        struct.pack(">ii", 8, 4) + b"nope",
        struct.pack(">ii", 8, 0x7F000004) + b"nope",
    ],
)
def test_a_peer_that_sends_no_frames_is_a_broken_connection(garbage: bytes) -> None:
    with peer(lambda sock, request: sock.sendall(garbage)) as address:
        client = RemotingClient(address)
        with pytest.raises(ConnectError, match="no frame"):
            client.invoke_sync(_ask(), 3000)
        assert not client.is_connected()


def test_a_peer_that_closes_in_the_middle_is_a_broken_connection() -> None:
    def behave(sock: socket.socket, request: RemotingCommand) -> None:
        sock.sendall(_answer_to(request)[:20])
        sock.shutdown(socket.SHUT_RDWR)

    with peer(behave) as address, pytest.raises(ConnectError, match="closed"):
        RemotingClient(address).invoke_sync(_ask(), 3000)


def test_close_ends_a_call_that_waits() -> None:
    asked = threading.Event()
    with peer(lambda sock, request: asked.set()) as address:
        client = RemotingClient(address)
        caught: list[BaseException] = []

        def call() -> None:
            try:
                client.invoke_sync(_ask(), 600_000)
            except BaseException as error:
                caught.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        assert asked.wait(60)
        client.close()
        thread.join(60)
        assert not thread.is_alive()
        assert isinstance(caught[0], ConnectError)
