"""Journeys around single messages, with the official Java client: watch them live, send each kind, run one on a
client."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.axe import problems
from tests.browser.conftest import PASSWORD, sign_in
from tests.clients.messages import Message
from tests.support.directories import shared_directory
from tests.support.ports import reserve_port
from tests.support.server import Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.nightly

Visit = Callable[..., Page]


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that is set up already, and keeps its port when it is started again."""
    place = shared_directory(request, "server") / "data"
    ada = {"ADMIN_USER": "ada", "ADMIN_PASSWORD": PASSWORD}
    with Server(place, "--http-port", str(reserve_port()), roles="broker,namesrv,console", environment=ada) as running:
        yield running


def counted(page: Page, name: str) -> int:
    return int(re.sub(r"\D", "", page.locator(f"[data-tail={name}]").inner_text()))


def test_a_topic_is_watched_live(visit: Visit, server: Server, java) -> None:
    page = sign_in(visit(locale="en-GB"))
    with java.producer(server.namesrv) as producer:
        producer.send("watched", [Message(b"before")])
        page.click("nav >> text=Live tail")
        page.fill("#topic", "watched")
        page.click("form.filter button")
        state = page.locator("#tail-state")
        expect(state).to_have_text("live")
        expect(page.locator("#tail-rows")).to_contain_text("Waiting for the next message")
        producer.send("watched", [Message(b'{"order": %d}' % number, "paid", (f"o-{number}",)) for number in range(3)])
        rows = page.locator("#tail-rows tr")
        expect(rows).to_have_count(3)
        expect(rows.first).to_contain_text('{"order": 2}')
        expect(rows.first).to_contain_text("o-2")
        # A pause holds messages back and shows their number.
        page.click("#tail-pause")
        expect(state).to_have_text("paused")
        producer.send("watched", [Message(b"while paused")] * 2)
        page.wait_for_timeout(300)
        expect(rows).to_have_count(3)
        page.click("#tail-pause")
        expect(state).to_have_text("live")
        wait_for(lambda: counted(page, "held_back") == 2, "what was held back is told")
        # A filter by tags, which the address contains.
        page.fill("#tags", "paid")
        page.click("form.filter button")
        expect(state).to_have_text("live")
        assert "tags=paid" in page.url
        producer.send("watched", [Message(b"no", "sent"), Message(b"yes", "paid"), Message(b"<img src=x>", "paid")])
        expect(rows).to_have_count(2)
        expect(rows.first).to_contain_text("<img src=x>")
        assert page.locator("#tail-rows img").count() == 0
        wait_for(lambda: (counted(page, "passed"), counted(page, "filtered")) == (3, 1), "it adds up")
        rows.last.locator("a").click()
        expect(page.locator("h1.mono")).to_be_visible()
        expect(page.locator("main pre").first).to_have_text("yes")
    assert not [group for group in groups(page) if "watched" in group], "no group comes of it"


def groups(page: Page) -> list[str]:
    page.goto("/groups/")
    return page.locator("tbody tr").all_inner_texts()


def test_the_tail_comes_back_when_the_server_does(visit: Visit, server: Server, java) -> None:
    with java.producer(server.namesrv) as producer:
        producer.send("coming-back", [Message(b"first")])
    page = sign_in(visit(locale="en-GB"))
    page.goto("/messages/tail/?topic=coming-back")
    state = page.locator("#tail-state")
    expect(state).to_have_text("live")
    server.stop()
    expect(state).to_contain_text("connection lost, trying again in")
    server.start()
    expect(state).to_have_text("live", timeout=90_000)


def find(page: Page, place: str) -> None:
    page.fill("#search", place)
    page.press("#search", "Enter")
    expect(page.locator("h1.mono")).to_be_visible()


def send(page: Page, topic: str, body: str, kind: str, **fields: str) -> None:
    page.goto("/messages/send/")
    page.fill("#id_topic", topic)
    page.fill("#id_body", body)
    page.check(f"input[name=kind][value={kind}]")
    for name, value in fields.items():
        if name == "delay_level":
            page.select_option(f"#id_{name}", value)
        else:
            page.fill(f"#id_{name}", value)
    page.click("button.go")
    expect(page.locator("#notices")).to_contain_text("Sent and stored")


