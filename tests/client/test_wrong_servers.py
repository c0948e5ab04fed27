"""Servers that are not name servers or brokers, that hang, close, or send any bytes: each gives a readable error, no
thread of the client ends, and the client works with the next server."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import threading
import time

import pytest

from appliance.client import (
    BrokerAway,
    Client,
    ClientError,
    ForkedError,
    InvalidMessage,
    Message,
    MessageQueue,
    NoNameServer,
    NotConnected,
    Refused,
    SendError,
    SendTimeout,
    aio,
)
from appliance.client.core import connection
from appliance.client.core.connection import Connection
from appliance.client.core.steps import Call
from appliance.client.shells import link
from appliance.client.shells.shell import Shell
from appliance.client.shells.threads import links_of
from appliance.engine.protocol.codes import RequestCode
from appliance.engine.protocol.command import RemotingCommand, decode_frame, encode_command
from tests.support.client_steps import answer, route
from tests.support.effort import effort
from tests.support.waiting import wait_for

STORED = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "1", "queueOffset": "7"}


class Scripted:
    """A server that passes each frame to `reply`, which returns bytes to send, or None to close the connection."""

    def __init__(self, reply):
        self._reply = reply
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open = []
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.connections += 1
                self._open.append(sock)
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        unread = b""
        with contextlib.suppress(OSError), sock:
            while data := sock.recv(65536):
                unread += data
                while len(unread) >= 4 and len(unread) >= (size := 4 + int.from_bytes(unread[:4], "big")):
                    frame, unread = unread[:size], unread[size:]
                    said = self._reply(decode_frame(frame))
                    if said is None:
                        return
                    sock.sendall(said)

    def close(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def scripted():
    servers = []

    def make(reply):
        servers.append(Scripted(reply))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


def frame(question, command):
    command.opaque = question.opaque
    return encode_command(command)


def name_server(scripted, broker):
    """Start a name server that names `broker` as the only broker of every topic."""
    body = route("b").replace(b"b:10911", broker.encode())
    return scripted(lambda question: frame(question, answer(body=body)))


def send(namesrv, timeout=30.0):
    with Client(namesrv) as client:
        return client.producer().send("T", "x", timeout=timeout)


def test_a_web_server_is_said_to_speak_another_protocol(scripted):
    web = scripted(lambda question: b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    with pytest.raises(NoNameServer, match="does not speak RocketMQ's protocol: its answer begins with b'HTTP"):
        send(web.address)
    with pytest.raises(NotConnected, match="does not speak"):
        send(name_server(scripted, web.address).address)


def test_a_broker_is_no_name_server(scripted):
    broker = scripted(lambda question: frame(question, answer(3, remark="not supported")))
    with pytest.raises(NoNameServer, match="is it a name server, and not a broker"):
        send(broker.address)


def test_a_silent_server_costs_the_time_out(scripted):
    silent = scripted(lambda question: b"")
    with pytest.raises(NoNameServer, match="did not answer in time"):
        send(silent.address, timeout=0.2)
    broker = scripted(lambda question: frame(question, answer(**STORED)) if question.body == b"first" else b"")
    with Client(name_server(scripted, broker.address).address) as client:
        producer = client.producer()
        producer.send("T", "first", timeout=30.0)  # its route is known and its connection made in no time from then on
        with pytest.raises(SendTimeout) as raised:
            producer.send("T", "x", timeout=0.5)
    assert raised.value.maybe_stored


def test_a_connection_on_which_nothing_comes_any_more_is_made_anew(scripted, monkeypatch):
    """As behind a firewall that forgot it: the server's end is open, and its bytes do not arrive."""
    monkeypatch.setattr(link, "_SILENT_S", 0.3)
    silent = [False]
    broker = scripted(lambda question: b"" if silent[0] else frame(question, answer(**STORED)))
    with Client(name_server(scripted, broker.address).address) as client:
        producer = client.producer()
        producer.send("T", "x", timeout=30.0)
        silent[0] = True
        with pytest.raises(SendTimeout):
            producer.send("T", "x", timeout=0.5)
        wait_for(lambda: not links_to(client, broker), "the end of the silent connection")
        silent[0] = False
        assert producer.send("T", "x", timeout=30.0).queue_offset == 7
    assert broker.connections == 2


