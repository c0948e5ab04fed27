"""One try to send a notice to a channel: by POST, or by mail. Whatever goes wrong is a sentence, never an exception."""

from __future__ import annotations

import http.client
import socket
import ssl
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from . import chat
from .chat import Notice

#: A receiver that is silent for so long has failed.
TIMEOUT_S = 10.0
_ANSWER_BYTES = 4096
#: Shorter parts of an address stand in every second word.
_SHORTEST_SECRET = 6

POSTED = ("webhook", "slack", "dingtalk", "feishu", "wecom")


@dataclass(frozen=True, slots=True)
class Mail:
    """Where a mail server is and how it is spoken to. security: "none", "starttls" or "tls"."""

    host: str
    port: int
    security: str
    sender: str
    recipients: tuple[str, ...]
    user: str = ""
    password: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """A channel's kind and what it needs; mail for the kind "mail" alone."""

    kind: str
    url: str = ""
    secret: str = ""
    mail: Mail | None = None


def send(target: Target, notice: Notice) -> str | None:
    """None when it was taken, else why not. Blocks for at most some TIMEOUT_S a step."""
    try:
        if target.mail is not None:
            return _mail(target.mail, notice)
        return _post(target, chat.request_of(target.kind, target.url, target.secret, notice))
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: an address that is none
        return _without_secrets(target, _why(error))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A receiver that moved has to be set anew: its address is a secret that is not handed on."""

    def redirect_request(self, *_args: Any) -> None:
        return None


def _without_secrets(target: Target, text: str) -> str:
    """A receiver's words without what lets one write there: many repeat the address that they do not know."""
    known = {target.secret, target.url}
    with suppress(ValueError):  # an address that is none
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
    opener = urllib.request.build_opener(_NoRedirects())
    request = urllib.request.Request(asked.url, asked.body, asked.headers, method="POST")
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            return _refusal(target, answer.status, answer.read(_ANSWER_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            return _refusal(target, error.code, error.read(_ANSWER_BYTES))


def _mail(mail: Mail, notice: Notice) -> str | None:
    import smtplib

    message = EmailMessage()
    message["Subject"] = " ".join(notice.title.split())
    message["From"] = mail.sender
    message["To"] = ", ".join(mail.recipients)
    message.set_content(notice.lines + "\n")
    tls = ssl.create_default_context()
    try:
        if mail.security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(mail.host, mail.port, timeout=TIMEOUT_S, context=tls)
        else:
            server = smtplib.SMTP(mail.host, mail.port, timeout=TIMEOUT_S)
        with server:
            if mail.security == "starttls":
                server.starttls(context=tls)
            if mail.user:
                server.login(mail.user, mail.password)
            refused = server.send_message(message)
    except smtplib.SMTPException as error:
        return _why(error)
    return f"refused for {', '.join(sorted(refused))}" if refused else None


def _why(error: Exception) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError | socket.timeout):
        return f"no answer within {TIMEOUT_S:g} s"
    text = (reason.strerror if isinstance(reason, OSError) else None) or str(reason) or type(reason).__name__
    return " ".join(text.split())[:300]
