"""The live tail's WebSocket on `rocketbox serve` itself: who may open one, what it sends, and how it ends."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from tests.support.directories import shared_directory
from tests.support.peer import Peer, send_fields
from tests.support.reverse_proxy import ReverseProxy
from tests.support.server import Server
from tests.support.waiting import wait_for
from tests.support.web_socket import Refused, WebSocket

PASSWORD = "correct horse battery"
ADMIN = {"ADMIN_USER": "root", "ADMIN_PASSWORD": PASSWORD}
ROLES = "broker,namesrv,console"
TOPIC = "watched"
KEYS = "KEYS\x01" + "k" * 1000 + "\x02"
AT = f"/messages/tail/?topic={TOPIC}"


class Tail(WebSocket):
    """A web socket whose heartbeats are not shown: one comes between any two texts on a slow machine."""

    def next(self, timeout_s: float = 60.0) -> str | None:
        while (text := super().next(timeout_s)) == '{"beat": true}':
            pass
        return text


class Browser:
    """A client of the console that signs in, keeps cookies and fills in forms."""

    def __init__(self, server: Server, name: str = "root", password: str = PASSWORD) -> None:
        self.server = server
        self.cookies: dict[str, str] = {}
        self._token = ""
        self.location = ""
        self.get("/login/")
        status, _ = self.post("/login/", username=name, password=password)
        assert status == 302

    @property
    def headers(self) -> dict[str, str]:
        return {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}

    def get(self, path: str) -> tuple[int, str]:
        return self._ask("GET", path)

    def post(self, path: str, **fields: str) -> tuple[int, str]:
        fields["csrfmiddlewaretoken"] = self._token
        return self._ask("POST", path, urlencode(fields))

    def _ask(self, method: str, path: str, body: str | None = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.server.ready["http"], timeout=60)
        headers = self.headers | {"Content-Type": "application/x-www-form-urlencoded"} if body else self.headers
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        text = response.read().decode()
        self.location = response.headers.get("Location", "")
        for value in response.headers.get_all("Set-Cookie") or ():
            name, _, rest = value.partition("=")
            self.cookies[name] = rest.split(";")[0]
        if 'name="csrfmiddlewaretoken" value="' in text:
            self._token = text.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
        connection.close()
        return response.status, text

    def watch(self, path: str = AT, **options) -> Tail:
        return Tail(self.server.ready["http"], path, self.headers, **options)


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(shared_directory(request, "tail") / "data", "--http-port", "0", roles=ROLES, environment=ADMIN) as one:
        make_topic(one)
        yield one


@pytest.fixture
def root(server) -> Browser:
    return Browser(server)


def make_topic(server: Server) -> None:
    peer = Peer(server.broker)
    fields = {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6",
              "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip
    assert peer.ask(17, fields).code == 0
    peer.close()


def send(server: Server, *bodies: bytes) -> None:
    peer = Peer(server.broker)
    for body in bodies:
        assert peer.ask(310, send_fields(TOPIC, 0, "TAGS\x01paid\x02KEYS\x01order-1\x02"), body).code == 0
    peer.close()


def begun(socket: Tail) -> Tail:
    assert json.loads(socket.next() or "{}") == {"began": True}
    return socket


def rows(socket: Tail, count: int) -> list[dict]:
    found: list[dict] = []
    while len(found) < count:
        frame = json.loads(socket.next() or "null")
        found += frame.get("rows", ())  # none: a frame of counts alone
    return found


def user(root: Browser, name: str, **form: str) -> Browser:
    """Let the administrator create a user; return a browser in which that user has chosen a password."""
    root.get("/system/users/new/")
    fields = {"topic_pattern": "*", "group_pattern": "*", "first": "password"}
    root.post("/system/users/new/", username=name, role="viewer", **(fields | form))
    _, page = root.get(root.location)
    first = page.split('class="secret')[1].split(">")[1].split("<")[0].strip()
    made = Browser(root.server, name, first)
    made.get("/account/")
    status, page = made.post("/account/", current=first, password=PASSWORD, again=PASSWORD)
    assert status == 302, page
    return made


def test_a_message_comes_with_its_body_and_the_reading_is_in_the_audit_log(server, root):
    with begun(root.watch(AT + "&tags=paid")) as socket:
        send(server, b"the body")
        [row] = rows(socket, 1)
    assert (row["glance"], row["tags"], row["keys"], row["queue_id"]) == ("the body", "paid", ["order-1"], 0)
    _, page = root.get("/system/audit/?q=message.tail")
    assert "message.tail" in page
    assert TOPIC in page


def test_without_the_right_to_bodies_there_are_none(server, root):
    viewer = user(root, "vera")
    with begun(viewer.watch()) as socket:
        send(server, b"the secret body")
        text = socket.next() or ""
    assert "secret" not in text
    assert json.loads(text)["rows"][0]["glance"] is None
    assert json.loads(text)["rows"][0]["tags"] == "paid"


@pytest.mark.parametrize(
    ("origin", "signed_in"),
    [
        ("http://evil.example", True),
        ("", True),
        ("null", True),
        (None, False),
        ("http://127.0.0.1:1", True),
        ("http://[::1", False),
        ("http://[x]", True),
    ],
)
def test_strangers_and_other_pages_are_refused(server, root, origin, signed_in):
    headers = root.headers if signed_in else {}
    with pytest.raises(Refused) as refused:
        WebSocket(server.ready["http"], AT, headers, origin)
    assert refused.value.status == 403


def test_another_host_name_is_refused(server, root):
    with pytest.raises(Refused) as refused:
        WebSocket(server.ready["http"], AT, root.headers | {"Host": "evil.example"}, "http://evil.example")
    assert refused.value.status == 403


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("topic=no-such", "gone"),
        ("topic=watched&expression=a+%3E", "unavailable"),
        ("topic=watched&one_in=x", "unavailable"),
    ],
)
def test_what_cannot_be_watched_ends_with_a_word(root, query, why):
    with root.watch(f"/messages/tail/?{query}") as socket:
        assert json.loads(socket.next() or "") == {"end": why}
        assert socket.next() is None
        assert socket.code == 4000


def test_nobody_opens_more_than_a_few(root):
    sockets = [begun(root.watch()) for _ in range(4)]
    with root.watch() as one_more:
        assert json.loads(one_more.next() or "") == {"end": "too-many-yours"}
    sockets.pop().close()

    def begins() -> bool:
        with root.watch() as another:
            return json.loads(another.next() or "{}") == {"began": True}

    wait_for(begins, "there to be room for another")
    for socket in sockets:
        socket.close()


def test_a_pause_holds_back_and_says_how_many(server, root):
    counts: Counter[str] = Counter()

    def note(text: str | None) -> None:
        frame = json.loads(text or "{}")
        counts.update({"passed": frame.get("passed", 0), "held_back": frame.get("held_back", 0)})
        counts["shown"] += len(frame.get("rows", ()))

    with begun(root.watch()) as socket:
        socket.send("pause")

        def holds_back() -> bool:
            """The server does not say when the pause begins."""
            counts["sent"] += 3
            send(server, b"1", b"2", b"3")
            try:
                note(socket.next(1.0))
            except TimeoutError:
                return True
            return False

        wait_for(holds_back, "the pause")
        wait_for(holds_back, "it to last")
        socket.send("go on")
        while counts["passed"] < counts["sent"]:
            note(socket.next())
        assert counts["held_back"] >= 3
        assert counts["shown"] + counts["held_back"] == counts["passed"] == counts["sent"]
        send(server, b"4")
        assert [row["glance"] for row in rows(socket, 1)] == ["4"]


def test_a_browser_that_does_not_read_costs_a_bounded_amount_and_is_told_what_it_missed(server, root):
    slow = begun(root.watch(AT + "&per_second=200", receive_buffer=4096))
    body = "\U0001f680".encode() * 240
    peer = Peer(server.broker)
    sent, end = 0, time.monotonic() + 6
    while time.monotonic() < end or sent < 1300:  # fewer fit into what lies between
        for _ in range(15):
            assert peer.ask(310, send_fields(TOPIC, 0, KEYS), body).code == 0
            sent += 1
        time.sleep(0.05)
    peer.close()
    counts = dict.fromkeys(("passed", "shown", "left_out", "dropped", "held_back", "filtered", "unread"), 0)
    while counts["passed"] < sent:
        frame = json.loads(slow.next() or "null")
        for name in counts:
            counts[name] += frame.get(name, 0)
        counts["shown"] += len(frame.get("rows", ()))
    slow.close()
    assert counts.pop("passed") == sum(counts.values()), counts
    assert counts["dropped"] > 0, counts


@pytest.mark.parametrize("what", ["pings", "empty pieces"])
def test_pings_and_empty_pieces_without_end_close_the_socket(root, what):
    piece = b"\x89\xfd" + bytes(4 + 125) if what == "pings" else (b"\x00\x80" + bytes(4)) * 20
    with begun(root.watch()) as socket:
        with contextlib.suppress(ConnectionError):
            if what != "pings":
                socket.socket.sendall(b"\x01\x80" + bytes(4))  # the first piece of a text without an end
            for _ in range(400):
                socket.socket.sendall(piece)
        while socket.next() is not None:
            pass
        assert socket.code == 1008


def test_a_session_that_ends_ends_its_tail_at_once(server, root):
    with begun(root.watch()) as socket:
        root.get("/")
        root.post("/logout/")
        answers = []
        while (text := socket.next()) is not None:
            answers.append(json.loads(text))
    assert answers[-1] == {"end": "signed-out"}


def test_a_talker_is_hung_up_on(root):
    with begun(root.watch()) as socket:
        for _ in range(100):
            try:
                socket.send("here")
            except ConnectionError:
                break
        while socket.next() is not None:
            pass
        assert socket.code == 4000
    with begun(root.watch()) as socket:
        socket.send("x" * 5000)
        assert socket.next() is None
        assert socket.code == 1009


def test_the_server_stops_in_time_with_sockets_open(tmp_path):
    with Server(tmp_path / "data", "--http-port", "0", roles=ROLES, environment=ADMIN) as server:
        make_topic(server)
        sockets = [begun(Browser(server).watch()) for _ in range(4)]
        server.stop()
        assert "did not stop within" not in server.log_path.read_text()
        for socket in sockets:
            assert socket.next() is None
            assert socket.code == 1001
        said = server.log_path.read_text()
    assert "Traceback" not in said
    assert "still running" not in said


@pytest.mark.parametrize("cut", [True, False])
def test_below_the_path_of_a_proxy(tmp_path, cut):
    with ReverseProxy("/mq/box", cut) as proxy:
        options = ("--http-port", "0", "--public-url", proxy.url)
        with Server(tmp_path / "data", *options, roles=ROLES, environment=ADMIN) as server:
            make_topic(server)
            proxy.backend = server.ready["http"]
            address = proxy.url.removeprefix("http://").removesuffix("/mq/box")
            root = Browser(server)
            with begun(Tail(address, "/mq/box" + AT, root.headers)) as socket:
                send(server, b"below")
                assert rows(socket, 1)[0]["glance"] == "below"
            with pytest.raises(Refused):
                WebSocket(address, "/mq/box" + AT, root.headers, "http://evil.example")


def test_a_user_who_is_disabled_loses_tail_stream_and_token_at_once(server, root):
    """Disabling ends the open WebSocket and the event stream, and refuses new requests."""
    name = "leaver"
    leaver = user(root, name)
    leaver.get("/account/tokens/")
    api = http.client.HTTPConnection(server.ready["http"], timeout=60)

    def asked(method: str, path: str, body: object = None, **headers: str) -> tuple[int, bytes]:
        said = {"Content-Type": "application/json"} | headers
        api.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), said)
        answer = api.getresponse()
        return answer.status, answer.read()

    def as_browser(one: Browser) -> dict[str, str]:
        return one.headers | {"X-CSRFToken": one.cookies["rocketbox_csrf"]}

    status, made = asked("POST", "/tokens", {"name": "kept", "role": "viewer"}, **as_browser(leaver))
    assert status == 201, made
    bearer = {"Authorization": f"Bearer {json.loads(made)['secret']}"}
    assert asked("GET", "/topics", **bearer)[0] == 200
    feed = http.client.HTTPConnection(server.ready["http"], timeout=60)
    feed.request("GET", "/live/", headers=leaver.headers)
    stream = feed.getresponse()
    assert stream.status == 200
    with begun(leaver.watch()) as socket:
        status, said = asked("PATCH", f"/users/{name}", {"active": False}, **as_browser(root))
        assert status == 200, said
        answers = []
        while (text := socket.next()) is not None:
            answers.append(json.loads(text))
        assert answers[-1] == {"end": "signed-out"}, "not only because this browser is silent"
    with contextlib.suppress(http.client.IncompleteRead, ConnectionError):
        while stream.read1(65_536):
            pass
    assert asked("GET", "/topics", **bearer)[0] == 401
    assert leaver.get("/topics/")[0] == 302
    assert asked("PATCH", f"/users/{name}", {"active": True}, **as_browser(root))[0] == 200
    assert asked("GET", "/topics", **bearer)[0] == 401, "disabling ended the token"
    api.close()
    feed.close()
