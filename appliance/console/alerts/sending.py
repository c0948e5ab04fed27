"""One try to send a notice to a channel: by POST, or by mail. A failure is returned as a sentence, never raised."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from . import chat
from .chat import Notice
from .target import Mail, Target

#: A receiver that sends nothing for this long has failed.
TIMEOUT_S = 10.0
#: So has one that sends a byte now and then, after this time: other notices wait behind it.
LONGEST_S = 30.0
#: Time between two attempts to end a connection after that.
_AGAIN_S = 1.0
_ANSWER_BYTES = 4096
#: All that a mail server says for a mail; smtplib would keep whatever comes.
_SAID_BYTES = 64 * 1024
_WHY_CHARS = 300
#: Shorter parts of an address are not masked: they occur in ordinary words.
_SHORTEST_SECRET = 6

POSTED = ("webhook", "slack", "dingtalk", "feishu", "wecom")


def send(target: Target, notice: Notice) -> str | None:
    """Try to send a notice. Return None if it was accepted, else the reason. Each network step waits at most TIMEOUT_S
    for the receiver."""
    try:
        if target.mail is not None:
            return _mail(target, target.mail, notice)
        return _post(target, chat.request_of(target.kind, target.url, target.secret, notice))
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: the address is invalid
        return _without_secrets(target, _why(error))[:_WHY_CHARS]


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: the address of a receiver is a secret that must not be handed on. If the receiver moved,
    its channel needs the new address."""

    def redirect_request(self, *_args: Any) -> None:
        return None


class _TooSlow(TimeoutError):
    """The receiver sends something now and then, but does not finish."""


class _Remembered:
    """Keeps the connections that are being opened or wait for an answer, so that another thread can end them."""

    def __init__(self) -> None:
        super().__init__()
        self._made: list[http.client.HTTPConnection] = []

    def hang_up(self) -> None:
        """Shut the connections down. Called by another thread; a blocked read then ends."""
        for connection in self._made:
            with suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)


@contextmanager
def _no_longer(*hang_up: Callable[[], None]) -> Iterator[None]:
    """Limit the block to LONGEST_S: then hang up, so that what it waits for ends, and raise _TooSlow if that fails."""
    until = time.monotonic() + LONGEST_S
    done = threading.Event()

    def watch() -> None:
        pause = LONGEST_S
        while not done.wait(pause):  # again and again: a connection may be opened only now
            for one in hang_up:
                one()
            pause = _AGAIN_S

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    except Exception:
        if time.monotonic() >= until:
            raise _TooSlow from None
        raise
    finally:
        done.set()


class _Plain(_Remembered, urllib.request.HTTPHandler):
    def http_open(self, request: Any) -> Any:
        return self.do_open(self._connection, request)

    def _connection(self, host: str, **options: Any) -> http.client.HTTPConnection:
        self._made.append(http.client.HTTPConnection(host, **options))
        return self._made[-1]


class _Tls(_Remembered, urllib.request.HTTPSHandler):
    def https_open(self, request: Any) -> Any:
        return self.do_open(self._connection, request)

    def _connection(self, host: str, **options: Any) -> http.client.HTTPConnection:
        self._made.append(http.client.HTTPSConnection(host, context=_tls_context(), **options))
        return self._made[-1]


def _tls_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _without_secrets(target: Target, text: str) -> str:
    """Return a receiver's words with the secret and the parts of the address masked: many receivers repeat an address
    that they do not know, and mail servers a command, in which a password stands in Base64."""
    known = {target.secret, target.url}
    if target.mail is not None and target.mail.password:
        password, user = target.mail.password, target.mail.user
        known |= {password, *(b64encode(one.encode()).decode() for one in (password, f"\0{user}\0{password}"))}
    with suppress(ValueError):  # the address is invalid
        parts = urlsplit(target.url)
        known |= {parts.path, parts.query, parts.username or "", parts.password or "", *parts.path.split("/")}
        known |= {value for _, value in parse_qsl(parts.query)}
    known |= {unquote(one) for one in known}
    for one in sorted((one for one in known if len(one) >= _SHORTEST_SECRET), key=len, reverse=True):
        text = text.replace(one, "***")
    return text