def test_a_broker_that_is_slow_and_silent_does_not_get_what_waits_a_second_time(scripted, monkeypatch):
    """As while its disk takes long: what others sent is stored, and answered later."""
    monkeypatch.setattr(link, "_SILENT_S", 0.3)
    goes_on, seen = threading.Event(), []

    def reply(question):
        if question.code == RequestCode.SEND_MESSAGE_V2:
            seen.append(question.body)
            if question.body in (b"waits", b"long way"):
                goes_on.wait(30.0)
        return frame(question, answer(**STORED))

    broker = scripted(reply)
    with Client(name_server(scripted, broker.address).address) as client:
        producer, shell = client.producer(), client._session.shell
        producer.send("T", "x", timeout=30.0)
        first = shell.open_link(broker.address)
        waiting = [
            producer.submit("T", "waits", timeout=30.0),
            producer.submit("T", "long way", timeout=30.0, queue=MessageQueue("T", "b", 1)),
        ]
        with pytest.raises(SendTimeout):
            producer.send("T", "late", timeout=0.5)
        wait_for(lambda: shell.open_link(broker.address) is not first, "the connection is left")
        assert producer.send("T", "x", timeout=30.0).queue_offset == 7
        goes_on.set()
        assert [one.result(30.0).queue_offset for one in waiting] == [7, 7]
        first.expire(time.monotonic())
        assert first.is_dead
        # The I/O thread may be about to forget it.
        wait_for(lambda: links_to(client, broker) == [shell.open_link(broker.address)], "one connection")
    assert (seen.count(b"waits"), seen.count(b"long way")) == (1, 1)


class Stopping:
    """A broker that refuses what comes over one of its connections, since it stops."""

    def __init__(self, scripted):
        self.refusing, self.stored, self.held = 0, [], []
        self.server = scripted(self._reply)

    def _reply(self, question):
        if question.code not in (RequestCode.SEND_MESSAGE_V2, RequestCode.GET_MAX_OFFSET):
            return frame(question, answer())
        if self.server.connections == self.refusing and question.body != b"held":
            return frame(question, answer(1500, remark="please go away"))
        self.stored.append(question.body)
        said = frame(question, answer(**STORED, offset="9"))
        if question.body == b"held":
            self.held.append(said)
            return b""
        return said


def test_a_broker_that_stops_is_left_and_what_it_refused_goes_over_another_connection(scripted):
    broker, queue = Stopping(scripted), MessageQueue("T", "b", 1)
    with Client(name_server(scripted, broker.server.address).address, timeout=30.0) as client:
        producer, shell = client.producer(retries=0), client._session.shell
        producer.send("T", "first")
        for act in (
            lambda: client.reader().max_offset(queue) == 9,
            lambda: producer.send("T", "quick"),
            lambda: producer.send("T", "of a shard", shard="a"),
            lambda: producer.send("T", "long way", queue=queue),
        ):
            left = shell.open_link(broker.server.address)
            broker.refusing = broker.server.connections
            assert act()
            assert broker.server.connections == broker.refusing + 1
            wait_for(lambda left=left: left.is_dead, "the end of the connection")
        waiting = producer.submit("T", "held")
        wait_for(lambda: broker.held, "its request")
        left, broker.refusing = shell.open_link(broker.server.address), broker.server.connections
        producer.send("T", "last")
        assert not left.is_dead, "a send waits for its answer there"
        broker.server._open[-2].sendall(broker.held[0])
        assert waiting.result(30.0).queue_offset == 7
        wait_for(lambda: links_to(client, broker.server) == [shell.open_link(broker.server.address)], "one connection")
    assert broker.stored == [b"first", b"", b"quick", b"of a shard", b"long way", b"held", b"last"]


