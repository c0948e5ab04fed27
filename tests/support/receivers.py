"""Receivers of alerts: an HTTP server whose answers a test sets, and a mail server that keeps what it gets."""

from __future__ import annotations

import socketserver
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Received:
    """One POST. headers: by their names in small letters."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """answers: (status, body) of the next requests, the last one for all that follow."""

    port: int = 0
    answers: list[tuple[int, bytes]] = field(default_factory=lambda: [(200, b"ok")])
    location: str | None = None
    received: list[Received] = field(default_factory=list)

    def url(self, path: str = "/hook") -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@contextmanager
def http_receiver() -> Iterator[Receiver]:
    """A receiver on a port of its own."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.received.append(Received(self.path, headers, body))
            status, answer = receiver.answers.pop(0) if len(receiver.answers) > 1 else receiver.answers[0]
            self.send_response(status)
            if receiver.location is not None:
                self.send_header("Location", receiver.location)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class MailServer:
    """mails: (recipients, text) of what was taken. refuses: addresses that it does not know. bye: its last word. It
    offers to sign in, and refuses what is sent, which it repeats, decoded, too."""

    port: int = 0
    mails: list[tuple[list[str], str]] = field(default_factory=list)
    refuses: set[str] = field(default_factory=set)
    bye: str = "221 bye"


@contextmanager
def mail_server() -> Iterator[MailServer]:
    """SMTP as far as a client that sends needs it (RFC 5321: EHLO, MAIL, RCPT, DATA, QUIT)."""
    kept = MailServer()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.say("220 test")
            recipients: list[str] = []
            while line := self.rfile.readline().decode().strip():
                verb = line.split(" ")[0].upper()
                if verb == "DATA":
                    self.say("354 go on")
                    lines = []
                    while (text := self.rfile.readline().decode()) not in (".\r\n", ""):
                        lines.append(text)
                    kept.mails.append((recipients, "".join(lines)))
                    self.say("250 taken")
                elif verb == "RCPT":
                    address = line.partition("<")[2].partition(">")[0]
                    if address in kept.refuses:
                        self.say("550 unknown")
                    else:
                        recipients.append(address)
                        self.say("250 ok")
                elif verb == "AUTH":
                    self.say(f"535 I do not know {line} ({b64decode(line.split()[-1]).decode()})")
                elif verb == "EHLO":
                    self.say("250-test")
                    self.say("250 AUTH PLAIN")
                elif verb == "QUIT":
                    self.say(kept.bye)
                    return
                else:
                    self.say("250 ok")

        def say(self, text: str) -> None:
            self.wfile.write(text.encode() + b"\r\n")

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    kept.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
