"""Messages that an official consumer failed on, put right in the browser: a replay over a SIGKILL, and the retries."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PASSWORD, sign_in
from tests.clients.messages import Message
from tests.support.directories import shared_directory
from tests.support.ports import reserve_port
from tests.support.server import Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.nightly

Visit = Callable[..., Page]
HOSTILE = "<img/src=x/onerror=document.title='taken'>"


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server whose retries wait for an hour, so that no message comes by itself."""
    directory = shared_directory(request, "letters-server")
    environment = {
        "ADMIN_USER": "ada", "ADMIN_PASSWORD": PASSWORD,
        "ROCKETBOX_STORE_MESSAGE_DELAY_LEVEL": "1s 5s 1h 2h",
    }  # fmt: skip
    port = str(reserve_port())  # the same one again after the kill
    with Server(
        directory / "data", "--http-port", port, roles="broker,namesrv,console", environment=environment
    ) as running:
        yield running


def orders(group: str, count: int) -> list[Message]:
    return [Message(b"%s %d" % (group.encode(), n), "paid", (f"order-{n}", HOSTILE)) for n in range(count)]


def test_a_replay_is_watched_over_a_kill(visit: Visit, server: Server, java) -> None:
    count, topic, group = 60, "killed-orders", "killed"
    page = sign_in(visit(locale="en-GB"))
    with java.producer(server.namesrv, group="killed-shop") as producer:
        producer.send(topic, orders(group, count))
        with java.push(server.namesrv, topic, group, fail=-1, max_reconsume=0):
            address = f"/dead-letters/{group}/"
            wait_for(lambda: f"{count} dead letters" in shown(page, address), "all are dead", every=0.3)
    expect(page.locator("#grid tbody tr")).to_have_count(1)
    page.locator("#grid tbody td a").first.click()
    expect(page.locator("#letters + form h2")).to_have_text(f"looked at 50 of {count}")
    page.click("text=Replay all of this filter…")
    page.fill("#id_rate", "20")
    page.click("text=Preview")
    expect(page.locator("h2")).to_have_text(f"{count} messages would be sent")
    page.click("text=Start the replay")
    expect(page.locator("#progress .chip").first).to_have_text("running")
    wait_for(lambda: 15 < sent(page) < count, "the middle")
    server.kill()
    server.start()  # the page goes on by itself, and its reader is still signed in
    with java.push(server.namesrv, topic, group) as healthy:
        expect(page.locator("#progress .chip").first).to_have_text("done", timeout=90_000)
        said = re.sub(r"\s+", " ", page.locator("#progress [role=status]").inner_text())
        assert f"{count} of {count} = sent {count} + failed 0 + skipped 0 + expired 0 · still to come 0" in said
        came = healthy.wait_for(count, 90)
        page.wait_for_timeout(1000)
        found = Counter(one["body_sha256"] for one in healthy.received)
        assert found.keys() == {message.sha256 for message in orders(group, count)}
        # Offsets of the seconds before the kill are gone: what died comes from its topic once more, too.
        assert max(found.values()) <= 2
        assert {one["topic"] for one in came} == {topic}
    with page.expect_download() as download:
        page.click("#results >> text=CSV")
    rows = download.value.path().read_text().splitlines()
    assert len(rows) == count + 1
    assert all(",replayed," in row for row in rows[1:])
    assert page.title() != "taken"


def test_what_waits_on_the_ladder_is_retried_now(visit: Visit, server: Server, java) -> None:
    topic, group = "ladder-orders", "ladder"
    page = sign_in(visit(locale="en-GB"))
    with java.producer(server.namesrv, group="ladder-shop") as producer:
        producer.send(topic, orders(group, 5))
        with java.push(server.namesrv, topic, group, fail=-1):
            address = f"/groups/{group}/retries/"
            wait_for(lambda: "5 messages wait" in shown(page, address), "all are sent back", every=0.3)
    expect(page.locator("#ladder tbody tr")).to_have_count(1)
    expect(page.locator("#ladder tbody tr")).to_contain_text("1 h")
    expect(page.locator("#ladder tbody tr")).to_contain_text(topic)
    page.locator("#waiting input[name=pick]").nth(0).check()
    page.locator("#waiting input[name=pick]").nth(3).check()
    page.click("text=Retry the ticked ones now…")
    expect(page.locator("h1")).to_have_text("Retry them now?")
    with java.push(server.namesrv, topic, group) as healthy:
        page.click("button >> text=Retry now")
        expect(page.locator("h1")).to_have_text("2 messages are retried now")
        came = healthy.wait_for(2, 90)
        assert [(one["topic"], one["reconsume_times"]) for one in came] == [(topic, 1)] * 2
        page.click("text=What still waits")
        expect(page.locator("#waiting input[name=pick]")).to_have_count(3)
        page.locator("#waiting input[name=pick]").nth(0).check()
        page.click("text=Drop the ticked ones…")
        page.click("text=Drop these messages")
        expect(page.locator("h1")).to_have_text("1 message was dropped")
        page.click("text=What still waits")
        page.click("text=All to dead letters…")
        page.click("button >> text=Make them dead letters")
        expect(page.locator("h1")).to_have_text("2 messages became dead letters")
        page.click("text=The dead letters")
        expect(page.locator("form .table tbody tr")).to_have_count(2)
        assert len(healthy.received) == 2, "what was dropped, and what is dead, never comes"
    page.goto(f"/groups/{group}/retries/")
    expect(page.locator("#waiting")).to_contain_text("Nothing waits")
    assert page.title() != "taken"


def shown(page: Page, address: str) -> str:
    page.goto(address)
    return re.sub(r"\s+", " ", page.locator("main").inner_text())


def sent(page: Page) -> int:
    found = re.search(r"sent (\d+)", page.locator("#progress [role=status]").inner_text())
    return int(found[1]) if found else 0
