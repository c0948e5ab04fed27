"""Messages are found, exported and imported, with a real browser and the official Java client at both ends."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.clients.messages import Message, assert_each_once, rich
from tests.support.server import Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.nightly

Visit = Callable[..., Page]


def make_topic(page: Page, name: str) -> None:
    page.goto("/create/topic/")
    page.fill("#id_name", name)
    page.click("text=Preview")
    page.click("text=Create the topic")
    expect(page.locator("h1")).to_contain_text(name)


def test_a_message_is_found_in_five_ways(ada: Page, server: Server, java) -> None:
    page = ada
    make_topic(page, "haystack")
    wanted = Message(
        # Long enough to be compressed.
        json.dumps({"order": {"id": 17, "city": "Ulm"}, "padding": "x" * 6000}).encode(),
        "paid", ("order-17", "customer-9"), {"region": "north", "amount": "99.5"},
    )  # fmt: skip
    others = [Message(json.dumps({"order": {"id": n}}).encode(), "open", (f"order-{n}0",)) for n in range(40)]
    with java.producer(server.namesrv) as producer:
        producer.send("haystack", others[:20])
        [ack] = producer.send("haystack", [wanted])
        producer.send("haystack", others[20:])
    by_offset_id = f"/messages/{ack['offset_msg_id']}/"

    # By the id that the producer printed, in upper or lower case; by the broker's id; by its place.
    place = f"haystack/{ack['queue_id']}/{ack['queue_offset']}"
    for text in (ack["msg_id"], ack["msg_id"].lower(), ack["offset_msg_id"], place):
        page.goto("/groups/")
        page.keyboard.press("/")
        expect(page.locator("#search")).to_be_focused()
        page.keyboard.type(text)
        page.keyboard.press("Enter")
        page.wait_for_url(f"**{by_offset_id}", timeout=90_000)
    page.goto(f"/messages/{ack['msg_id']}/")
    expect(page.locator("main")).to_contain_text("customer-9")

    # By a key, which several messages may have.
    page.keyboard.press("Control+k")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("customer-9")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.click("tbody a >> nth=0")
    page.wait_for_url(f"**{by_offset_id}")

    # By its time, and by its content.
    page.goto("/messages/?topic=haystack")
    expect(page.locator("section.panel tbody tr")).to_have_count(41)
    for text in (
        "body('$.order.city') = 'Ulm'",
        "tag = 'paid' AND amount > 9",
        "key LIKE 'customer-%' AND NOT region REGEXP '^s'",
        "body CONTAINS '\"Ulm\"'",
    ):
        page.fill("#filter", text)
        page.click("form.filter button.go")
        expect(page.locator("section.panel tbody tr")).to_have_count(1)
        expect(page.locator("#scanned")).to_contain_text("looked at 41 of 41")
    page.fill("#filter", "tag = paid'")
    page.click("form.filter button.go")
    expect(page.locator("[role=alert]")).to_contain_text("column")
    expect(page.locator("#filter")).to_have_value("tag = paid'")
    page.fill("#filter", "key = 'order-17'")
    page.click("form.filter button.go")
    page.click("section.panel tbody a >> nth=0")
    page.wait_for_url(f"**{by_offset_id}")

    # The page explains why a place holds no message; the same box finds topics.
    page.fill("#search", f"haystack/{ack['queue_id']}/99999")
    page.press("#search", "Enter")
    expect(page.locator("[role=status].note")).to_contain_text(re.compile("ends at [0-9]+"))
    page.fill("#search", "HAYST")
    page.press("#search", "Enter")
    page.click("ul.found a >> text=haystack")
    page.wait_for_url("**/topics/haystack/")


def test_what_was_exported_and_imported_reaches_an_official_consumer_unchanged(
    ada: Page, server: Server, java, tmp_path: Path
) -> None:
    page = ada
    make_topic(page, "outgoing")
    make_topic(page, "incoming")
    sent = [replace(one, body=b"%d " % number + one.body) for number, one in enumerate(rich(60))]
    sent[7] = Message(b"=cmd|' /C calc'!A0", "plums", ("<script>alert(1)</script>",), {"p": "@SUM(1)", "q": '"\n'})
    with java.producer(server.namesrv) as producer:
        producer.send("outgoing", sent)

    page.goto("/messages/?topic=outgoing")
    page.click("text=Search or export all")
    expect(page.locator("p.note")).to_contain_text("60 messages")
    page.click("text=Start the job")
    expect(page.locator("main")).to_contain_text("done", timeout=90_000)
    expect(page.locator("#progress")).to_contain_text("found 60")
    with page.expect_download() as download:
        page.click("text=messages-outgoing.ndjson")
    exported = tmp_path / "messages.ndjson"
    download.value.save_as(exported)
    assert len(exported.read_bytes().splitlines()) == 60

    exported.write_bytes(exported.read_bytes() + b"\nthis is no message\n")
    page.goto("/messages/import/?topic=incoming")
    page.set_input_files("#id_file", exported)
    page.click("text=Check the file")
    expect(page.locator("main")).to_contain_text("line 62: This is not JSON", timeout=90_000)
    page.click("text=Import these messages")
    expect(page.locator("dl.facts")).to_contain_text("60")
    page.click("button:has-text('Import')")
    expect(page.locator("#progress")).to_contain_text("sent 60", timeout=90_000)
    expect(page.locator("#progress")).to_contain_text("failed 1")
    expect(page.locator("#progress")).to_contain_text("1", timeout=90_000)
    with java.push(server.namesrv, "incoming", "incoming-group") as consumer:
        received = consumer.wait_for(60)
        assert_each_once(sent, received)


def test_an_import_that_was_killed_sends_each_line_once(ada: Page, server: Server, java) -> None:
    """The server is killed in the middle, twice; the official consumer counts the imported messages."""
    page = ada
    make_topic(page, "survivor")
    lines = [{"body": {"encoding": "text", "data": f"line {n}"}, "keys": [f"k{n}"]} for n in range(3000)]
    data = "\n".join(json.dumps(line) for line in lines).encode()
    page.goto("/messages/import/?topic=survivor")
    page.set_input_files("#id_file", {"name": "a.ndjson", "mimeType": "application/x-ndjson", "buffer": data})
    page.click("text=Check the file")
    page.click("text=Import these messages", timeout=90_000)
    page.fill("#id_rate", "600")
    page.click("button:has-text('Import')")
    page.wait_for_url("**/jobs/**")
    job = page.url.rstrip("/").rsplit("/", 1)[1]
    asked = lambda address: page.request.get(f"http://{server.ready['http']}{address}").json()  # noqa: E731
    seen = 0
    for _ in range(2):
        goal = seen + 500
        deadline = time.monotonic() + 60
        while seen < goal:
            assert time.monotonic() < deadline
            seen = asked(f"/api/v1/jobs/{job}")["done"]
            time.sleep(0.02)
        server.kill()
        server.restart()
    found = wait_for(
        lambda: (one := asked(f"/api/v1/jobs/{job}"))["state"] not in ("waiting", "running") and one,
        "it ends",
        every=0.2,
    )
    assert found["state"] == "done", found
    assert found["counts"] == {"sent": 3000, "failed": 0, "skipped": 0}
    with java.push(server.namesrv, "survivor", "survivor-group") as consumer:
        received = consumer.wait_for(3000, timeout_s=90)
        assert_each_once([Message(f"line {n}".encode(), None, (f"k{n}",)) for n in range(3000)], received)
