"""Bounds on what a stranger can do to the console's port: `rocketbox serve` itself, over raw sockets."""

from __future__ import annotations

import asyncio
import base64
import errno
import http.client
import json
import os
import re
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest

from appliance import http_connections, request_bodies
from appliance.console.serving import turns
from tests.support import serve_impatient
from tests.support.directories import shared_directory
from tests.support.server import ROOT, Server
from tests.support.waiting import wait_for

PASSWORD = "correct horse battery"
ADMIN = {"ADMIN_USER": "root", "ADMIN_PASSWORD": PASSWORD}
ROLES = "broker,namesrv,console"
HOST = b"Host: 127.0.0.1\r\n"
UPGRADE = HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
MIB = 1 << 20
PATIENCE_S = serve_impatient.PATIENCE_S
# Most bytes that a sender may get rid of: those that the kernel buffers, and those that are dropped after an answer.
ON_THE_WAY = 16 * MIB


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that counts requests that belong together, see `serve_counted`, and treats all others as usual."""
    prefix = (sys.executable, str(ROOT / "tests/support/serve_counted.py"))
    environment = ADMIN | {"PYTHONPATH": str(ROOT)}
    place = shared_directory(request, "http") / "data"
    with Server(place, "--http-port", "0", roles=ROLES, environment=environment, prefix=prefix) as one:
        yield one


@pytest.fixture(scope="module")
def impatient(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with the limits of `serve_impatient`."""
    prefix = (sys.executable, str(ROOT / "tests/support/serve_impatient.py"))
    environment = ADMIN | {"PYTHONPATH": str(ROOT)}
    place = shared_directory(request, "impatient") / "data"
    with Server(place, "--http-port", "0", roles=ROLES, environment=environment, prefix=prefix) as one:
        yield one


def connect(server: Server, source: str = "127.0.0.1") -> socket.socket:
    host, _, port = server.ready["http"].rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60, source_address=(source, 0))


def all_of(peer: socket.socket) -> bytes:
    """Return all that comes until the connection ends, also if it ends with an error."""
    came = b""
    try:
        while piece := peer.recv(65_536):
            came += piece
    except ConnectionError:
        pass
    return came


def said_to(server: Server, pieces: bytes | Iterable[bytes]) -> tuple[bytes, int]:
    """Send the pieces; return (all that was answered until the connection ended, bytes that could be sent)."""
    sent = 0
    with connect(server) as peer:
        try:
            for piece in [pieces] if isinstance(pieces, bytes) else pieces:
                peer.sendall(piece)
                sent += len(piece)
        except ConnectionError:
            pass
        return all_of(peer), sent


def status_of(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:100]
    return int(answer[9:12])


