"""A tour of three minutes: a new server, messages of every kind, a consumer that fails, and the ways to repair that."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import first_run
from tests.clients.messages import Message
from tests.support.directories import shared_directory
from tests.support.server import Server
from tests.support.waiting import wait_for

TOPIC, GROUP, OTHER = "orders", "billing", "statistics"
#: Messages on which the consumer fails for good, after the first try and one retry.
FAILED = 20
#: The second try comes late enough to look at the waiting retries first.
LEVELS = "1s 2s 15s"


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    directory = shared_directory(request, "story-server")
    environment = {"ROCKETBOX_STORE_MESSAGE_DELAY_LEVEL": LEVELS}
    with Server(
        directory / "data", "--http-port", "0", roles="broker,namesrv,console", environment=environment
    ) as running:
        yield running


def bodies(word: str, count: int, **more: object) -> list[Message]:
    return [Message(b"%s %d" % (word.encode(), number), word, (f"{word}-{number}",), **more) for number in range(count)]


def times(consumer) -> Counter[str]:
    """Return how often each message came, by its body."""
    return Counter(one["body_sha256"] for one in consumer.received)


def told(page: Page, selector: str) -> str:
    return re.sub(r"\s+", " ", page.locator(selector).inner_text())


def test_the_story_of_three_minutes(visit: Callable[..., Page], server: Server, java) -> None:
    page = visit(locale="en-GB")
    first_run(page, server.ready["setup_url"])
    expect(page.locator("#count")).to_contain_text("waiting for the first")

    # Normal, delayed and transactional messages, and a group that consumes them all.
    normal, delayed = bodies("normal", 150), bodies("delayed", 20, delay=2)
    halves = bodies("transactional", 10, properties={"local": "commit"})
    sent = Counter(one.sha256 for one in normal + delayed + halves)
    with (
        java.producer(server.namesrv, group="shop", transactional=True) as producer,
        java.push(server.namesrv, TOPIC, OTHER) as other,
    ):
        producer.send(TOPIC, normal)
        expect(page.locator("#count.good")).to_contain_text("It works", timeout=90_000)
        page.click("text=Open the console")
        producer.send(TOPIC, delayed)
        producer.send(TOPIC, halves, how="transaction")
        other.wait_for(len(sent), 60)
        assert times(other) == sent
        page.goto("/transactions/?show=resolved")
        expect(page.locator("tbody tr")).to_have_count(len(halves))

        # A consumer of another group fails on the next messages: they are retried, then become dead letters.
        page.goto("/create/group/")
        page.fill("#id_name", GROUP)
        page.click("main >> text=Preview")
        page.click("main button.go")
        with java.push(server.namesrv, TOPIC, GROUP) as consumer:
            consumer.wait_for(len(sent), 60)
            page.goto(f"/groups/{GROUP}/")
            expect(page.locator("#group-lead")).to_contain_text("0 messages behind", timeout=60_000)
        bad = bodies("refused", FAILED)
        producer.send(TOPIC, bad)
        with java.push(server.namesrv, TOPIC, GROUP, fail=-1, max_reconsume=1) as failing:
            wait_for(
                lambda: (page.goto(f"/groups/{GROUP}/retries/"), f"{FAILED} messages wait" in told(page, "main"))[1],
                "all wait on the ladder",
                every=0.3,
            )
            expect(page.locator("#ladder tbody tr")).to_have_count(1)
            wait_for(
                lambda: (
                    page.goto(f"/dead-letters/{GROUP}/"),
                    f"{FAILED} dead letters" in told(page, "main"),
                )[1],
                "all are dead",
                every=0.3,
            )
            assert times(failing) == {one.sha256: 2 for one in bad}, "tried twice"

        # Replay them to that group only, at a limited rate, and watch the progress.
        page.click("text=Replay all…")
        page.fill("#id_rate", "2")
        page.click("text=Preview")
        expect(page.locator("h2")).to_have_text(f"{FAILED} messages would be sent")
        page.click("text=Start the replay")
        wait_for(
            lambda: (found := re.search(r"sent (\d+)", told(page, "#progress"))) and 0 < int(found[1]) < FAILED,
            "the page says how far it is",
            every=0.1,
        )
        with java.push(server.namesrv, TOPIC, GROUP) as consumer:
            expect(page.locator("#progress .chip").first).to_have_text("done", timeout=90_000)
            consumer.wait_for(FAILED, 60)
            assert times(consumer) == {one.sha256: 1 for one in bad}
            sent.update(one.sha256 for one in bad)
            assert times(other) == sent, "the other group got no copy"

            # Reset offsets to the beginning, after a preview; then undo that.
            page.goto(f"/groups/{GROUP}/")
            expect(page.locator("#group-lead")).to_contain_text("0 messages behind", timeout=60_000)
            page.click("text=Reset offsets…")
            page.fill("#id_topic", TOPIC)
            page.check("input[value=earliest]")
            page.click("text=Preview")
            expect(page.locator("h2")).to_contain_text(f"{len(sent)} messages come again")
            assert len(consumer.received) == FAILED, "a preview changes nothing"
            page.click("button:has-text('Apply to')")
            expect(page.locator("#progress .chip.good").first).to_have_text("done", timeout=60_000)
            everything = sent + Counter({one.sha256: 1 for one in bad})
            wait_for(lambda: times(consumer) == everything, "everything came again, once")
            page.click("text=Undo…")
            page.click("button:has-text('Apply to')")
            expect(page.locator("h1")).to_contain_text("back to where it was before reset")
            expect(page.locator("#progress .chip.good").first).to_have_text("done", timeout=60_000)
            last = bodies("last", 4)
            producer.send(TOPIC, last)
            wait_for(lambda: all(times(consumer)[one.sha256] for one in last), "what is new comes")
            assert times(consumer) == everything + Counter(one.sha256 for one in last), "nothing came a third time"
    page.goto("/system/audit/")
    for act in ("group.create", "replay.start", "group.reset", "group.undo_reset"):
        expect(page.locator("tbody").first).to_contain_text(act)