def test_a_broker_that_stops_is_left_by_asyncio_too(scripted):
    broker = Stopping(scripted)

    async def use():
        async with aio.Client(name_server(scripted, broker.server.address).address, timeout=30.0) as client:
            await client.producer(retries=0).send("T", "first")
            broker.refusing = 1
            assert await client.reader().max_offset(MessageQueue("T", "b", 1)) == 9

    asyncio.run(use())
    assert broker.server.connections == 2


def test_a_call_of_a_thread_that_found_a_connection_before_it_was_left_goes_over_the_next(scripted, monkeypatch):
    broker, queue = Stopping(scripted), MessageQueue("T", "b", 1)
    with Client(name_server(scripted, broker.server.address).address, timeout=30.0) as client:
        producer, call = client.producer(retries=0), link.Link.call
        producer.send("T", "first")
        broker.refusing = broker.server.connections

        def late(self, *arguments):
            monkeypatch.setattr(link.Link, "call", call)
            assert client.reader().max_offset(queue) == 9
            wait_for(lambda: self.is_dead, "the end of the connection")
            return self.call(*arguments)

        monkeypatch.setattr(link.Link, "call", late)
        assert producer.send("T", "long way", queue=queue).queue_offset == 7
    assert broker.stored == [b"first", b"", b"long way"]


def test_a_connection_that_was_left_does_not_end_under_a_call_that_a_thread_makes_meanwhile(scripted, monkeypatch):
    broker, queue, outcomes = Stopping(scripted), MessageQueue("T", "b", 1), []
    with Client(name_server(scripted, broker.server.address).address, timeout=30.0) as client:
        fail = link.Link.fail
        client.producer(retries=0).send("T", "first")
        broker.refusing = broker.server.connections

        def late(self, *arguments, **options):
            monkeypatch.setattr(link.Link, "fail", fail)
            call = Call(self.address, RemotingCommand(RequestCode.GET_MAX_OFFSET), time.monotonic() + 30.0)
            assert self.call(call, outcomes.append) == (False, None)
            self.fail(*arguments, **options)

        monkeypatch.setattr(link.Link, "fail", late)
        assert client.reader().max_offset(queue) == 9
        wait_for(lambda: outcomes, "its outcome")
    assert outcomes[0].ext_fields["offset"] == "9"


@pytest.mark.parametrize("code", [0, 1500])
def test_no_answer_is_lost_whose_next_one_a_signal_interrupts(scripted, monkeypatch, code):
    """All of them came with one read."""
    asked, decode, loop = [], connection.decode_frame, asyncio.new_event_loop()

    def reply(question):
        if question.code != RequestCode.GET_MAX_OFFSET:
            return frame(question, answer())
        if len(asked) == 3:
            return frame(question, answer(offset="9"))
        asked.append(question)
        codes = [0, code, 0]
        if len(asked) < len(codes):
            return b""
        return b"".join(frame(one, answer(code, offset="9")) for one, code in zip(asked, codes, strict=True))

    def interrupted(data):
        command = decode(data)
        if command.ext_fields.get("offset") == "9" and command.opaque == asked[2].opaque:
            monkeypatch.setattr(connection, "decode_frame", decode)
            raise KeyboardInterrupt
        return command

    async def ask():
        async with aio.Client(name_server(scripted, scripted(reply).address).address, timeout=60.0) as client:
            offsets = [client.reader().max_offset(MessageQueue("T", "b", 1)) for _ in range(3)]
            return await asyncio.gather(*offsets, return_exceptions=True)

    monkeypatch.setattr(connection, "decode_frame", interrupted)
    asking = loop.create_task(ask())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asking)
    found = loop.run_until_complete(asyncio.wait_for(asking, 30.0))
    assert found[:2] == [9, 9], "answered before it, or asked again elsewhere"
    assert isinstance(found[2], BrokerAway)
    assert "a signal interrupted" in str(found[2])
    loop.close()


