"""Requests to channels: the request for each kind of receiver, and the meaning of the answer.

    webhook    POST of JSON (`Notice.as_dict`); with a secret, X-RocketBox-Signature: sha256=HMAC-SHA256(secret, body)
    slack      {"text"}; the answer is the word "ok"
    dingtalk   {"msgtype": "text"}; with a secret &timestamp=ms&sign=base64(HMAC-SHA256(secret, "ms\\nsecret"));
               errcode 0
    feishu     {"msg_type": "text"}; with a secret "timestamp" in seconds and "sign", which is
               base64(HMAC-SHA256("s\\nsecret", "")); code 0
    wecom      {"msgtype": "text"}; errcode 0

Chats reject a request with HTTP 200 and a number in the body, so the status alone does not show success. Formats: the
vendors' pages on incoming webhooks and custom robots.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from ...engine.lazy_dataclass import dataclass

#: Most bytes of a text. WeCom accepts the least, 2,048.
MOST_BYTES = 2000


@dataclass(frozen=True, slots=True)
class Notice:
    """One notice. event: fired, resolved, reminder, test or digest. Times: RFC 3339, UTC. text: for people. figures:
    those of a digest, by name; None for alerts. html: the same as `text` as a page, for mail; "" without one."""

    event: str
    alert: int | None
    rule: str
    figure: str
    subject: str
    value: float | None
    above: float
    severity: str
    since: str | None
    ended: str | None
    installation: str
    title: str
    text: str
    link: str
    figures: dict[str, int | None] | None = None
    html: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the notice as a webhook receives it."""
        found = asdict(self)
        del found["html"]
        if found["figures"] is None:
            del found["figures"]
        return found

    @property
    def lines(self) -> str:
        """Title, text and link, as chats show them."""
        return shortened("\n".join(part for part in (self.title, self.text, self.link) if part))


@dataclass(frozen=True, slots=True)
class Request:
    """A POST request."""

    url: str
    body: bytes
    headers: dict[str, str]


def request_of(kind: str, url: str, secret: str, notice: Notice, now_s: float | None = None) -> Request:
    """Return the request that sends a notice. Raises KeyError for a kind of channel that is not sent by POST."""
    now = time.time() if now_s is None else now_s
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "RocketBox"}
    match kind:
        case "webhook":
            body = _json(notice.as_dict())
            if secret:
                headers["X-RocketBox-Signature"] = (
                    "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
                )
        case "slack":
            body = _json({"text": _slack(notice.lines)})
        case "dingtalk":
            body = _json({"msgtype": "text", "text": {"content": notice.lines}})
            if secret:
                stamp = str(int(now * 1000))
                sign = quote(_sign(secret, f"{stamp}\n{secret}"), safe="")
                url += f"{'&' if '?' in url else '?'}timestamp={stamp}&sign={sign}"
        case "feishu":
            content: dict[str, Any] = {"msg_type": "text", "content": {"text": notice.lines}}
            if secret:
                stamp = str(int(now))
                content |= {"timestamp": stamp, "sign": _sign(f"{stamp}\n{secret}", "")}
            body = _json(content)
        case "wecom":
            body = _json({"msgtype": "text", "text": {"content": notice.lines}})
        case _:
            raise KeyError(kind)
    return Request(url, body, headers)


def refusal_of(kind: str, status: int, body: bytes) -> str | None:
    """Return the receiver's reason for rejecting the notice, in its own words; None if it accepted it."""
    text = body[:300].decode("utf-8", "replace").strip()
    if not 200 <= status < 300:
        return f"HTTP {status}" + (f": {text}" if text else "")
    if kind == "slack":
        return None if text == "ok" else text or "an empty answer"
    if kind in ("dingtalk", "wecom", "feishu"):
        try:
            answer = json.loads(body)
            code = answer["code" if kind == "feishu" and "code" in answer else _CODE[kind]]
        except (ValueError, KeyError, TypeError, RecursionError):
            return f"an answer that is not understood: {text}" if text else "an empty answer"
        return None if code == 0 else text
    return None


#: Feishu's older answers name it StatusCode.
_CODE = {"dingtalk": "errcode", "wecom": "errcode", "feishu": "StatusCode"}


def shortened(text: str) -> str:
    """Cut a text to at most MOST_BYTES in UTF-8; "…" marks the cut."""
    encoded = text.encode()
    if len(encoded) <= MOST_BYTES:
        return text
    return encoded[: MOST_BYTES - 3].decode("utf-8", "ignore") + "…"


def _slack(text: str) -> str:
    """Escape Slack's markup: a group's name could contain some that notifies a whole channel."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _sign(key: str, text: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()
