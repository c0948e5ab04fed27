"""Servers to read from: RocketBox in this process, Apache's, and one whose answers the test scripts."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from appliance.engine.errors import FrameError
from appliance.engine.protocol.codes import RequestCode
from appliance.engine.protocol.command import RemotingCommand, decode_frame, encode_command
from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.record import MAGIC_V1, Record, encode_record


class Target(NamedTuple):
    """kind: rocketbox, or apache-VERSION. namesrv, broker: host:port."""

    kind: str
    namesrv: str
    broker: str


START_MS = 1_700_000_000_000

#: Answer of a scripted server to a request: bytes as they are, None to close the connection.
Script = Callable[[RemotingCommand], bytes | None]


class Scripted:
    """A server that answers by a script. Use `with`."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[RemotingCommand] = []
        self.connections = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listening.getsockname())
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Scripted:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in self._open:
            one.close()
        self._thread.join(60)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        file = sock.makefile("rb")
        try:
            while length := file.read(4):
                command = decode_frame(length + file.read(int.from_bytes(length, "big")))
                self.asked.append(command)
                said = self.script(command)
                if said is None:
                    break
                sock.sendall(said)
        except (OSError, FrameError):
            pass
        finally:
            file.close()
            # Unread bytes would make it a reset.
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def answer(
    asked: RemotingCommand, code: int = 0, body: bytes = b"", remark: str | None = None, **fields: object
) -> bytes:
    """Return the frame of an answer."""
    made = RemotingCommand.response(code, remark, {name: str(value) for name, value in fields.items()}, body)
    made.opaque = asked.opaque
    return encode_command(made)


def stored(topic: str, queue_id: int, offset: int, body: bytes = b"body") -> bytes:
    """Return a record as brokers store it."""
    host = encode_host("127.0.0.1", 10911)
    record = Record(
        0, MAGIC_V1, 0, queue_id, 0, offset, offset * 1000, 0, START_MS, ("127.0.0.1", 1),
        START_MS + offset, ("127.0.0.1", 10911), 0, 0, body, topic,
        f"UNIQ_KEY\x01{topic}-{queue_id}-{offset}\x02",
    )  # fmt: skip
    return encode_record(record, host, host)


class OneQueue:
    """A script: name server and broker of the topic Orders, each of whose queues, one if not changed, has messages
    [first, end); `most` are in an answer.

    spoil: called with a pull and its answer before that is sent; returns the answer to send instead.
    """

    def __init__(self, first: int = 0, end: int = 100, most: int = 32) -> None:
        self.first, self.end, self.most = first, end, most
        self.queues = 1
        self.addresses: dict[str, str] = {}
        self.spoil: Callable[[RemotingCommand, bytes], bytes | None] = lambda asked, said: said

    def __call__(self, asked: RemotingCommand) -> bytes | None:
        fields = asked.ext_fields
        if asked.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            if fields["topic"] != "Orders":
                return answer(asked, 17, remark="No topic route info")
            brokers = [{"brokerName": "broker-a", "cluster": "c", "brokerAddrs": self.addresses}]
            queues = [
                {"brokerName": "broker-a", "perm": 6, "readQueueNums": self.queues, "writeQueueNums": self.queues}
            ]
            return answer(asked, body=json.dumps({"brokerDatas": brokers, "queueDatas": queues}).encode())
        if asked.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            table = {"broker-a": {"brokerName": "broker-a", "cluster": "c", "brokerAddrs": self.addresses}}
            return answer(asked, body=json.dumps({"brokerAddrTable": table, "clusterAddrTable": {}}).encode())
        if asked.code == RequestCode.GET_MIN_OFFSET:
            return answer(asked, offset=self.first)
        if asked.code == RequestCode.GET_MAX_OFFSET:
            return answer(asked, offset=self.end)
        if asked.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            # 4.9 answers the nearest message, and none is behind the last. `stored` gives message n: START_MS + n.
            return answer(asked, offset=max(0, min(int(fields["timestamp"]) - START_MS, self.end - 1)))
        assert asked.code == RequestCode.PULL_MESSAGE, asked
        return self.spoil(asked, self._pull(asked))

    def _pull(self, asked: RemotingCommand) -> bytes:
        at = int(asked.ext_fields["queueOffset"])
        upto = min(at + self.most, at + int(asked.ext_fields["maxMsgNums"]), self.end)
        bounds = {"suggestWhichBrokerId": 0, "minOffset": self.first, "maxOffset": self.end}
        if at < self.first:
            return answer(asked, 21, nextBeginOffset=self.first, **bounds)
        if at >= self.end:
            code, after = (19, at) if at == self.end else (21, self.end)
            return answer(asked, code, nextBeginOffset=after, **bounds)
        body = b"".join(stored("Orders", 0, offset) for offset in range(at, upto))
        return answer(asked, body=body, nextBeginOffset=upto, **bounds)


@contextmanager
def one_queue(**arguments: int) -> Iterator[tuple[OneQueue, Scripted]]:
    """Run a server that is name server and master of its one queue."""
    script = OneQueue(**arguments)
    with Scripted(script) as server:
        script.addresses = {"0": server.address}
        yield script, server
