"""Journeys through the console with a real browser, in the order in which a new user makes them.

The tests of this module share one server: the first one sets it up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PASSWORD, PHONE, first_run, sign_in
from tests.clients.messages import Message
from tests.support.server import Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.nightly

Visit = Callable[..., Page]
PAGES = (
    "/",
    "/topics/",
    "/groups/",
    "/dead-letters/",
    "/clients/",
    "/messages/",
    "/system/",
    "/system/config/",
    "/system/audit/",
)
HOSTILE = "<img src=x onerror=document.title='taken'>"


def test_from_the_link_to_a_green_counter(visit: Visit, server: Server, java) -> None:
    page = visit(locale="en-GB")
    first_run(page, server.ready["setup_url"])
    expect(page.locator("#count")).to_contain_text("waiting for the first")
    with java.producer(server.namesrv) as producer:
        producer.send("HelloRocketBox", [Message(b'{"hello": "RocketBox"}', "greeting", ("first",))])
    expect(page.locator("#count.good")).to_contain_text("It works", timeout=90_000)
    page.click("text=Open the console")
    expect(page.locator("[data-count=put_total]")).to_have_text("1")
    link = page.goto(server.ready["setup_url"])
    assert link is not None
    assert link.status == 404, "the wizard is closed"


def test_the_overview_is_live(visit: Visit, server: Server, java) -> None:
    page = sign_in(visit(locale="en-GB"))
    expect(page.locator("#live-state")).to_contain_text("live")
    before = int(page.locator("[data-count=put_total]").inner_text())
    with java.producer(server.namesrv) as producer:
        producer.send("HelloRocketBox", [Message(b"again")] * 3)
    expect(page.locator("[data-count=put_total]")).to_have_text(str(before + 3))
    expect(page.locator("#rates canvas")).to_be_visible()
    up = page.locator("[data-span=uptime_ms]")
    expect(up).not_to_have_text(up.inner_text())
    parts = ("#checks-now h2", "#flush-now", "#disk-now", "#disk-full-now")
    for part in parts:
        page.evaluate("part => { document.querySelector(part).textContent = 'old'; }", part)
    for part in parts:
        expect(page.locator(part)).not_to_have_text("old", timeout=90_000)


def test_a_topic_is_created_and_a_message_found_in_it(visit: Visit) -> None:
    page = sign_in(visit(locale="en-GB"))
    page.goto("/topics/")
    page.click("text=Create a topic")
    page.fill("#id_name", "journey")
    page.check("input[value=FIFO]")
    page.click("text=Preview")
    expect(page.locator(".note")).to_contain_text("in order within one queue only")
    page.click("text=Create the topic")
    expect(page.locator("h1")).to_have_text("journey")
    page.click(".actions >> text=Send a test message")
    page.fill("#id_body", '{"html": "' + HOSTILE + '"}')
    page.fill("#id_keys", HOSTILE.replace(" ", "_"))
    page.click("button.go")
    expect(page.locator("#notices")).to_contain_text("Sent and stored")
    place = page.locator("code", has_text=re.compile("^journey/")).inner_text()
    shown = page.url
    unique = page.locator("h1").inner_text()
    for text in (place, unique, shown.rstrip("/").rpartition("/")[2]):
        page.goto("/groups/")
        page.fill("#search", text)
        page.press("#search", "Enter")
        page.wait_for_url(shown)
    page.fill("#search", HOSTILE.replace(" ", "_"))
    page.press("#search", "Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("journey")
    page.click("tbody a >> nth=0")
    page.wait_for_url(shown)
    for address in ("/messages/?topic=journey", page.url, "/topics/journey/", "/system/audit/", "/"):
        page.goto(address)
        assert page.title() != "taken"
        assert page.locator("img").count() == 0


@contextmanager
def failing(server: Server, java, group: str, count: int) -> Iterator[list[Message]]:
    """Send `count` messages that an official consumer of the group turns into dead letters, and end that consumer."""
    topic = f"{group}-orders"
    sent = [Message(b"%s %d" % (group.encode(), number), "paid", (f"order-{number}",)) for number in range(count)]
    with java.producer(server.namesrv, group=f"{group}-shop") as producer:
        producer.send(topic, sent)
        with java.push(server.namesrv, topic, group, fail=-1, max_reconsume=0) as consumer:
            consumer.wait_for(count, 90)
            yield sent


def rows_of(page: Page, group: str, count: int) -> None:
    """Load the page of the group's dead letters until it shows `count` of them."""
    wait_for(
        lambda: (page.goto(f"/dead-letters/{group}/"), page.locator("form .table tbody tr").count())[1] == count,
        group,
    )


