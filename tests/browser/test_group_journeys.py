"""Journeys with groups whose consumers are official clients: a consumer that hangs is found, and offsets are moved and
moved back while a consumer goes on."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PASSWORD, PHONE, sign_in
from tests.clients.messages import Message
from tests.support.directories import shared_directory
from tests.support.server import Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.nightly

Visit = Callable[..., Page]


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that has an administrator from the start."""
    directory = shared_directory(request, "server")
    somebody = {"ADMIN_USER": "ada", "ADMIN_PASSWORD": PASSWORD}
    with Server(
        directory / "data", "--http-port", "0", roles="broker,namesrv,console", environment=somebody
    ) as running:
        yield running


def messages(word: str, count: int) -> list[Message]:
    return [Message(b"%s %d" % (word.encode(), number), "paid", (f"{word}-{number}",)) for number in range(count)]


def times(consumer) -> Counter[str]:
    """Return how often each message came, by its body."""
    return Counter(one["body_sha256"] for one in consumer.received)


def test_reset_and_undo_with_a_live_consumer(visit: Visit, server: Server, java) -> None:
    page = sign_in(visit(locale="en-GB"))
    sent = messages("parcel", 40)
    with java.producer(server.namesrv) as producer:
        producer.send("parcels", sent)
        with java.push(server.namesrv, "parcels", "couriers") as consumer:
            consumer.wait_for(len(sent), 40)
            page.goto("/groups/couriers/")
            expect(page.locator("#group-lead")).to_contain_text("0 messages behind", timeout=90_000)
            page.click("text=Reset offsets…")
            expect(page.locator("main")).to_contain_text("1 client is connected; it is told at once")
            page.fill("#id_topic", "parcels")
            page.check("input[value=earliest]")
            page.click("text=Preview")
            expect(page.locator("h2")).to_contain_text("40 messages come again")
            assert len(consumer.received) == len(sent), "a preview changes nothing"
            first = page.locator("tbody tr td:nth-child(5) a").first
            page.click("button:has-text('Apply to')")
            expect(page.locator("h1")).to_contain_text("to the earliest message that is kept")
            # The page updates by itself until the client has fetched the new offset of every queue.
            expect(page.locator("#progress .chip.good").first).to_have_text("done", timeout=90_000)
            assert first is not None
            wait_for(lambda: all(times(consumer)[one.sha256] == 2 for one in sent), "everything came again")
            assert len(consumer.received) == 2 * len(sent), "once each"
            # The undo restores the group's earlier offsets: the preview shows which messages that skips by now.
            page.click("text=Undo…")
            expect(page.locator("h1")).to_contain_text("back?")
            page.click("button:has-text('Apply to')")
            expect(page.locator("h1")).to_contain_text("back to where it was before reset")
            expect(page.locator("#progress .chip.good").first).to_have_text("done", timeout=90_000)
            more = messages("late", 4)
            producer.send("parcels", more)
            wait_for(lambda: all(times(consumer)[one.sha256] >= 1 for one in more), "what is new comes")
            assert all(times(consumer)[one.sha256] == 2 for one in sent), "nothing came a third time"
    page.click("text=Resets")
    expect(page.locator("#resets tbody tr")).to_have_count(2)
    expect(page.locator("#resets")).to_contain_text("taken back")


