"""Name servers from a list that a web server has, by threads and by asyncio; lists that change, and what is no list."""

import asyncio
import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from appliance.client import Client, InvalidOption, NoNameServer, aio
from appliance.client.core.directory import Directory
from appliance.client.core.steps import CallFailed
from appliance.client.discovery import Discovery
from tests.support.client_steps import SetClock
from tests.support.ports import reserve_port

pytest_plugins = ("appliance.pytest_rocketbox",)

PATIENT = 60.0


class Page(ThreadingHTTPServer):
    """A web server with one page. status, text: of it. threads: names of those that the client asked in."""

    def __init__(self):
        self.status, self.text, self.asked = 200, "", 0
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                page.asked += 1
                self.send_response(page.status)
                self.end_headers()
                self.wfile.write(page.text.encode())

            def log_message(self, *_):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/rocketmq/nsaddr"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def page():
    with Page() as made:
        yield made
        made.shutdown()


def send_by_threads(url, topic, timeout=PATIENT):
    with Client(discovery_url=url, timeout=timeout) as client:
        return client.producer().send(topic, "x")


def send_by_asyncio(url, topic, timeout=PATIENT):
    async def work():
        async with aio.Client(discovery_url=url, timeout=timeout) as client:
            return await client.producer().send(topic, "x")

    return asyncio.run(work())


both = pytest.mark.parametrize("send", [send_by_threads, send_by_asyncio], ids=["threads", "asyncio"])


@both
def test_the_first_line_is_the_list(rocketbox, rocketmq_topic, page, send, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # for others
    page.text = f" {rocketbox.namesrv}; 127.0.0.1:{reserve_port()} \nof another cluster\n"
    assert send(page.url, rocketmq_topic).queue.topic == rocketmq_topic
    assert page.asked == 1


@both
@pytest.mark.parametrize(
    ("status", "text", "why"),
    [
        (404, "", "gives no list of name servers: HTTP Error 404"),
        (200, "", "gives an empty list"),
        (200, "<html>\n<body>", "gives no list"),
        (200, "\ufffe" * 50_000, "gives no list"),
    ],
    ids=["404", "empty", "html", "large"],
)
def test_what_is_no_list_is_named(page, send, status, text, why):
    page.status, page.text = status, text
    with pytest.raises(NoNameServer, match=why):
        send(page.url, "T")


@both
def test_a_web_server_that_is_away_is_named(send):
    with pytest.raises(NoNameServer, match=r"gives no list of name servers: .*[Rr]efused"):
        send(f"http://127.0.0.1:{reserve_port()}/rocketmq/nsaddr", "T")


def test_a_page_that_comes_byte_by_byte_has_a_deadline(monkeypatch):
    monkeypatch.setattr("appliance.client.discovery._TIMEOUT_S", 0.2)
    gone = threading.Event()

    def drip(listener):
        peer, _ = listener.accept()
        with peer, contextlib.suppress(OSError):
            peer.recv(4096)
            for byte in b"HTTP/1.0 200 OK\r\n\r\n" + b" " * 200 + b"127.0.0.1:9876\n":  # some 10 s
                peer.send(bytes([byte]))
                gone.wait(0.05)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        dripping = threading.Thread(target=drip, args=(listener,))
        dripping.start()
        found, why = Discovery(f"http://127.0.0.1:{listener.getsockname()[1]}/list").fetch()
        gone.set()
        dripping.join()
    assert found == ()
    assert "timed out" in why


def test_the_list_is_read_again_when_none_of_it_answers(rocketbox, rocketmq_topic, page, monkeypatch):
    monkeypatch.setattr("appliance.client.core.directory._LEAST_FETCH_S", 0.0)
    page.text = f"127.0.0.1:{reserve_port()}"
    with Client(discovery_url=page.url, timeout=PATIENT) as client:
        with pytest.raises(NoNameServer, match="cannot be reached"):
            client.producer().send(rocketmq_topic, "x")
        page.text = rocketbox.namesrv
        assert client.producer().send(rocketmq_topic, "x")
        page.status = 500  # the known ones stay
        assert client.producer().send(rocketmq_topic, "x")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "mq.example.org:8080", "", 7])
def test_another_kind_of_address_is_refused(url):
    with pytest.raises(InvalidOption, match="discovery_url begins with"):
        Client(discovery_url=url)


def test_what_may_be_secret_in_an_address_is_not_said():
    with pytest.raises(InvalidOption, match="no user and password") as raised:
        Client(discovery_url="http://admin:hush@127.0.0.1/list")
    assert "hush" not in str(raised.value)
    url = f"http://127.0.0.1:{reserve_port()}/list?token=hush"
    with Client(discovery_url=url) as client, pytest.raises(NoNameServer, match="/list gives no list") as missing:
        client.producer().send("T", "x")
    assert "hush" not in str(missing.value)


def test_both_ways_are_refused():
    with pytest.raises(InvalidOption, match="not by both"):
        Client("127.0.0.1:9876", discovery_url="http://127.0.0.1/")


def test_a_shorter_list_that_comes_while_servers_are_asked_is_no_error():
    directory = Directory(["a:1", "b:2", "c:3"], SetClock(), 3.0, lambda: (("d:4",), ""))
    asking = directory.look_up("T", 1003.0)
    asked = [asking.send(None).address]
    discovering = directory.discover()
    found = discovering.send(None).act()
    with pytest.raises(StopIteration):
        discovering.send(found)
    failed = CallFailed("connect", "nobody listens", sent=False)
    asked += [asking.send(failed).address for _ in range(3)]
    assert asked == ["a:1", "b:2", "c:3", "d:4"]
    with pytest.raises(NoNameServer, match="d:4"):
        asking.send(failed)