def test_two_ticked_dead_letters_are_replayed_to_the_group(visit: Visit, server: Server, java) -> None:
    page = sign_in(visit(locale="en-GB"))
    with failing(server, java, "billing", 5) as sent:
        rows_of(page, "billing", 5)
    page.click("nav >> text=Dead letters")
    page.click("tbody a >> text=billing")
    page.click("text=Replay the ticked ones")
    expect(page.locator("#notices")).to_contain_text("No dead letter is ticked.")
    ticked = []
    for row in (1, 3):
        line = page.locator("form .table tbody tr").nth(row)
        line.locator("input[type=checkbox]").check()
        ticked.append(line.locator("td").nth(6).inner_text())
    page.click("text=Replay the ticked ones")
    expect(page.locator("main")).to_contain_text("Those that were ticked.")
    page.click("text=Preview")
    expect(page.locator("h2")).to_have_text("2 messages would be sent")
    page.click("text=Start the replay")
    # The replay is done before any consumer is there; the group then receives the copies, and only these.
    expect(page.locator("#progress .chip").first).to_have_text("done", timeout=90_000)
    expect(page.locator("#results tbody .chip.good")).to_have_count(2, timeout=90_000)
    with java.push(server.namesrv, "billing-orders", "billing") as healthy:
        came = healthy.wait_for(2, 90)
        assert sorted(one["body_sha256"] for one in came) == sorted(
            message.sha256 for message in sent if message.keys[0] in ticked
        )
        page.goto("/dead-letters/billing/")
        expect(page.locator("form .table tbody tr")).to_have_count(5)
        assert page.locator("form .table tbody td:nth-child(6) summary").count() == 2, "replayed once"
        assert len(healthy.received) == 2, "exactly the ticked ones"


def test_a_replay_of_all_is_paused_and_cancelled(visit: Visit, server: Server, java) -> None:
    page = sign_in(visit(locale="en-GB"))
    with failing(server, java, "shipping", 12) as sent:
        rows_of(page, "shipping", 12)
    page.click("text=Replay all…")
    page.fill("#id_rate", "2")
    page.click("text=Preview")
    expect(page.locator("h2")).to_have_text("12 messages would be sent")
    page.click("text=Start the replay")
    # The page updates the progress by itself every second.
    expect(page.locator("#progress progress")).not_to_have_attribute("value", "0", timeout=90_000)
    page.click("text=Pause")
    expect(page.locator("#progress .chip.warn")).to_have_text("paused")
    page.click("text=Go on")
    expect(page.locator("#progress .chip.info")).to_have_text("running")
    page.click("text=Cancel the replay")
    expect(page.locator("#progress .chip").first).to_have_text("cancelled")
    said = page.locator("#progress [role=status]").inner_text()
    counts = {word: int(number) for word, number in re.findall(r"([a-z]+(?: [a-z]+)*) (\d+)", said)}
    replayed = counts["sent"]
    assert 1 <= replayed < 12, said
    assert replayed + counts["still to come"] == 12, said
    with java.push(server.namesrv, "shipping-orders", "shipping") as healthy:
        came = healthy.wait_for(replayed, 90)
        assert {one["body_sha256"] for one in came} <= {message.sha256 for message in sent}
        page.goto("/dead-letters/")
        expect(page.locator("#replays tbody tr")).to_have_count(2)
        assert len(healthy.received) == len({one["body_sha256"] for one in came}) == replayed


def test_a_viewer_sees_no_button_that_would_be_refused_and_no_body(visit: Visit) -> None:
    admin = sign_in(visit(locale="en-GB"))
    admin.goto("/system/users/new/")
    admin.fill("#id_username", "vera")
    admin.select_option("#id_role", "viewer")
    admin.click("button.go")
    link = admin.locator("pre.secret, .secret").inner_text().strip()
    admin.reload()
    expect(admin.locator("main")).not_to_contain_text(link)
    page = visit(locale="en-GB")
    page.goto(link)
    page.fill("#id_password", PASSWORD)
    page.fill("#id_again", PASSWORD)
    page.click("button.go")
    expect(page.locator(".note.success")).to_contain_text("Password set")
    sign_in(page, "vera")
    page.goto("/topics/")
    expect(page.locator("text=Create a topic")).to_have_count(0)
    expect(page.locator("nav >> text=Users")).to_have_count(0)
    page.goto("/messages/?topic=journey")
    page.click("tbody a >> nth=0")
    expect(page.locator(".note.info")).to_contain_text("You may not read message bodies")
    answer = page.goto(page.url + "content/")
    assert answer is not None
    assert answer.status == 403
    expect(page.locator("main")).to_contain_text("This needs the right to read message bodies")
    page.goto("/create/topic/")
    expect(page.locator("main")).to_contain_text("This needs the role operator (yours is viewer)")
    expect(page.locator("nav[aria-label=Main]")).to_be_visible()