def test_every_kind_of_message_is_sent_and_comes_to_the_consumer_when_it_should(
    visit: Visit, server: Server, java
) -> None:
    page = sign_in(visit(locale="en-GB"))
    with java.producer(server.namesrv) as producer:
        producer.send("kinds", [Message(b"so that it is there")])
    with java.push(server.namesrv, "kinds", "kinds-readers") as consumer:
        consumer.wait_for(1, 90)
        send(page, "kinds", "plain", "plain")
        consumer.wait_for(2, 90)
        for _ in range(2):
            send(page, "kinds", "in order", "ordered", sharding_key="order-4711")
            expect(page.locator(".head p")).to_contain_text("queue 2")
        came = consumer.wait_for(4, 90)
        assert {one["queue_id"] for one in came[-2:]} == {2}
        send(page, "kinds", "one second later", "level", delay_level="1")
        expect(page.locator("#notices")).to_contain_text("It waits")
        consumer.wait_for(5, 90)
        soon = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 3))
        send(page, "kinds", "at its time", "time", deliver_at=soon)
        expect(page.locator("#notices")).to_contain_text("It waits")
        consumer.wait_for(6, 90)
        send(page, "kinds", "half", "half", half_of="nobody-yet")
        expect(page.locator("#notices")).to_contain_text("nobody gets the message until it is committed")
        expect(page.locator("main")).to_contain_text("nobody has decided the transaction yet")
        assert len(consumer.received) == 6
        # Send a copy of a message; a binary body stays as it was.
        producer_body = bytes(range(200, 256))
        with java.producer(server.namesrv) as producer:
            [ack] = producer.send("kinds", [Message(producer_body, "bin", ("k9",))])
        came = consumer.wait_for(7, 90)
        find(page, f"kinds/{ack['queue_id']}/{ack['queue_offset']}")
        page.click("text=Send again…")
        expect(page.locator("#id_body_is")).to_have_value("base64")
        expect(page.locator("#id_tags")).to_have_value("bin")
        page.click("button.go")
        expect(page.locator("#notices")).to_contain_text("Sent and stored")
        again = consumer.wait_for(8, 90)
        assert again[-1]["body_sha256"] == came[-1]["body_sha256"] == Message(producer_body).sha256


def test_a_message_is_run_on_a_client_and_no_offset_moves(visit: Visit, server: Server, java) -> None:
    page = sign_in(visit(locale="en-GB"))
    with java.producer(server.namesrv) as producer:
        [ack] = producer.send("fixed", [Message(b"once more", "paid", ("f1",))])
    with java.push(server.namesrv, "fixed", "fixers") as consumer:
        consumer.wait_for(1, 90)
        csv = "/groups/fixers/?format=csv"
        wait_for(lambda: ",1," in page.request.get(csv).text(), "the consumer has committed")
        before = page.request.get(csv).text()
        find(page, f"fixed/{ack['queue_id']}/{ack['queue_offset']}")
        page.click("text=Run on a client…")
        expect(page.locator("#id_member")).to_contain_text("fixers")
        page.click("text=Preview")
        expect(page.locator("main")).to_contain_text("whose listener is called once")
        assert len(consumer.received) == 1
        page.click("text=Run it now")
        expect(page.locator("#notices")).to_contain_text("its listener consumed the message", timeout=90_000)
        came = consumer.wait_for(2, 90)
        assert came[0]["body_sha256"] == came[1]["body_sha256"]
        assert page.request.get(csv).text() == before
    page.goto("/system/audit/?q=message.run")
    expect(page.locator("main")).to_contain_text("message.run")


def test_the_new_pages_are_for_everybody(visit: Visit, server: Server) -> None:
    page = sign_in(visit(locale="en-GB"))
    for address in ("/connect/?language=go", "/messages/tail/?topic=watched", "/messages/send/", "/messages/tail/"):
        for viewport in ({"width": 1280, "height": 900}, {"width": 360, "height": 740}):
            page.set_viewport_size(viewport)
            page.goto(address)
            assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], address
        assert not problems(page), address


def test_programs_are_copied_with_a_click(visit: Visit, server: Server) -> None:
    page = sign_in(visit(locale="en-GB"))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("nav >> text=Connect a client")
    page.fill("#topic", "my-orders")
    page.click("main form button.btn")
    page.click("#java >> button[data-copies=java-shell]")
    expect(page.locator("#java >> button[data-copies=java-shell]")).to_have_text("copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert server.namesrv in copied
    assert "my-orders" in copied
    assert "mvn -q compile" in copied