def test_an_error_of_connecting_that_no_server_causes_is_said(caplog, monkeypatch):
    async def fails(*_, **__):
        raise RuntimeError("an event loop of its own kind")

    async def use():
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fails)
        async with aio.Client("127.0.0.1:1", timeout=30.0) as client:
            await client.producer().send("T", "first")

    with pytest.raises(NoNameServer, match="an event loop of its own kind"):
        asyncio.run(use())
    assert "in fails" in caplog.text, "its traceback"


def test_a_connection_that_is_cancelled_before_it_is_begun_fails_what_waits():
    """As when a signal ends the loop: its end cancels all tasks."""

    async def use():
        async with aio.Client("127.0.0.1:1", timeout=30.0) as client:
            asked = asyncio.create_task(client.reader().queues("T"))
            while (made := client._session.shell.open_link("127.0.0.1:1")) is None:
                await asyncio.sleep(0)
            made.connecting.cancel()
            with pytest.raises(NoNameServer, match="closed"):
                await asked

    asyncio.run(use())


def test_what_waits_in_a_loop_whose_reading_a_signal_interrupts_fails_at_once(scripted, monkeypatch):
    server = scripted(lambda question: frame(question, answer(body=route("b"))))
    feed, loop = Connection.feed, asyncio.new_event_loop()

    def interrupted(self, data, answers):
        monkeypatch.setattr(Connection, "feed", feed)
        raise KeyboardInterrupt

    async def ask():
        async with aio.Client(server.address, timeout=60.0) as client:
            with pytest.raises(NoNameServer, match="a signal interrupted"):
                await client.reader().queues("T")

    monkeypatch.setattr(Connection, "feed", interrupted)
    asking = loop.create_task(ask())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asking)
    loop.run_until_complete(asking)
    loop.close()


def test_a_procedure_that_a_signal_interrupts_in_a_loop_as_it_asks_again_ends_at_once(scripted, monkeypatch):
    broker = scripted(lambda question: frame(question, answer(**STORED)))
    do, loop = Shell._do, asyncio.new_event_loop()

    def interrupted(self, effect, resume):
        if isinstance(effect, Call) and effect.address == broker.address:
            monkeypatch.setattr(Shell, "_do", do)
            raise KeyboardInterrupt
        return do(self, effect, resume)

    async def ask():
        async with aio.Client(name_server(scripted, broker.address).address, timeout=60.0) as client:
            with pytest.raises(KeyboardInterrupt):
                await client.producer(retries=0).send("T", "x")

    monkeypatch.setattr(Shell, "_do", interrupted)
    asking = loop.create_task(ask())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(asking)
    loop.run_until_complete(asyncio.wait_for(asking, 30.0))
    loop.close()


def test_a_broker_that_only_says_that_it_stops_is_not_connected_to_again_and_again(scripted):
    broker = scripted(lambda question: frame(question, answer(1500, remark="please go away")))
    with (
        Client(name_server(scripted, broker.address).address) as client,
        pytest.raises(Refused, match="1500, GO_AWAY: please go away"),
    ):
        client.producer().send("T", "x", timeout=30.0)
    assert broker.connections == 1


def test_what_cannot_be_sent_is_refused_by_a_producer_that_has_sent(scripted):
    broker = scripted(lambda question: frame(question, answer(**STORED)))
    with Client(name_server(scripted, broker.address).address) as client:
        producer = client.producer()
        producer.send("T", "x", timeout=30.0)
        for body in (b"x", "x"):
            with pytest.raises(InvalidMessage, match="tags is one tag"):
                producer.send(Message("T", body, tags=["a"]))
            with pytest.raises(OverflowError):
                producer.send("T", body, timeout=10**400)
        assert producer.in_flight == 0


def test_a_call_that_is_slow_leaves_the_connection_to_others(scripted, monkeypatch):
    monkeypatch.setattr(link, "_SILENT_S", 30.0)
    broker = scripted(lambda question: b"" if question.body == b"slow" else frame(question, answer(**STORED)))
    with Client(name_server(scripted, broker.address).address) as client:
        producer = client.producer()
        producer.send("T", "x", timeout=30.0)
        with pytest.raises(SendTimeout):
            producer.send("T", "slow", timeout=0.3)
        assert producer.send("T", "x", timeout=30.0).queue_offset == 7
    assert broker.connections == 1