def test_a_user_kept_to_some_names_sees_those_only(visit: Visit) -> None:
    admin = sign_in(visit(locale="en-GB"))
    for topic in ("ours-1", "theirs-1"):
        admin.goto("/create/topic/")
        admin.fill("#id_name", topic)
        admin.click("main >> text=Preview")
        admin.click("main button.go")
    admin.goto("/system/users/new/")
    admin.fill("#id_username", "otto")
    admin.select_option("#id_role", "operator")
    admin.fill("#id_topic_pattern", "ours-*")
    admin.click("button.go")
    page = visit(locale="en-GB")
    page.goto(admin.locator(".secret").inner_text().strip())
    page.fill("#id_password", PASSWORD)
    page.fill("#id_again", PASSWORD)
    page.click("button.go")
    sign_in(page, "otto")
    expect(page).to_have_url(re.compile("/topics/$"))
    expect(page.locator("tbody")).to_contain_text("ours-1")
    expect(page.locator("tbody")).not_to_contain_text("theirs-1")
    for address in ("/topics/theirs-1/", "/messages/?topic=ours-1", "/system/", "/search/?q=theirs-1"):
        answer = page.goto(address)
        assert answer is not None
        assert answer.status == 403, address


def test_a_second_factor_from_the_picture_to_the_next_sign_in(visit: Visit) -> None:
    import pyotp

    page = sign_in(visit(locale="en-GB", viewport=PHONE), "vera")
    page.goto("/account/")
    page.click("text=Set up a second factor")
    secret = page.locator("code.id").inner_text()
    expect(page.locator(".picture svg")).to_be_visible()
    page.fill("#id_code", pyotp.TOTP(secret).now())
    page.click("main button.go")
    codes = page.locator("pre.secret").inner_text().split()
    assert len(codes) == 10
    again = visit(locale="en-GB")
    again.goto("/login/")
    again.fill("#id_username", "vera")
    again.fill("#id_password", PASSWORD)
    again.click("button.go")
    again.fill("#id_code", codes[0])
    again.click("button.go")
    again.wait_for_selector("body.console")
    again.goto("/account/")
    expect(again.locator("main")).to_contain_text("9 recovery codes left")
    again.click("text=End all others")
    page.goto("/topics/")
    expect(page).to_have_url(re.compile("/login/"))


def test_times_are_in_the_zone_that_the_user_chose(visit: Visit) -> None:
    page = sign_in(visit(locale="en-GB"))
    page.goto("/messages/?topic=HelloRocketBox")
    utc = page.locator("tbody time >> nth=0").inner_text()
    page.goto("/account/")
    page.fill("#zone", "Asia/Shanghai")
    page.click("#time-zone button")
    expect(page.locator(".who")).to_contain_text("times in Asia/Shanghai")
    page.goto("/messages/?topic=HelloRocketBox")
    there = page.locator("tbody time >> nth=0").inner_text()
    hours = (int(there.split()[1][:2]) - int(utc.split()[1][:2])) % 24
    assert hours == 8
    page.fill("#from", there.split(".")[0])
    page.click("text=Show")
    expect(page.locator("tbody time >> nth=0")).to_be_visible()
    page.goto("/account/")
    page.fill("#zone", "UTC")
    page.click("#time-zone button")


def test_every_page_fits_a_phone(visit: Visit) -> None:
    page = sign_in(visit(locale="en-GB", viewport=PHONE))
    for address in (*PAGES, "/topics/journey/", "/messages/?topic=journey", "/messages/send/", "/create/topic/"):
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], address


def test_the_console_speaks_chinese(visit: Visit) -> None:
    page = sign_in(visit(locale="zh-CN"))
    page.click("button[value=zh-hans]")
    expect(page.locator("html")).to_have_attribute("lang", "zh-hans")
    for address in PAGES:
        page.goto(address)
        assert re.search("[一-鿿]", page.locator("h1").inner_text() + page.title()), address
        assert not re.search(r"\b(Filter|Cancel|Preview|Groups|Queues)\b", page.locator("main").inner_text()), address
    page.click("button[value=en]")


def test_lists_and_forms_work_without_javascript(visit: Visit) -> None:
    page = sign_in(visit(locale="en-GB", java_script_enabled=False))
    page.goto("/topics/")
    page.click("th >> text=Messages")
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Messages")
    page.fill("#q", "journey")
    page.click("main >> text=Filter")
    expect(page.locator("tbody tr")).to_have_count(1)