def is_closed(peer: socket.socket, within_s: float) -> bool:
    peer.settimeout(within_s)
    try:
        while peer.recv(65_536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def log_of(server: Server) -> str:
    return server.log_path.read_text(errors="replace")


class Person:
    """A user who has signed in through the form, with bare HTTP requests."""

    def __init__(self, server: Server) -> None:
        self.address = server.ready["http"]
        page, headers = self._ask("GET", "/login/", cookies="")
        cookie = headers["Set-Cookie"].partition(";")[0]
        token = re.search(rb'name="csrfmiddlewaretoken" value="(\w+)"', page)
        assert token is not None
        form = urlencode({"username": "root", "password": PASSWORD, "csrfmiddlewaretoken": token[1].decode()})
        _, headers = self._ask("POST", "/login/", form, cookie, **{"Content-Type": "application/x-www-form-urlencoded"})
        self.cookies = "; ".join(one.partition(";")[0] for one in headers.get_all("Set-Cookie"))
        csrf = re.search(r"rocketbox_csrf=(\w+)", self.cookies)
        assert csrf is not None
        self.csrf = csrf[1]

    def _ask(self, method: str, path: str, body=None, cookies: str = "", **headers: str):
        connection = http.client.HTTPConnection(self.address, timeout=30)
        connection.request(method, path, body, {"Cookie": cookies, **headers})
        response = connection.getresponse()
        self.status = response.status
        page = response.read()
        connection.close()
        return page, response.headers

    def api(self, method: str, path: str, body: object) -> tuple[int, dict]:
        data = json.dumps(body).encode()
        headers = {"X-CSRFToken": self.csrf, "Content-Type": "application/json"}
        page, _ = self._ask(method, f"/api/v1{path}", data, self.cookies, **headers)
        return self.status, json.loads(page)

    def stream(self, server: Server) -> socket.socket:
        peer = connect(server)
        peer.sendall(b"GET /live/ HTTP/1.1\r\n" + HOST + b"Cookie: " + self.cookies.encode() + b"\r\n\r\n")
        assert status_of(peer.recv(65_536)) == 200
        return peer


def sign_out(person: Person) -> None:
    connection = http.client.HTTPConnection(person.address, timeout=30)
    headers = {"Cookie": person.cookies, "Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/logout/", urlencode({"csrfmiddlewaretoken": person.csrf}), headers)
    assert connection.getresponse().status == 302
    connection.close()


# --- bodies

ADDRESSES = ["/login/", "/", "/nothing/there", "/healthz", "/api/v1/tokens", "/api/v1/topics", "/rocketmq/nsaddr",
             "/static/console.css", "/messages/send/", "/api/v1/topics/a/messages", "/system/users/new/"]  # fmt: skip
TOO_LARGE = {"/messages/send/": 403, "/api/v1/topics/a/messages": 401}


def in_chunks(path: str, method: str = "POST", size: int = 64 * MIB) -> Iterator[bytes]:
    yield f"{method} {path} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n".encode() + HOST + b"\r\n"
    for _ in range(size // 65_536):
        yield b"10000\r\n" + b"x" * 65_536 + b"\r\n"


def in_one(path: str, method: str = "POST", size: int = 64 * MIB) -> Iterator[bytes]:
    yield f"{method} {path} HTTP/1.1\r\nContent-Length: {size}\r\n".encode() + HOST + b"\r\n"
    for _ in range(size // 65_536):
        yield b"x" * 65_536


@pytest.mark.parametrize("shape", [in_chunks, in_one])
@pytest.mark.parametrize("path", ADDRESSES)
def test_a_body_larger_than_its_address_takes_is_refused_while_it_comes_and_the_rest_is_not_read(server, path, shape):
    answer, sent = said_to(server, shape(path))
    if shape is in_chunks or path not in TOO_LARGE:
        assert status_of(answer) == TOO_LARGE.get(path, 413)
    else:
        assert status_of(answer) in (401, 403, 413), "more than any user may send"
    assert sent < ON_THE_WAY
    if path.startswith("/api/") and status_of(answer) == 413:
        problem = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert (problem["code"], problem["status"]) == ("too_large", 413)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_a_request_that_only_reads_brings_no_body(server, method):
    answer, sent = said_to(server, in_chunks("/login/", method))
    assert status_of(answer) == 413
    assert sent < ON_THE_WAY


def deleted_files(server: Server) -> set[str]:
    """Return the deleted files that the server has open."""
    names = set()
    for one in Path(f"/proc/{server.pid}/fd").iterdir():
        try:
            names.add(os.readlink(one))
        except OSError:
            continue
    return {name for name in names if "(deleted)" in name}


def test_a_strangers_body_makes_no_file(server):
    """Django would keep a body of more than 2.5 MB in a temporary file."""
    before = deleted_files(server)
    with connect(server) as peer:
        pieces = in_chunks("/messages/send/")
        for _ in range(128):
            try:
                peer.sendall(next(pieces))
            except ConnectionError:
                break
            assert deleted_files(server) == before


@pytest.mark.parametrize("length", [0, 5], ids=["as it should be", "with a body"])
@pytest.mark.parametrize("path", ["/healthz", "/login/", "/nothing/there", "/rocketmq/nsaddr"])
def test_head_is_answered_without_a_body_and_without_a_line_in_the_log(server, path, length):
    before = len(log_of(server))
    head = f"HEAD {path} HTTP/1.1\r\nContent-Length: {length}\r\nConnection: close\r\n".encode() + HOST + b"\r\n"
    answer, _ = said_to(server, head + b"x" * length)
    headers, _, body = answer.partition(b"\r\n\r\n")
    assert body == b""
    assert int(re.search(rb"(?i)content-length: (\d+)", headers)[1]) > 0
    assert "body bytes" not in log_of(server)[before:]


_PART = b'--X\r\nContent-Disposition: form-data; name="a"; filename="f"\r\n\r\nx\r\n'
FORMS_OF_MANY = {
    "fields": ("application/x-www-form-urlencoded", b"a&" * 2000),
    "files": ("multipart/form-data; boundary=X", _PART * 200 + b"--X--"),
}


@pytest.mark.parametrize("kind", ["fields", "files"])
def test_a_form_of_a_strangers_with_too_many_parts_is_refused_without_a_traceback(server, kind):
    cookie = b"Cookie: rocketbox_csrf=" + b"a" * 32 + b"\r\n"
    content_type, form = FORMS_OF_MANY[kind]
    before = len(log_of(server))
    head = f"POST /login/ HTTP/1.1\r\nContent-Length: {len(form)}\r\nContent-Type: {content_type}\r\n"
    answer, _ = said_to(server, head.encode() + cookie + HOST + b"Connection: close\r\n\r\n" + form)
    assert status_of(answer) == 400
    assert log_of(server)[before:] == ""


def test_an_expectation_of_more_than_is_taken_is_answered_before_the_body(server):
    head = b"POST /login/ HTTP/1.1\r\nContent-Length: 100000\r\nExpect: 100-continue\r\n" + HOST + b"\r\n"
    answer, _ = said_to(server, head)
    assert status_of(answer) == 413
    assert b"100 Continue" not in answer


def test_a_form_as_large_as_forms_get_is_read(server):
    answer, _ = said_to(server, in_one("/login/", size=request_bodies.FORM))
    assert status_of(answer) == 403, "read, and refused for what it lacks"


def test_a_test_message_may_be_as_large_as_the_broker_takes_from_those_who_may_send(server):
    person = Person(server)
    assert person.api("POST", "/topics", {"name": "Large"})[0] == 201
    largest = base64.b64encode(b"\xff" * 4 * MIB).decode()
    status, sent = person.api("POST", "/topics/Large/messages", {"body": {"encoding": "base64", "data": largest}})
    assert (status, sent.get("status")) == (201, "SEND_OK")
    longer = {"body": {"encoding": "text", "data": "x" * 5 * MIB}}
    status, problem = person.api("POST", "/topics/Large/messages", longer)
    assert (status, problem["code"]) == (422, "invalid_input"), "read, and refused by the broker's own limit"
    head = b"Cookie: %b\r\nX-CSRFToken: %b\r\n" % (person.cookies.encode(), person.csrf.encode())
    pieces = in_one("/api/v1/topics/Large/messages", size=13 * MIB)
    answer, sent = said_to(server, (piece.replace(HOST, HOST + head) for piece in pieces))
    assert status_of(answer) == 413
    assert sent < 13 * MIB


# --- what is no request for RocketBox


def test_an_upgrade_that_nobody_serves_is_refused_without_a_traceback(server):
    key = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    for path in (b"/", b"/live/", b"/nothing", b"/api/v1/me", b"/messages/tail/?topic=t"):
        answer, _ = said_to(server, b"GET " + path + b" HTTP/1.1\r\n" + UPGRADE + key + b"\r\n")
        assert status_of(answer) == 403
    answer, _ = said_to(server, b"GET / HTTP/1.1\r\n" + UPGRADE + b"Sec-WebSocket-Version: 99\r\n\r\n")
    assert status_of(answer) == 426
    answer, _ = said_to(server, b"GET / HTTP/1.1\r\n" + UPGRADE + b"Sec-WebSocket-Version: 13\r\n\r\n")
    assert status_of(answer) == 400
    assert "Traceback" not in log_of(server)


GARBAGE = {
    "an HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "a TLS hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x07" * 500 + b"\r\n", 400),
    "a number of 5,000 digits": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", 400),
    "two lengths": (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    "a length and chunks": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400,
    ),
    "a chunk that is no chunk": (
        b"POST /login/ HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", 400,
    ),
    "a line too long": (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
    "a line without an end": (b"G" * 100_000, 414),
    "too many fields": (b"GET / HTTP/1.1\r\n" + HOST + b"".join(b"a%d: b\r\n" % n for n in range(70)) + b"\r\n", 431),
    "a field too long": (b"GET / HTTP/1.1\r\n" + HOST + b"a: " + b"b" * 9000 + b"\r\n\r\n", 431),
    "fields too long in all": (
        b"GET / HTTP/1.1\r\n" + HOST + b"".join(b"a%d: %b\r\n" % (n, b"b" * 8000) for n in range(40)), 431,
    ),
    "zeros": (b"\0" * 5000 + b"\r\n\r\n", 400),
}  # fmt: skip


@pytest.mark.parametrize("what", GARBAGE)
def test_what_is_no_request_is_refused_in_a_line_and_closed(server, what):
    data, status = GARBAGE[what]
    answer, _ = said_to(server, data)
    assert status_of(answer) == status
    assert "Traceback" not in log_of(server)


def test_requests_that_come_at_once_are_all_answered_in_order(server):
    request = b"GET /%b HTTP/1.1\r\n" + HOST + b"\r\n"
    answer, _ = said_to(server, b"".join(request % path for path in (b"healthz", b"readyz", b"healthz")))
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"200", b"200"]
    assert b"ok\n" in answer


def test_a_peer_that_leaves_in_the_middle_of_anything_leaves_no_trace(server):
    for data in (b"GET / HT", b"POST /login/ HTTP/1.1\r\n" + HOST + b"Content-Length: 500\r\n\r\nabc",
                 b"GET /login/ HTTP/1.1\r\n" + HOST + b"\r\n"):  # fmt: skip
        with connect(server) as peer:
            peer.sendall(data)
    time.sleep(0.3)
    assert status_of(said_to(server, b"GET /healthz HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n")[0]) == 200
    assert "Traceback" not in log_of(server)


# --- slow ones, and many


def trickle(peer: socket.socket, data: bytes, seconds: float) -> None:
    """Send a byte now and then for some seconds, as long as the peer takes them."""
    end = time.monotonic() + seconds
    for byte in data:
        if time.monotonic() > end:
            return
        try:
            peer.send(bytes([byte]))
        except ConnectionError:
            return
        time.sleep(0.1)


def test_slow_ones_are_closed_and_told_why_when_they_had_begun(impatient):
    silent, half, body, idle = (connect(impatient) for _ in range(4))
    with silent, half, body, idle:
        half.sendall(b"GET / HTTP/1.1\r\n")
        body.sendall(b"POST /login/ HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\nabc")
        idle.sendall(b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n")
        assert all_of(silent) == b""
        assert status_of(all_of(half)) == 408
        assert status_of(all_of(body)) == 408
        assert status_of(all_of(idle)) == 200


def test_a_large_body_that_stops_is_given_up_with_a_reason_before_the_server_gives_up_without(impatient):
    person = Person(impatient)
    assert request_bodies.SILENCE_S < 30  # gunicorn's, in `BodyReceiver._wait_for_data`
    with connect(impatient) as peer:
        head = f"POST /api/v1/topics/a/messages HTTP/1.1\r\nContent-Length: {2 * MIB}\r\nCookie: {person.cookies}\r\n"
        peer.sendall(head.encode() + HOST + b"\r\n" + b"x" * MIB)
        peer.settimeout(60)  # by the rate alone it would be 64 s
        assert status_of(all_of(peer)) == 408


def test_a_byte_now_and_then_buys_no_time(impatient):
    """In a header, in a second one, in a body and in chunks."""
    begins = (
        b"",
        b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
        b"POST /login/ HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n",
        b"POST /login/ HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n",
    )

    def is_cut_off(begin: bytes) -> bool:
        with connect(impatient) as peer:
            peer.sendall(begin)
            chunks, head = b"1\r\nx\r\n" * 100, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50
            trickle(peer, chunks if b"chunked" in begin else head, PATIENCE_S + 2)
            return is_closed(peer, 60)

    with ThreadPoolExecutor(len(begins)) as pool:
        assert list(pool.map(is_cut_off, begins)) == [True] * len(begins)


def sockets_of(server: Server) -> int:
    count = 0
    for one in Path(f"/proc/{server.pid}/fd").iterdir():
        try:
            count += os.readlink(one).startswith("socket:")
        except OSError:
            continue
    return count


def alone(server: Server) -> int:
    """Wait until the connections of earlier tests are closed; return the number of the server's sockets."""
    port = f":{int(server.ready['http'].rpartition(':')[2]):04X}"
    gone = {"06", "0A"}  # TIME_WAIT, LISTEN

    def connected() -> bool:
        lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return any(line[1].endswith(port) and line[3] not in gone and line[9] != "0" for line in lines)

    wait_for(lambda: not connected(), "the connections of earlier tests to be closed")
    return sockets_of(server)


def test_a_reader_that_takes_no_answer_is_cut_off(impatient):
    page = Person(impatient)._ask("GET", "/login/")[0].decode()
    assets = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
    largest = max(assets, key=lambda path: len(Person(impatient)._ask("GET", path)[0]))
    request = b"GET " + largest.encode() + b" HTTP/1.1\r\n" + HOST + b"\r\n"
    before = alone(impatient)
    with connect(impatient) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.sendall(request * 500)
        wait_for(lambda: sockets_of(impatient) > before, "it to be let in")
        wait_for(lambda: sockets_of(impatient) <= before, "it to wait for its reader no more")


@pytest.mark.parametrize("addresses", [1, 8])
def test_a_crowd_that_only_connects_keeps_nobody_out(impatient, addresses):
    before = alone(impatient)
    crowd = []
    try:
        for number in range(40):
            crowd.append(connect(impatient, source=f"127.0.0.{2 + number % addresses}"))
            crowd[-1].sendall(b"GET / HTTP/1.1\r\n")
        ask = b"GET /healthz HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n"
        with connect(impatient, source="127.0.0.2") as peer:
            peer.sendall(ask)
            assert status_of(all_of(peer)) == 200
        bound = serve_impatient.CONNECTIONS_EACH if addresses == 1 else serve_impatient.CONNECTIONS
        assert sockets_of(impatient) - before <= bound
    finally:
        for one in crowd:
            one.close()


def test_a_crowd_that_asks_and_takes_no_answer_keeps_nobody_out(impatient):
    asked = b"GET /static/vendor/uplot/uPlot.iife.min.js HTTP/1.1\r\n" + HOST + b"\r\n"
    alone(impatient)
    peers = [connect(impatient, f"127.0.0.{2 + number % 2}") for number in range(serve_impatient.CONNECTIONS)]
    try:
        for peer in peers:
            peer.sendall(asked * 200)  # 10 MB of answers
        time.sleep(PATIENCE_S / 2)
        with connect(impatient) as honest:
            honest.sendall(b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n")
            assert status_of(honest.recv(65_536)) == 200
    finally:
        for peer in peers:
            peer.close()


class Seat:
    """A connection, as far as `Connections` uses one."""

    dropped = False

    def drop(self) -> None:
        self.dropped = True


def test_who_does_not_take_an_answer_goes_after_who_asks_nothing_and_who_takes_it_stays():
    crowd = http_connections.Connections(3, 3)
    stalled, reading, silent = seats = [Seat() for _ in range(3)]
    for seat in seats:
        assert crowd.admit(seat, "a")
    for seat in (stalled, reading):
        crowd.works(seat)
        crowd.stalls(seat)
    crowd.flows(reading)
    first = Seat()
    assert crowd.admit(first, "b")
    crowd.works(first)
    assert (stalled.dropped, reading.dropped, silent.dropped) == (False, False, True)
    second = Seat()
    assert crowd.admit(second, "b")
    crowd.works(second)
    assert (stalled.dropped, reading.dropped) == (True, False)
    assert not crowd.admit(Seat(), "b")
    assert len(crowd) == 3


def test_streams_outlive_every_limit_of_time_and_beyond_the_number_a_new_one_is_told_so(impatient):
    person = Person(impatient)
    streams = [person.stream(impatient) for _ in range(serve_impatient.CONNECTIONS_EACH)]
    try:
        answer, _ = said_to(impatient, b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n")
        assert status_of(answer) == 503
        time.sleep(3 * PATIENCE_S)
        for one in streams:
            one.setblocking(False)
            while True:
                try:
                    assert one.recv(65_536), "still open"
                except BlockingIOError:
                    break
            one.settimeout(60)
            assert b"data: " in one.recv(65_536)
        host, _, port = impatient.broker.rpartition(":")
        socket.create_connection((host, int(port)), timeout=60).close()
    finally:
        for one in streams:
            one.close()
    answer, _ = said_to(impatient, b"GET /healthz HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n")
    assert status_of(answer) == 200


def test_a_peer_that_has_reset_the_connection_is_dropped_without_an_error():
    done = []

    class Reset(asyncio.Transport):
        def can_write_eof(self):
            return True

        def write_eof(self):
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

        def abort(self):
            done.append("abort")

    protocol = object.__new__(http_connections.BoundedProtocol)
    protocol.worker = SimpleNamespace(loop=SimpleNamespace(call_later=lambda *_: None))
    protocol.transport, protocol._all = Reset(), http_connections.Connections(8, 8)
    protocol._closed, protocol._lost_track, protocol._reading_paused = False, True, False
    protocol._head_timer = protocol._body_receiver = None
    protocol._close_transport()
    assert done == ["abort"]


def test_a_host_is_one_address_however_many_it_has():
    address_of = http_connections.address_of
    assert address_of(("2001:db8::1", 1, 0, 0)) == address_of(("2001:db8::2", 2, 0, 0))
    assert address_of(("2001:db8::1", 1)) != address_of(("2001:db8:0:1::1", 1))
    assert address_of(("::ffff:10.0.0.1", 1)) == address_of(("10.0.0.1", 5))
    assert address_of(("fe80::1%eth0", 1)) == address_of(("fe80::2", 1))


# --- turns, and what ends


def sign_in_request(server: Server, name: str, password: str) -> bytes:
    """Return a whole request that tries a password, with the token of a form loaded for it."""
    with connect(server) as peer:
        peer.sendall(b"GET /login/ HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n")
        page = all_of(peer)
    cookie = re.search(rb"rocketbox_csrf=\w+", page)
    token = re.search(rb'name="csrfmiddlewaretoken" value="(\w+)"', page)
    assert cookie is not None
    assert token is not None
    form = urlencode({"username": name, "password": password, "csrfmiddlewaretoken": token[1].decode()}).encode()
    kind = b"Content-Type: application/x-www-form-urlencoded\r\nConnection: close\r\n"
    head = b"POST /login/ HTTP/1.1\r\n" + HOST + b"Cookie: " + cookie[0] + b"\r\n" + kind
    return head + b"Content-Length: %d\r\n\r\n" % len(form) + form


def at_once(server: Server, requests: list[bytes], source: str = "127.0.0.1") -> list[bytes]:
    """Send all requests before reading the first answer; return the answers."""
    peers = [connect(server, source) for _ in requests]
    try:
        for peer, request in zip(peers, requests, strict=True):
            peer.sendall(request)
        return [all_of(peer) for peer in peers]
    finally:
        for peer in peers:
            peer.close()


def memory_of(server: Server) -> tuple[int, int]:
    """Return (peak of resident bytes, threads) of the serving process."""
    text = Path(f"/proc/{server.pid}/status").read_text()
    peak = re.search(r"VmHWM:\s+(\d+) kB", text)
    threads = re.search(r"Threads:\s+(\d+)", text)
    assert peak is not None
    assert threads is not None
    return int(peak[1]) << 10, int(threads[1])


def together(request: bytes, which: str) -> bytes:
    """Return the request with the header by which `serve_counted` knows those that belong together."""
    return request.replace(HOST, HOST + b"X-Together: " + which.encode() + b"\r\n", 1)


def under_way(answers: list[bytes]) -> int:
    """Return how many of these requests Django had at the same time, at most."""
    found = [re.search(rb"(?i)\r\nX-Under-Way: (\d+)\r\n", one) for one in answers]
    return max(0 if one is None else int(one[1]) for one in found)


#: Requests of each kind: more than any place has, and no crowd, which rests between its pages.
SOME = turns.CROWD + 1


def most_at_once(server: Server, line: str, cookies: str) -> int:
    asked = line.encode() + b" HTTP/1.1\r\nConnection: close\r\n" + HOST + b"Cookie: " + cookies.encode() + b"\r\n\r\n"
    request = together(asked, f"{SOME} {line} {cookies}")
    return under_way(at_once(server, [request] * SOME, source="127.0.0.3"))


def test_what_a_user_asks_for_at_once_takes_turns(server):
    person = Person(server)
    person._ask("GET", "/topics/", cookies=person.cookies)  # from here on the user is known before a request begins
    assert most_at_once(server, "GET /topics/", person.cookies) == turns.PAGES_AT_ONCE
    assert most_at_once(server, "GET /api/v1/topics", person.cookies) == turns.PAGES_AT_ONCE
    assert most_at_once(server, "POST /topics/none/edit/", person.cookies) == turns.ACTS_EACH
    assert most_at_once(server, "POST /api/v1/topics", person.cookies) == turns.ACTS_EACH
    # A trial waits for other machines, so it has no place of a page.
    assert most_at_once(server, "GET /connect/try/", person.cookies) == 1
    assert most_at_once(server, "GET /api/v1/connect/trial?host=127.0.0.9", person.cookies) == 1


def test_what_a_stranger_asks_for_at_once_takes_turns(server):
    for line in ("GET /topics/", "POST /topics/none/edit/", "POST /setup/x/", "GET /login/oidc/back/"):
        assert most_at_once(server, line, "") == 1, line
    for line in ("GET /healthz", "GET /static/console.css"):
        assert most_at_once(server, line, "") == turns.QUICK_AT_ONCE, line


def test_a_hundred_sign_ins_at_once_try_five_passwords_and_take_turns(server):
    # Not the user of the other tests: all loopback addresses count as one.
    made, _ = Person(server).api("POST", "/users", {"username": "owner", "role": "viewer", "password": PASSWORD})
    assert made == 201
    known = re.search(rb"rocketbox_known=[^;]+", at_once(server, [sign_in_request(server, "owner", PASSWORD)])[0])
    assert known is not None
    before, threads = memory_of(server)
    request = together(sign_in_request(server, "owner", "wrong-password"), "100 sign-ins")
    answers = at_once(server, [request] * 100, source="127.0.0.2")
    assert [status_of(one) for one in answers] == [422] * 100
    assert under_way(answers) == 1
    assert sum(b"Wrong name or password" in one for one in answers) == 5
    peak, now = memory_of(server)
    assert peak - before < 96 * MIB
    assert now - threads < 16, "a thread for each"
    right = sign_in_request(server, "owner", PASSWORD)
    assert b"Too many wrong" in at_once(server, [right])[0]
    right = right.replace(b"Cookie: ", b"Cookie: " + known[0] + b"; ")
    assert status_of(at_once(server, [right])[0]) == 302, "they have signed in there before"


def test_streams_asked_for_at_once_are_no_more_than_one_user_may_have(server):
    person = Person(server)
    peers = [connect(server) for _ in range(24)]
    try:
        for peer in peers:
            peer.sendall(b"GET /live/ HTTP/1.1\r\n" + HOST + b"Cookie: " + person.cookies.encode() + b"\r\n\r\n")
        statuses = [status_of(peer.recv(65_536)) for peer in peers]
    finally:
        for peer in peers:
            peer.close()
    assert sorted(set(statuses)) == [200, 429]
    assert statuses.count(200) == 8


@pytest.fixture
def backup(server: Server) -> Iterator[str]:
    """The address of a backup that takes long to read: it is larger than the kernel's buffers."""
    path = server.data_dir / "rocketbox/backups/rocketbox-20260101-000000.tar"
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.truncate(256 * MIB)
    yield f"/api/v1/system/backups/{path.name}/file"
    path.unlink()


def asks_for(server: Server, person: Person, path: str) -> socket.socket:
    peer = connect(server)
    peer.sendall(f"GET {path} HTTP/1.1\r\n".encode() + HOST + b"Cookie: " + person.cookies.encode() + b"\r\n\r\n")
    return peer


def test_files_asked_for_at_once_and_read_slowly_are_no_more_than_one_user_may_have(server, backup):
    person = Person(server)
    peers = [asks_for(server, person, backup) for _ in range(24)]
    try:
        answers = [peer.recv(4096) for peer in peers]
        assert sorted(map(status_of, answers)) == [200] * 8 + [429] * 16
        assert b"too_many_streams" in next(one for one in answers if status_of(one) == 429)
    finally:
        for peer in peers:
            peer.close()

    def again() -> bool:
        with asks_for(server, person, backup) as peer:
            return status_of(peer.recv(4096)) == 200

    wait_for(again, "a place to be free")


def test_a_download_ends_when_its_user_is_signed_out_elsewhere(server, backup):
    person = Person(server)
    with asks_for(server, person, backup) as peer:
        assert status_of(peer.recv(4096)) == 200
        sign_out(person)
        assert len(all_of(peer)) < 128 * MIB


def test_a_download_by_a_token_ends_when_the_token_is_revoked(server, backup):
    person = Person(server)
    rights = {"may_read_bodies": True, "may_export": True}
    assert person.api("PATCH", "/users/root", rights)[0] == 200
    status, token = person.api("POST", "/tokens", {"name": "nightly copy", "role": "admin", **rights})
    assert status == 201
    with connect(server) as peer:
        bearer = f"Authorization: Bearer {token['secret']}\r\n\r\n".encode()
        peer.sendall(f"GET {backup} HTTP/1.1\r\n".encode() + HOST + bearer)
        assert status_of(peer.recv(4096)) == 200
        assert person.api("DELETE", f"/tokens/{token['id']}", None)[0] == 200
        assert len(all_of(peer)) < 128 * MIB


def test_a_stream_ends_when_its_user_is_signed_out_elsewhere(server):
    person, other = Person(server), Person(server)
    with person.stream(server) as stream, other.stream(server) as others:
        sign_out(person)
        assert not all(stream.recv(65_536) for _ in range(8)), "frame after frame still comes"
        assert others.recv(65_536), "another session's goes on"


@pytest.mark.parametrize("path", ["/api/v1/openapi.json", "/topics/?show=all&format=csv"])
def test_a_hundred_who_ask_for_much_and_read_nothing_cost_little_and_others_are_answered(server, path):
    person = Person(server)
    before, _ = memory_of(server)
    peers = [connect(server, "127.0.0.2") for _ in range(100)]
    asked = f"GET {path} HTTP/1.1\r\n".encode() + HOST + b"Cookie: " + person.cookies.encode() + b"\r\n\r\n"
    try:
        for peer in peers:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.sendall(asked * 2)
        with connect(server) as other:
            other.sendall(asked.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            assert status_of(all_of(other)) == 200
        first = [peer.recv(16) for peer in peers]
        assert {status_of(one) for one in first if one} <= {200, 503}
        peak, _ = memory_of(server)
        assert peak - before < 96 * MIB
    finally:
        for peer in peers:
            peer.close()
    person._ask("GET", "/topics/", cookies=person.cookies)
    assert person.status == 200