def links_to(client, server):
    return [one for one in links_of(client._session.shell) if one.address == server.address]


def test_a_server_that_closes_in_the_middle_of_an_answer_may_have_stored_it(scripted):
    def half(question):
        if question.code != 310:
            return frame(question, answer())
        return frame(question, answer(**STORED))[:30]

    broker = scripted(half)
    closing = threading.Event()

    def close_after_half(question):
        said = half(question)
        if question.code == 310:
            closing.set()
        return said

    broker._reply = close_after_half
    namesrv = name_server(scripted, broker.address)
    with Client(namesrv.address) as client:
        pending = client.producer(retries=0).submit("T", "x", timeout=30.0)
        assert closing.wait(60)
        wait_for(lambda: broker._open, "its connection")
        for sock in broker._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        with pytest.raises(NotConnected, match="may be stored") as raised:
            pending.result(60)
    assert raised.value.maybe_stored
    assert isinstance(raised.value, ConnectionError)


def test_an_answer_to_another_question_is_nobodys(scripted):
    """The client ignores a late or invented answer, and the send still gets its own."""

    def twice(question):
        stray = answer(**(STORED | {"queueOffset": "999"}))
        stray.opaque = question.opaque + 7
        return encode_command(stray) + frame(question, answer(**STORED))

    broker = scripted(twice)
    assert send(name_server(scripted, broker.address).address).queue_offset == 7


def test_a_server_that_asks_is_answered_and_sends_go_on(scripted):
    answers = []

    def asks(question):
        if question.is_response:
            answers.append(question.code)
            return b""
        asked = answer(9999)
        asked.flag, asked.opaque = 0, 5
        return encode_command(asked) + frame(question, answer(**STORED))

    broker = scripted(asks)
    with Client(name_server(scripted, broker.address).address) as client:
        client.producer().send("T", "x", timeout=30.0)
        wait_for(lambda: answers, "the answer to its question")
    assert set(answers) == {3}


def test_whatever_a_broker_answers_is_an_error_or_a_result_and_the_client_lives(scripted):
    """The broker first answers with damaged frames, then correctly."""
    chance = random.Random(7)
    works = threading.Event()

    def damaged(question):
        said = bytearray(frame(question, answer(**STORED)))
        if not works.is_set():
            for _ in range(chance.randrange(1, 6)):
                said[chance.randrange(4, len(said))] = chance.randrange(256)
        return bytes(said)

    broker = scripted(damaged)
    with Client(name_server(scripted, broker.address).address) as client:
        producer = client.producer(retries=0)
        works.set()
        producer.send("T", "x", timeout=30.0)  # from then on its route is known
        works.clear()
        outcomes = []
        for _ in range(effort(25, 400, 4000)):
            try:
                outcomes.append(producer.send("T", "x", timeout=0.1))
            except ClientError as error:
                outcomes.append(error)
        failed = [one for one in outcomes if isinstance(one, ClientError)]
        assert failed
        assert all(isinstance(one, SendError) for one in failed)
        works.set()

        def sends():
            with contextlib.suppress(ClientError):
                return producer.send("T", "x", timeout=30.0)

        assert wait_for(sends, "a send that is stored").queue_offset == 7


def test_many_wait_for_nothing_in_a_fork(scripted):
    def reply(question):
        if question.code != RequestCode.SEND_MESSAGE_V2:
            return frame(question, answer())
        return frame(question, answer(**STORED)) if question.body == b"0" else b""

    with Client(name_server(scripted, scripted(reply).address).address, timeout=1.0) as client:
        producer = client.producer()
        producer.send("T", "0", timeout=30.0)
        for end in (list, lambda sending: sending.close()):
            sending = producer.send_many([Message("T", str(number)) for number in range(3)], window=2)
            next(sending)
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                try:
                    end(sending)
                except ForkedError:
                    os._exit(7)
                os._exit(8)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (7 if end is list else 8)
            sending.close()
