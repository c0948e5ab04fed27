"""A browser as far as the bench needs one: a session, pages with their times, and live streams that are read."""

from __future__ import annotations

import http.client
import json
import re
import selectors
import socket
import threading
import time
from typing import Any
from urllib.parse import urlencode

from tests.support.web_socket import WebSocket

_LOGIN = "/login/"


class BrowserError(RuntimeError):
    """The console did not answer as it must."""


class Browser:
    """One person on one kept-alive connection; `get` says how long a page took."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._connection = http.client.HTTPConnection(address, timeout=30)
        self._cookies: dict[str, str] = {}
        self._location = ""

    def sign_in(self, username: str, password: str) -> None:
        """Through the form. BrowserError when it does not open."""
        self.fill_in(_LOGIN, username=username, password=password)

    def fill_in(self, path: str, action: str = "", **fields: str) -> str:
        """Send the form of a page, to `action` or to the page itself; where that leads to. BrowserError: nowhere."""
        _, _, page = self.get(path)
        found = re.search(rb'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        if found is None:
            raise BrowserError(f"{path} has no form")
        status, _, _ = self._ask("POST", action or path, urlencode({"csrfmiddlewaretoken": found[1].decode()} | fields))
        if status != 302:
            raise BrowserError(f"the form of {path} was answered with {status}")
        return self._location

    def get(self, path: str) -> tuple[int, float, bytes]:
        """(status, seconds until the last byte, body); the status is 0 when no answer came in time."""
        return self._ask("GET", path, None)

    def ask_api(self, method: str, path: str, values: dict[str, Any] | None = None) -> tuple[int, bytes]:
        """(status, body) of an operation of the API."""
        token = next((value for name, value in self._cookies.items() if "csrf" in name), "")
        headers = {"X-CSRFToken": token, "Content-Type": "application/json"}
        body = None if method == "GET" else json.dumps(values or {})
        status, _, found = self._ask(method, path, body, headers)
        return status, found

    def _ask(
        self, method: str, path: str, form: str | None, more: dict[str, str] | None = None
    ) -> tuple[int, float, bytes]:
        headers = {"Cookie": self.cookie, "Origin": f"http://{self.address}"} | (more or {})
        if form is not None and more is None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        begin = time.perf_counter()
        try:
            try:
                self._connection.request(method, path, form, headers)
                response = self._connection.getresponse()
            except ConnectionError:  # it had been idle for too long
                self._connection.close()
                self._connection.request(method, path, form, headers)
                response = self._connection.getresponse()
            body = response.read()
        except TimeoutError:
            self._connection.close()  # the next request opens another one
            return 0, time.perf_counter() - begin, b""
        except http.client.HTTPException as error:
            raise BrowserError(f"{method} {path}: {error!r}") from error
        took = time.perf_counter() - begin
        self._location = response.headers.get("Location", "")
        for line in response.headers.get_all("Set-Cookie") or ():
            name, _, value = line.partition(";")[0].partition("=")
            self._cookies[name] = value
        return response.status, took, body

    @property
    def cookie(self) -> str:
        """The request header of this session."""
        return "; ".join(f"{name}={value}" for name, value in self._cookies.items())

    def close(self) -> None:
        self._connection.close()


class Viewers:
    """Live streams of several sessions, each read as it comes by one thread; `frames` counts what came."""

    def __init__(self, browsers: list[Browser], count: int, path: str = "/live/") -> None:
        self.frames = 0
        self._end = threading.Event()
        self._streams: list[socket.socket] = []
        for number in range(count):
            browser = browsers[number % len(browsers)]
            host, _, port = browser.address.rpartition(":")
            stream = socket.create_connection((host, int(port)), 10)
            stream.sendall(
                f"GET {path} HTTP/1.1\r\nHost: {browser.address}\r\nAccept: text/event-stream\r\n"
                f"Cookie: {browser.cookie}\r\n\r\n".encode()
            )
            first = stream.recv(4096)
            if b" 200 " not in first.partition(b"\r\n")[0]:
                raise BrowserError(f"a live page was answered with {first[:200]!r}")
            self._streams.append(stream)
        self._reader = threading.Thread(target=self._read, name="viewers", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with selectors.DefaultSelector() as selector:
            for stream in self._streams:
                selector.register(stream, selectors.EVENT_READ)
            while not self._end.is_set():
                for key, _ in selector.select(0.2):
                    data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                    if not data:
                        selector.unregister(key.fileobj)
                    self.frames += data.count(b"\ndata: ")

    def close(self) -> None:
        self._end.set()
        self._reader.join()
        for stream in self._streams:
            stream.close()


class Tails:
    """Live tails of the topic Load, read by one thread; `frames` counts what came."""

    def __init__(self, browsers: list[Browser], count: int) -> None:
        self.frames = 0
        self._end = threading.Event()
        self._sockets = [
            WebSocket(one.address, "/messages/tail/?topic=Load", {"Cookie": one.cookie})
            for one in (browsers[number % len(browsers)] for number in range(count))
        ]
        self._reader = threading.Thread(target=self._read, name="tails", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with selectors.DefaultSelector() as selector:
            for one in self._sockets:
                selector.register(one.socket, selectors.EVENT_READ)
            while not self._end.is_set():
                for key, _ in selector.select(0.2):
                    data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                    if not data:
                        selector.unregister(key.fileobj)
                    self.frames += data.count(b'{"rows":')

    def close(self) -> None:
        self._end.set()
        self._reader.join()
        for one in self._sockets:
            one.close()
