"""A schema registry: what it is asked, how often, and what becomes of its failures."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from appliance.engine.bodies.work import Unfit
from appliance.engine.config import check_registry
from appliance.engine.errors import InvalidInput
from appliance.engine.window.topics import registry as registry_module
from appliance.engine.window.topics.registry import MOST_QUESTIONS, Registry
from tests.support.clock import FakeClock
from tests.support.engine import RunningEngine
from tests.support.waiting import wait_for

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
BODY = b"\0\0\0\0\x07\x54"


class Registered(BaseHTTPRequestHandler):
    """Answers like a registry; `answers`: id -> (status, body). before: called first."""

    answers: dict[str, tuple[int, bytes]]
    asked: list[tuple[str, str | None]]
    before = staticmethod(lambda: None)

    def do_GET(self) -> None:
        self.before()
        self.asked.append((self.path, self.headers.get("Authorization")))
        status, body = self.answers.get(self.path.rpartition("/")[2], (404, b"{}"))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Location", "/schemas/ids/7")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture
def served() -> Iterator[tuple[str, type[Registered]]]:
    """(address, the handler with its answers and what it was asked)"""

    class Handler(Registered):
        answers = {"7": (200, json.dumps({"schema": json.dumps(ORDER)}).encode())}  # noqa: RUF012
        asked = []  # noqa: RUF012

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/base/", Handler
        server.shutdown()
        thread.join()


def body(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + b"\x54"


def test_a_schema_is_asked_for_once_with_the_secret_of_the_file(served, tmp_path):
    address, handler = served
    (tmp_path / "secret").write_text("anna:s3cret\n")
    registry = Registry(address, str(tmp_path / "secret"))
    for _ in range(3):
        assert json.loads(registry.decode(BODY)) == {"id": 42}
    assert handler.asked == [("/base/schemas/ids/7", "Basic " + base64.b64encode(b"anna:s3cret").decode())]
    for unfit in (b"", b"\x54", b"\0\0\0", BODY + b"x"):
        assert registry.decoded(unfit) is None
    assert len(handler.asked) == 1


def test_a_protobuf_schema_is_read_and_the_body_says_which_message_it_is(served):
    address, handler = served
    text = 'syntax = "proto3"; message A { int32 a = 1; message B { string b = 1; } }'
    handler.answers["9"] = 200, json.dumps({"schema": text, "schemaType": "PROTOBUF"}).encode()
    registry = Registry(address)
    begin = b"\0\0\0\0\x09"
    assert json.loads(registry.decode(begin + b"\0\x08\x05")) == {"a": 5}
    assert json.loads(registry.decode(begin + b"\x04\0\0\x0a\x01x")) == {"b": "x"}
    with pytest.raises(Unfit, match="no message of this number"):
        registry.decode(begin + b"\x02\x02")
    assert len(handler.asked) == 1


def test_failures_are_kept_for_a_while_and_questions_are_bounded(served):
    address, handler = served
    clock = FakeClock()
    registry = Registry(address, clock=clock)
    for _ in range(3):
        with pytest.raises(Unfit, match="schema 1 of the registry: there is none"):
            registry.decode(body(1))
    assert len(handler.asked) == 1
    clock.advance(ms=int(registry_module.FAILURE_S * 1000))
    assert registry.decoded(body(1)) is None
    assert len(handler.asked) == 2
    for number in range(100, 100 + 2 * MOST_QUESTIONS):
        assert registry.decoded(body(number)) is None
    assert len(handler.asked) <= MOST_QUESTIONS + 1
    with pytest.raises(Unfit, match="too many schemas just now"):
        registry.decode(BODY)
    clock.advance(ms=int(registry_module.SPAN_S * 1000))
    assert json.loads(registry.decode(BODY)) == {"id": 42}


@pytest.mark.parametrize(
    ("status", "answer", "reason"),
    [
        (302, b"", "the answer has the status 302"),
        (500, b"secret of the registry", "the answer has the status 500"),
        (200, b"<html>", "none of a schema registry"),
        (200, b"[" * 5000, "none of a schema registry"),
        (200, b'{"schema": "{"}', "schema 8 of the registry: it is not JSON"),
        (200, b'{"schema": "x", "schemaType": "JSON"}', "it is neither Avro nor Protobuf"),
        (200, b'{"schema": "x", "schemaType": "PROTOBUF"}', "schema 8 of the registry: “x” stands"),
        (200, b'{"schema": "\\"int\\"", "references": [{}]}', "references"),
        (200, b" " * (600 << 10), "the answer is too long"),
    ],
)
def test_odd_answers_are_a_reason(served, status, answer, reason):
    address, handler = served
    handler.answers["8"] = status, answer
    with pytest.raises(Unfit, match=reason):
        Registry(address).decode(body(8))
    assert [path for path, _ in handler.asked] == ["/base/schemas/ids/8"], "no redirect is followed"


@contextmanager
def scripted(*pieces: bytes, rest: bytes) -> Iterator[tuple[str, list[int]]]:
    """(address, [number of connections]) of a server that sends the pieces, and then `rest` again and again."""
    connections = [0]
    ended = threading.Event()

    def serve(listening: socket.socket) -> None:
        while True:
            try:
                sock, _ = listening.accept()
            except OSError:
                return
            connections[0] += 1
            with sock:
                try:
                    for piece in pieces:
                        sock.sendall(piece)
                    while not ended.wait(0.02):
                        sock.sendall(rest)
                except OSError:
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", connections
        finally:
            ended.set()
            listening.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize(
    ("begin", "rest"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;", b"x"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
    ],
    ids=["head", "chunk", "length", "end"],
)
def test_a_registry_that_answers_without_end_is_left_alone_for_a_while(monkeypatch, begin, rest):
    monkeypatch.setattr(registry_module, "TIMEOUT_S", 0.3)
    clock = FakeClock()
    with scripted(begin, rest=rest) as (address, connections):
        registry = Registry(address, clock=clock)
        for number in (1, 2, 3):
            with pytest.raises(Unfit, match=r"does not answer: .+ time"):
                registry.decode(body(number))
        wait_for(lambda: connections[0], "it is asked")
        assert connections == [1]
        clock.advance(ms=int(registry_module.AWAY_S * 1000))
        assert registry.decoded(body(1)) is None
        wait_for(lambda: connections[0] > 1, "it is asked again")
        assert connections == [2]


def test_a_line_of_a_list_waits_for_no_registry(served):
    address, handler = served
    goes_on = threading.Event()
    handler.before = goes_on.wait
    registry = Registry(address)
    try:
        for number in (7, 8, 7):
            with pytest.raises(Unfit, match="being asked for"):
                registry.decode(body(number), 500)
    finally:
        goes_on.set()
    wait_for(lambda: registry.decoded(BODY, 500) == b'{"id":42}', "the schema that was asked for")
    assert handler.asked == [("/base/schemas/ids/7", None)]


def test_ids_of_strangers_push_no_schema_out(served, monkeypatch):
    address, handler = served
    monkeypatch.setattr(registry_module, "_MOST_KEPT", 1)
    registry = Registry(address)
    assert registry.decoded(BODY) == b'{"id":42}'
    assert registry.decoded(body(1)) is None
    assert registry.decoded(BODY) == b'{"id":42}'
    assert [path[-1] for path, _ in handler.asked] == ["7", "1"]


def test_a_registry_that_is_not_there_is_a_reason(tmp_path):
    with pytest.raises(Unfit, match="does not answer"):
        Registry("http://a..b").decode(BODY)
    with pytest.raises(Unfit, match="does not answer"):
        Registry("http://127.0.0.1:1").decode(BODY)
    with pytest.raises(Unfit, match="does not answer"):
        Registry("http://127.0.0.1:1", str(tmp_path / "none")).decode(BODY)


def test_a_topic_is_shown_by_the_registry_that_the_configuration_names(served, tmp_path):
    address, _ = served
    running = RunningEngine(tmp_path, broker={"schema_registry": check_registry(address)})
    try:
        running.put("Orders", BODY, b"\x54")
        with pytest.raises(InvalidInput, match="the registry has the schemas"):
            running.window.schemas.put("Orders", kind="registry", data=b"x")
        running.window.schemas.put("Orders", kind="registry", data=b"")
        view = running.window.messages.body("Orders/0/0")
        assert (json.loads(view.decoded), view.schema) == ({"id": 42}, "schema registry")
        assert running.window.messages.body("Orders/0/1").notes[0].code == "body_unfit"
    finally:
        running.stop()


def test_a_filter_of_a_job_waits_for_the_registry(served, tmp_path, monkeypatch):
    monkeypatch.setattr(registry_module, "TIMEOUT_S", 60.0)
    address, handler = served
    running = RunningEngine(tmp_path, broker={"schema_registry": check_registry(address)})

    def found(**asked):
        page = running.window.messages.page("Orders", filter_text="body('$.id') = 42", **asked)
        return len(page.rows), page.undecided

    asked = threading.Event()
    handler.before = staticmethod(lambda: asked.wait(60) and None)
    try:
        running.put("Orders", BODY, body(8))
        running.window.schemas.put("Orders", kind="registry", data=b"")
        assert found() == (0, 2), "a page does not"
        asked.set()
        assert found(patient=True) == (1, 1), "and there is no schema 8"
    finally:
        asked.set()
        running.stop()


def test_without_a_registry_no_topic_can_name_it(running):
    running.put("Orders", BODY)
    with pytest.raises(InvalidInput, match="schemaRegistry is not set"):
        running.window.schemas.put("Orders", kind="registry", data=b"")


@pytest.mark.parametrize(
    "address", ["registry:8081", "ftp://registry", "http://", "http://anna:secret@registry", "http://a?b", "http://a:x"]
)
def test_addresses_that_are_none_are_refused(address):
    with pytest.raises(ValueError, match="http"):
        check_registry(address)
