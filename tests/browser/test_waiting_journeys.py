"""Journeys with waiting messages and transactions, which one official client sends and another receives or not.

The tests of this module share one server.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from appliance.commands import restore as restore_command
from tests.browser.conftest import sign_in
from tests.clients.messages import Message
from tests.support.server import Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.nightly

Visit = Callable[..., Page]


def keyed(key: str, **more) -> Message:
    return Message(key.encode(), "paid", (key,), **more)


def tick(page: Page, *keys: str) -> None:
    for key in keys:
        page.locator("tbody tr", has_text=key).locator("input[type=checkbox]").check()


def test_delayed_messages_are_cancelled_and_delivered_now(ada: Page, server: Server, java) -> None:
    with java.producer(server.namesrv) as producer:
        producer.send(
            "later",
            [
                keyed("cancel-level", delay=16),
                keyed("cancel-timer", timer={"TIMER_DELAY_SEC": 1800}),
                keyed("now-level", delay=17),
                keyed("now-timer", timer={"TIMER_DELAY_SEC": 3000}),
                keyed("soon", delay=4),
            ],
        )
        with java.push(server.namesrv, "later", "readers") as consumer:
            ada.click("nav >> text=Delayed messages")
            wait_for(lambda: (ada.reload(), ada.locator("#waiting tbody tr").count())[1] >= 4, "they wait")
            ada.fill("#topic", "later")
            ada.click("main >> button:has-text('Filter')")
            expect(ada.locator("#waiting tbody")).to_contain_text("cancel-level")
            assert ada.locator("svg .column").count() >= 2, "bars of the histogram"
            tick(ada, "cancel-level", "cancel-timer")
            ada.click("text=Cancel the ticked ones")
            expect(ada.locator("h2").first).to_have_text("2 messages would be cancelled")
            ada.click("text=Cancel these messages")
            expect(ada.locator("h1")).to_have_text("2 messages were cancelled")
            ada.goto("/delayed/?topic=later")
            tick(ada, "now-level", "now-timer")
            ada.click("text=Deliver the ticked ones now")
            expect(ada.locator("h2").first).to_have_text("2 messages would be delivered")
            ada.click("main >> button:has-text('Deliver now')")
            expect(ada.locator("h1")).to_have_text("2 messages were delivered")
            # The delivered copy is one click away.
            ada.click("tbody a >> nth=0")
            expect(ada.locator("main")).to_contain_text("later")
            came = consumer.wait_for(3, 60)  # and the one of 30 s, which was left alone
            assert {one["keys"] for one in came} == {"now-level", "now-timer", "soon"} or {
                one["body_sha256"] for one in came
            } == {keyed(key).sha256 for key in ("now-level", "now-timer", "soon")}
            ada.goto("/delayed/?topic=later")
            expect(ada.locator("#waiting tbody")).to_contain_text("No message waits that fits")
            assert len(consumer.received) == 3, "what was cancelled never comes"
    ada.goto("/system/audit/")
    expect(ada.locator("tbody").first).to_contain_text("delayed.drop")
    expect(ada.locator("tbody").first).to_contain_text("delayed.deliver_now")


def test_half_messages_are_decided(ada: Page, server: Server, java) -> None:
    open_ones = [
        Message(key.encode(), "paid", (key,), properties={"local": "unknown", "check": "unknown"})
        for key in ("half-commit", "half-back")
    ]
    with (
        java.producer(server.namesrv, group="shop", transactional=True) as producer,
        java.push(server.namesrv, "money", "tills") as consumer,
    ):
        producer.send("money", open_ones, how="transaction")
        producer.wait_for_executed(2)
        ada.click("nav >> text=Transactions")
        row = ada.locator("tbody tr", has_text="half-commit")
        expect(row).to_contain_text("shop")
        expect(row).to_contain_text("1 online")
        # A check on request: the producer itself answers "unknown".
        tick(ada, "half-commit")
        ada.click("text=Check the ticked ones now")
        ada.click("text=Ask now")
        expect(ada.locator("h1")).to_have_text("A producer was asked about 1 transaction")
        producer.wait_for_checks(open_ones[0], 1, 90)
        for key, button, heading in (
            ("half-commit", "Commit the ticked ones", "1 transaction was committed"),
            ("half-back", "Roll the ticked ones back", "1 transaction was rolled back"),
        ):
            ada.goto("/transactions/?topic=money")
            tick(ada, key)
            ada.click(f"text={button}")
            expect(ada.locator(".note.bad")).to_contain_text("Prefer to check now")
            ada.click("main >> button:has-text('Preview')")
            expect(ada.locator("h1")).to_contain_text("for the producer?")  # the reason is missing still
            ada.fill("#id_reason", f"{key} by hand")
            ada.click("main >> button:has-text('Preview')")
            expect(ada.locator("h2").first).to_contain_text("1 transaction would be")
            ada.click("main >> button[value=apply]")
            expect(ada.locator("h1")).to_have_text(heading)
        [came] = consumer.wait_for(1, 90)
        assert came["body_sha256"] == open_ones[0].sha256
        ada.goto("/transactions/?show=resolved&topic=money")
        expect(ada.locator("tbody")).to_contain_text("half-back by hand")
        expect(ada.locator("tbody")).to_contain_text("half-commit by hand")
        asked = len(producer.checks_of(open_ones[1]))
        # A round of checks passes: no producer is asked about the ended ones, and no message comes.
        with java.producer(server.namesrv, group="clock", transactional=True) as clock:
            last = Message(b"clock", properties={"local": "unknown", "check": "rollback"})
            clock.send("money", [last], how="transaction")
            clock.wait_for_checks(last, 1, 60)
        assert len(producer.checks_of(open_ones[1])) <= asked + 1
        assert len(consumer.received) == 1


def test_a_backup_is_made_fetched_and_restored(ada: Page, server: Server, java, tmp_path) -> None:
    sent = [keyed(f"kept-{number}") for number in range(50)]
    with java.producer(server.namesrv) as producer:
        producer.send("kept", sent)
        ada.goto("/system/users/")
        ada.click("tbody a >> text=ada")
        ada.check("#id_may_read_bodies")
        ada.check("#id_may_export")
        ada.click("main >> button.go >> nth=0")
        ada.goto("/system/backups/")
        expect(ada.locator("main")).to_contain_text("No backup was made here yet.")
        ada.click("text=Make one now")
        expect(ada.locator("main .chip.good").first).to_have_text("done", timeout=60_000)
        # A later message is not in the backup.
        producer.send("kept", [keyed("too-late")])
    ada.goto("/system/backups/")
    expect(ada.locator("main")).to_contain_text("The last good one was made")
    with ada.expect_download() as download:
        ada.click("main tbody a:has-text('Download')")
    path = tmp_path / "fetched.tar"
    download.value.save_as(path)
    ada.click("main tbody button:has-text('Check')")
    expect(ada.locator("main .chip.good").first).to_have_text("done", timeout=60_000)
    assert restore_command.run([str(path), "--into", str(tmp_path / "restored"), "--quiet"]) == 0
    with Server(tmp_path / "restored", "--http-port", "0", roles="broker,namesrv,console") as second:
        with java.push(second.namesrv, "kept", "second-readers") as consumer:
            came = consumer.wait_for(50, 60)
            assert {one["body_sha256"] for one in came} == {one.sha256 for one in sent}
        # The console's data is restored, too: no set-up is needed, and the password is valid.
        assert "setup_url" not in second.ready or not second.ready["setup_url"]
        page = ada.context.browser.new_context(base_url=f"http://{second.ready['http']}").new_page()
        sign_in(page)
        page.goto("/topics/kept/")
        expect(page.locator("h1")).to_contain_text("kept")
        page.context.close()
