"""The requests that each kind of receiver gets, and the meaning of its answers; over real sockets."""

import base64
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import parse_qs, urlsplit

import pytest

from appliance.console.alerts import chat, sending
from appliance.console.alerts.chat import Notice
from appliance.console.alerts.sending import Mail, Target
from tests.support.receivers import http_receiver, mail_server

NOTICE = Notice(
    event="fired", alert=7, rule="slow", figure="lag_minutes", subject="orders-<mailer>", value=18.0, above=10.0,
    severity="act", since="2026-01-31T12:00:00.000Z", ended=None, installation="prod",
    title="[prod] Alert: Group orders-<mailer> is 18 minutes behind", text="Rule: slow.", link="http://box/groups/x/",
)  # fmt: skip


@pytest.fixture
def receiver():
    with http_receiver() as found:
        yield found


def sent(receiver, kind, answer=b"ok", secret=""):
    receiver.answers = [(200, answer)]
    assert sending.send(Target(kind, receiver.url("/hook?key=1"), secret), NOTICE) is None
    return receiver.received[-1]


def signed(key, text):
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()


def test_a_webhook_gets_everything_and_can_check_who_sent_it(receiver):
    got = sent(receiver, "webhook", b"whatever", secret="s3cret")
    assert json.loads(got.body) == NOTICE.as_dict()
    mac = hmac.new(b"s3cret", got.body, hashlib.sha256).hexdigest()
    assert got.headers["x-rocketbox-signature"] == f"sha256={mac}"
    assert "x-rocketbox-signature" not in sent(receiver, "webhook").headers


def test_slack_gets_text_that_is_no_markup(receiver):
    text = json.loads(sent(receiver, "slack").body)["text"]
    assert "orders-&lt;mailer&gt;" in text
    assert "http://box/groups/x/" in text


def test_dingtalk_is_signed_in_the_address(receiver):
    got = sent(receiver, "dingtalk", b'{"errcode":0,"errmsg":"ok"}', secret="SECabc")
    query = parse_qs(urlsplit(got.path).query)
    (stamp,) = query["timestamp"]
    assert query["sign"] == [signed("SECabc", f"{stamp}\nSECabc")]
    assert query["key"] == ["1"]
    assert len(stamp) == 13
    assert json.loads(got.body) == {"msgtype": "text", "text": {"content": NOTICE.lines}}


def test_feishu_is_signed_in_the_body(receiver):
    body = json.loads(sent(receiver, "feishu", b'{"code":0}', secret="abc").body)
    assert body["sign"] == signed(f"{body['timestamp']}\nabc", "")
    assert len(body["timestamp"]) == 10
    assert body["content"] == {"text": NOTICE.lines}
    assert "sign" not in json.loads(sent(receiver, "feishu", b'{"StatusCode":0}').body)


def test_wecom(receiver):
    body = json.loads(sent(receiver, "wecom", b'{"errcode":0}').body)
    assert body == {"msgtype": "text", "text": {"content": NOTICE.lines}}


@pytest.mark.parametrize(
    ("kind", "status", "answer", "why"),
    [
        ("webhook", 500, b"down", "HTTP 500: down"),
        ("webhook", 302, b"", "HTTP 302"),
        ("slack", 200, b"invalid_token", "invalid_token"),
        ("slack", 404, b"no_service", "HTTP 404: no_service"),
        ("dingtalk", 200, b'{"errcode":310000,"errmsg":"sign not match"}', "sign not match"),
        ("feishu", 200, b'{"code":19021,"msg":"sign match fail"}', "sign match fail"),
        ("wecom", 200, b'{"errcode":93000}', "93000"),
        ("wecom", 200, b"<html>", "not understood"),
        ("dingtalk", 200, b"[]", "not understood"),
        ("dingtalk", 200, b"", "empty answer"),
        ("dingtalk", 200, b"[" * 4096, "not understood"),
    ],
)
def test_a_receiver_that_did_not_take_it_is_quoted(receiver, kind, status, answer, why):
    receiver.answers = [(status, answer)]
    receiver.location = receiver.url("/elsewhere")
    assert why in sending.send(Target(kind, receiver.url()), NOTICE)
    assert [got.path for got in receiver.received] == ["/hook"] or kind == "dingtalk"
    assert len(receiver.received) == 1


def test_nobody_listens_or_answers(monkeypatch):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        assert "refused" in sending.send(Target("webhook", url), NOTICE)
        listener.listen()
        monkeypatch.setattr(sending, "TIMEOUT_S", 0.2)
        assert sending.send(Target("webhook", url), NOTICE) == "no answer within 0.2 s"


@contextmanager
def dripping(head: bytes, piece: bytes) -> Iterator[int]:
    """A receiver that sends a beginning and then a piece now and then, for ever; its port."""
    over = threading.Event()

    def drip(listener):
        with listener.accept()[0] as peer, suppress(OSError):
            peer.sendall(head)
            while not over.wait(0.05):
                peer.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 500 No\r\n\r\n"])