def _refusal(target: Target, status: int, body: bytes) -> str | None:
    if chat.refusal_of(target.kind, status, body) is None:
        return None
    return chat.refusal_of(target.kind, status, _without_secrets(target, body.decode("utf-8", "replace")).encode())


def _post(target: Target, asked: chat.Request) -> str | None:
    if urlsplit(asked.url).scheme not in ("http", "https"):
        return "the address is neither http nor https"
    until = time.monotonic() + LONGEST_S
    plain, tls = _Plain(), _Tls()
    opener = urllib.request.build_opener(_NoRedirects(), plain, tls)
    request = urllib.request.Request(asked.url, asked.body, asked.headers, method="POST")
    with _no_longer(plain.hang_up, tls.hang_up):
        try:
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                return _refusal(target, answer.status, _read(answer, until))
        except urllib.error.HTTPError as error:
            with error:
                return _refusal(target, error.code, _read(error, until))


def _read(answer: Any, until: float) -> bytes:
    """Return the beginning of an answer. Raises _TooSlow at the time `until`."""
    data, piece = b"", b" "
    while piece and len(data) < _ANSWER_BYTES:
        if time.monotonic() >= until:  # also if the timer ended the connection while the head was read
            raise _TooSlow
        piece = answer.read1(_ANSWER_BYTES - len(data))
        data += piece
    return data


def _mail(target: Target, mail: Mail, notice: Notice) -> str | None:
    import smtplib

    message = EmailMessage()
    message["Subject"] = " ".join(notice.title.split())
    message["From"] = mail.sender
    message["To"] = ", ".join(mail.recipients)
    message.set_content(notice.lines + "\n")
    if notice.html:
        message.add_alternative(notice.html, subtype="html")
    tls = ssl.create_default_context()

    class Server(smtplib.SMTP_SSL if mail.security == "tls" else smtplib.SMTP):  # type: ignore[misc]
        """Of its words it reads so many and no more."""

        file: Any

        def getreply(self) -> Any:
            if self.file is None:
                self.file = _Bounded(self.sock.makefile("rb"))
            return super().getreply()

    server = Server(timeout=TIMEOUT_S, **({"context": tls} if mail.security == "tls" else {}))
    server._host = mail.host  # whose certificate it has to be

    def hang_up() -> None:
        with suppress(OSError, AttributeError):  # there is no connection yet
            server.sock.shutdown(socket.SHUT_RDWR)

    try:
        with _no_longer(hang_up):
            try:
                code, said = server.connect(mail.host, mail.port)
                if code != 220:
                    raise smtplib.SMTPConnectError(code, said)
                if mail.security == "starttls":
                    server.starttls(context=tls)
                if mail.user:
                    server.login(mail.user, mail.password)
                refused = server.send_message(message)
                with suppress(OSError, smtplib.SMTPException):
                    server.putcmd("QUIT")  # what comes back does not matter: the mail was taken
            finally:
                server.close()
    except smtplib.SMTPException as error:
        return _without_secrets(target, _why(error))[:_WHY_CHARS]
    return f"refused for {', '.join(sorted(refused))}" if refused else None


class _Bounded:
    """The words of a mail server, _SAID_BYTES of them at most."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left = _SAID_BYTES
        self.close = file.close

    def readline(self, most: int) -> bytes:
        """Return the next line. Raises OSError when there were too many."""
        line: bytes = self._file.readline(most)
        self._left -= len(line)
        if self._left < 0:
            raise OSError("the mail server says too much")
        return line


def _why(error: Exception) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError | socket.timeout):
        return f"no answer within {LONGEST_S if isinstance(reason, _TooSlow) else TIMEOUT_S:g} s"
    text = (reason.strerror if isinstance(reason, OSError) else None) or str(reason) or type(reason).__name__
    return " ".join(text.split())
