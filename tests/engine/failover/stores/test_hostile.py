"""Servers that are no etcd and no ZooKeeper, or malicious: calls end in time, take little memory and report it."""

from __future__ import annotations

import json
import resource
import socket
import threading
import time
from contextlib import suppress

import pytest

from appliance.engine.failover.leader_store import Revision, StoreUnavailable
from appliance.engine.failover.stores import etcd as etcd_module
from appliance.engine.failover.stores import open_store, tidy
from appliance.engine.failover.stores.access import Access
from tests.support.waiting import ends

KEY = "/rocketbox/set/state"
TIMEOUT_S = 0.15
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HEADER = {"cluster_id": "1", "revision": "5"}


def ok(body: bytes | str) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data)


def said(**fields: object) -> bytes:
    return ok(json.dumps({"header": HEADER, **fields}))


ANSWERS = {
    "nothing": b"",
    "2 GiB announced": b"HTTP/1.1 200 OK\r\nContent-Length: 2147483648\r\n\r\n{",
    "2 GiB sent": (b"HTTP/1.1 200 OK\r\nContent-Length: 2147483648\r\n\r\n", b" " * 65536),
    "chunks without end": (CHUNKED, b"8000\r\n" + b" " * 32768 + b"\r\n"),
    "a chunk of 2 GiB": (CHUNKED + b"80000000\r\n", b" " * 65536),
    "a chunk of no number": CHUNKED + b"zzz\r\n",
    "no length": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
    "half an answer": said()[:-10],
    "half a header": b"HTTP/1.1 200 OK\r\nContent-Le",
    "a header without end": (b"HTTP/1.1 200 OK\r\nX: ", b"x" * 65536),
    "headers without end": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 1000),
    "continue without end": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "a byte at a time": (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "),
    "HTML": ok("<html>sign in</html>"),
    "a redirect": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "a redirect to itself": b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /v3/kv/range\r\nContent-Length: 0\r\n\r\n",
    "500": b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\nno\r\n",
    "no status": b"HTTP/1.1 abc\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "zeros": b"\0" * 100000,
    "no text": ok(b"\xff\xfe{}"),
    "an empty object": ok("{}"),
    "a list": ok("[]"),
    "null": ok("null"),
    "deep": ok("[" * 200_000),
    "deep in a field": ok('{"header":{"cluster_id":"1","revision":"5"},"x":' + '{"a":' * 100_000),
    "a number without end": ok('{"header":{"cluster_id":"1","revision":' + "9" * 100_000 + "}}"),
    "a header of texts": ok('{"header":{"cluster_id":"1","revision":"no"}}'),
    "no cluster": ok('{"header":{"revision":"5"}}'),
    "another key": said(kvs=[{"key": "eA==", "mod_revision": "5", "value": "eA=="}], succeeded=False),
    "no base64": said(kvs=[{"key": "%%%", "mod_revision": "5", "value": "eA=="}]),
    "keys without a revision": said(kvs=[{"key": "L3JvY2tldGJveC9zZXQvc3RhdGU=", "value": "eA=="}]),
    "a revision below zero": said(
        kvs=[{"key": "L3JvY2tldGJveC9zZXQvc3RhdGU=", "mod_revision": "-1", "value": "eA=="}]
    ),
}  # fmt: skip


class Server:
    """Gives the same answer to every request; a pair is a beginning and the bytes that follow it endlessly."""

    def __init__(self, answer: bytes | tuple[bytes, bytes], first: bytes = b"") -> None:
        self._answer = answer
        self._first = first
        self._closed = False
        self.connections = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(0.05)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    def close(self) -> None:
        self._closed = True
        self._thread.join()
        self._server.close()

    def _serve(self) -> None:
        while not self._closed:
            try:
                peer, _ = self._server.accept()
            except TimeoutError:
                continue
            self.connections += 1
            peer.settimeout(0.05)
            threading.Thread(target=self._talk, args=(peer,), daemon=True).start()

    def _talk(self, peer: socket.socket) -> None:
        with peer, suppress(OSError):
            first = self._first
            while not self._closed:
                try:
                    if not peer.recv(1 << 16):
                        return
                except TimeoutError:
                    continue
                if first:
                    peer.sendall(first)
                    first = b""
                    continue
                beginning, more = self._answer if isinstance(self._answer, tuple) else (self._answer, b"")
                peer.sendall(beginning)
                while more and not self._closed:
                    peer.settimeout(1.0)
                    peer.sendall(more)
                    if len(more) == 1:
                        time.sleep(0.02)
                # An incomplete answer ends here; "2 GiB announced" stays open.
                if beginning and len(beginning) < 300 and not beginning.endswith((b"}", b"{")):
                    return


#: To a ZooKeeper client all that begins with HTTP/1.1 is one packet that is too long: of those these by day.
ZOOKEEPER = ("nothing", "2 GiB sent", "half a header", "a byte at a time", "SSH", "zeros", "HTML")


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        pytest.param(name, scheme, marks=() if scheme == "etcd" or name in ZOOKEEPER else pytest.mark.nightly)
        for name in ANSWERS
        for scheme in ("etcd", "zookeeper")
    ],
)
def test_no_answer_harms(name, scheme):
    server = Server(ANSWERS[name])
    store = open_store(f"{scheme}://{server.address}", Access(timeout_s=TIMEOUT_S))
    try:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        acts = (
            lambda: store.read(KEY),
            lambda: store.swap(KEY, b"x", None),
            lambda: store.swap(KEY, b"x", Revision("3")),
        )
        if name not in ("another key", "keys without a revision", "a revision below zero") or scheme == "zookeeper":
            acts += (lambda: store.put(KEY, b"x"), lambda: store.list("/rocketbox/"), store.identity)
        for act in acts:
            with pytest.raises(StoreUnavailable) as caught:
                ends(act, "it waits for more of the answer")
            assert len(str(caught.value)) < 1000
        ends(lambda: (store.wait(KEY, Revision("3"), 0.2), tidy(store, True)), "it waits for more of the answer")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
        assert server.connections
    finally:
        store.close()
        server.close()


def test_a_token_goes_into_no_header_of_its_own():
    server = Server(ok(json.dumps({"token": "x\r\nInjected: yes"})))
    store = open_store(f"etcd://{server.address}", Access(timeout_s=TIMEOUT_S, user="u", password="p"))
    try:
        with pytest.raises(StoreUnavailable, match="token"):
            store.read(KEY)
    finally:
        store.close()
        server.close()


def test_an_answer_of_less_than_was_seen_is_refused():
    server = Server(said())
    store = open_store(f"etcd://{server.address}", Access(timeout_s=TIMEOUT_S))
    try:
        assert store.read(KEY)[0] is None
        store._revision = 6
        with pytest.raises(etcd_module.StoreReplaced, match="revision 5"):
            store.read(KEY)
    finally:
        store.close()
        server.close()