def test_a_receiver_that_drips_holds_up_no_other_for_long(monkeypatch, head):
    monkeypatch.setattr(sending, "LONGEST_S", 0.5)
    with dripping(head, b"H") as port:
        assert sending.send(Target("webhook", f"http://127.0.0.1:{port}/"), NOTICE) == "no answer within 0.5 s"


@pytest.mark.parametrize(
    ("head", "piece"), [(b"", b"2"), (b"220 x\r\n", b"250-x\r\n"), (b"220 x\r\n250 x\r\n250 x\r\n", b"2")]
)
def test_a_mail_server_that_drips_holds_up_no_other_for_long(monkeypatch, head, piece):
    monkeypatch.setattr(sending, "LONGEST_S", 0.3)
    with dripping(head, piece) as port:
        mail = Mail("127.0.0.1", port, "none", "box@example.org", ("a@example.org",))
        assert sending.send(Target("mail", mail=mail), NOTICE) == "no answer within 0.3 s"


@pytest.mark.parametrize(
    ("head", "piece"), [(b"", b"220-"), (b"220 x\r\n", b"250-X"), (b"220 x\r\n250 x\r\n", b"250-")]
)
def test_a_mail_server_that_says_too_much_is_hung_up_on(head, piece):
    line = piece + b"x" * 1000 + b"\r\n"
    with dripping(head, line * 1000) as port:
        mail = Mail("127.0.0.1", port, "none", "box@example.org", ("a@example.org",))
        why = sending.send(Target("mail", mail=mail), NOTICE)
    assert why == "Connection unexpectedly closed: the mail server says too much"


def test_a_mail_that_was_taken_is_not_sent_again_for_a_bad_good_bye():
    with mail_server() as server:
        server.bye = "421 busy"
        mail = Mail("127.0.0.1", server.port, "none", "box@example.org", ("a@example.org",))
        assert sending.send(Target("mail", mail=mail), NOTICE) is None
        assert len(server.mails) == 1


def test_what_a_mail_server_repeats_of_a_password_is_not_handed_on():
    with mail_server() as server:
        mail = Mail("127.0.0.1", server.port, "none", "box@example.org", ("a@example.org",), "box", "Zq-password-1")
        why = sending.send(Target("mail", mail=mail), NOTICE)
    assert why is not None
    assert "I do not know AUTH PLAIN ***" in why
    assert "Zq-" not in why


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/", "no address", "http://[::1/"])
def test_only_web_addresses(url):
    assert sending.send(Target("webhook", url), NOTICE)


def test_a_mail():
    with mail_server() as server:
        mail = Mail("127.0.0.1", server.port, "none", "box@example.org", ("a@example.org", "b@example.org"))
        assert sending.send(Target("mail", mail=mail), NOTICE) is None
        ((recipients, text),) = server.mails
        assert recipients == ["a@example.org", "b@example.org"]
        assert "Subject: [prod] Alert: Group orders-<mailer> is 18 minutes behind" in text
        assert "http://box/groups/x/" in text
        server.refuses = {"b@example.org"}
        assert sending.send(Target("mail", mail=mail), NOTICE) == "refused for b@example.org"
        server.refuses = {"a@example.org", "b@example.org"}
        assert "unknown" in sending.send(Target("mail", mail=mail), NOTICE)


def test_a_title_of_several_lines_makes_no_header_of_its_own():
    with mail_server() as server:
        mail = Mail("127.0.0.1", server.port, "none", "box@example.org", ("a@example.org",))
        hostile = Notice(**(NOTICE.as_dict() | {"title": "x\r\nBcc: evil@example.org"}))
        assert sending.send(Target("mail", mail=mail), hostile) is None
        assert "\nBcc:" not in server.mails[0][1].partition("\r\n\r\n")[0]


def test_a_long_text_is_shortened_between_letters():
    text = chat.shortened("消" * 1000)
    assert len(text.encode()) <= chat.MOST_BYTES
    assert text == "消" * (len(text) - 1) + "…"
    assert chat.shortened("short") == "short"


def test_what_a_receiver_repeats_of_its_address_is_not_handed_on(receiver):
    """Its words stand on the page of an alert, in the audit log and in the log; many name the path they do not know."""
    url = receiver.url("/services/T0Zq1234/B%20Zq5678?key=Zq-query-9")
    receiver.answers = [
        (404, b"Cannot POST /services/T0Zq1234/B%20Zq5678 (B Zq5678) with Zq-query-9, signed Zq-secret")
    ]
    why = sending.send(Target("webhook", url, "Zq-secret"), NOTICE)
    assert why is not None
    assert why.startswith("HTTP 404: Cannot POST")
    assert "Zq" not in why
    receiver.answers = [(200, b'{"errcode":300,"errmsg":"token Zq-query-9 is not known"}')]
    why = sending.send(Target("dingtalk", url, "Zq-secret"), NOTICE)
    assert why is not None
    assert "Zq" not in why
    assert "not known" in why