def test_skip_to_the_end_of_a_group_that_is_offline(visit: Visit, server: Server, java) -> None:
    page = sign_in(visit(locale="en-GB"))
    old, new = messages("old", 12), messages("new", 5)
    with java.producer(server.namesrv) as producer:
        producer.send("letters", old[:2])
        with java.push(server.namesrv, "letters", "postmen") as consumer:
            consumer.wait_for(2, 90)
        producer.send("letters", old[2:])
        page.goto("/groups/postmen/")
        page.click("text=Skip to the end…")
        said = page.locator(".note").all_inner_texts()
        # Messages in queues with a committed offset, and in queues without. The two that the group consumed may be
        # among them, if the client left before it had committed them.
        assert 10 <= sum(int(text.split()[0]) for text in said) <= 12, said
        page.click("button:has-text('Apply to')")
        expect(page.locator("#progress")).to_contain_text("No client of the group is connected.")
        expect(page.locator("#progress")).to_contain_text("waiting")
        producer.send("letters", new)
        with java.push(server.namesrv, "letters", "postmen") as consumer:
            came = consumer.wait_for(len(new), 40)
            assert {one["body_sha256"] for one in came} == {one.sha256 for one in new}
            expect(page.locator("#progress .chip.good").first).to_have_text("done", timeout=90_000)


def test_lag_and_diagnose_with_a_hung_consumer(visit: Visit, server: Server, java) -> None:
    page = sign_in(visit(locale="en-GB"))
    with java.producer(server.namesrv) as producer:
        producer.send("invoices", messages("first", 8))
        with java.push(server.namesrv, "invoices", "clerks") as healthy:
            healthy.wait_for(8, 90)
        producer.send("invoices", messages("more", 400), how="batch")
        with java.push(server.namesrv, "invoices", "clerks", hold_ms=90_000):
            page.goto("/groups/clerks/")
            # The page refreshes by itself.
            expect(page.locator("#group-state")).to_contain_text("listener slow or hung", timeout=60_000)
            expect(page.locator("#now .note.bad")).to_contain_text(
                "Its consumers have not finished 400 messages of invoices"
            )
            expect(page.locator("#lag tbody tr").first).to_contain_text("got messages")
            expect(page.locator("#lag tbody tr").first).to_contain_text("not committed")
            expect(page.locator("#now")).to_contain_text("never at this rate")
            page.locator("#lag tbody tr td:nth-child(7) a").first.click()
            expect(page.locator("main")).to_contain_text("invoices/")
            page.go_back()
            page.click("text=Diagnose")
            expect(page.locator("dl.facts").first).to_contain_text("given out, not committed")
            expect(page.locator("#looked tbody tr")).to_have_count(15)
            page.click("text=Those of the group, to be asked")
            page.locator("#clients tbody a").first.click()
            page.click("text=Ask, with its threads")
            expect(page.locator("#threads pre")).to_contain_text(re.compile("Conduct"), timeout=90_000)
            expect(page.locator("#threads pre")).to_contain_text("sleep")
            expect(page.locator("#answer")).to_contain_text("invoices")


def test_a_group_is_paused_and_resumed(visit: Visit, server: Server, java) -> None:
    page = sign_in(visit(locale="en-GB"))
    first, later = messages("one", 4), messages("two", 6)
    with java.producer(server.namesrv) as producer, java.push(server.namesrv, "stamps", "collectors") as consumer:
        producer.send("stamps", first)
        consumer.wait_for(len(first), 40)
        page.goto("/groups/collectors/")
        page.click("text=Pause…")
        expect(page.locator("main")).to_contain_text("1 client stays connected and keeps its queues.")
        page.click("text=Pause the group")
        expect(page.locator("#group-state")).to_have_text("paused")
        producer.send("stamps", later)
        time.sleep(5)
        assert len(consumer.received) == len(first), "nothing comes while it is paused"
        page.click("text=Resume…")
        page.click("text=Resume the group")
        consumer.wait_for(len(first) + len(later), 40)
        assert len(consumer.received) == len(first) + len(later), "once each"


def test_the_new_pages_fit_a_phone(visit: Visit) -> None:
    page = sign_in(visit(locale="en-GB", viewport=PHONE))
    for rest in ("", "?tab=clients", "?tab=settings", "diagnosis/", "reset/", "resets/", "clone/", "pause/"):
        page.goto(f"/groups/couriers/{rest}")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], rest
    page.goto("/groups/couriers/resets/")
    page.click("#resets tbody a >> nth=0")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
