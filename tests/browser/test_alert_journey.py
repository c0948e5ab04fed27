"""An alert, from the rule to the chat and back, with an official consumer that stops and goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import PASSWORD, sign_in
from tests.clients.agents import start_java
from tests.clients.messages import Message
from tests.support.directories import shared_directory
from tests.support.receivers import http_receiver
from tests.support.server import Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.nightly

#: Time until an alert is sent: a sample is taken every 30 s, and two threads check one after the other.
TOLD_LIMIT_S = 120


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    directory = shared_directory(request, "alert-server")
    environment = {"ADMIN_USER": "ada", "ADMIN_PASSWORD": PASSWORD}
    options = {"roles": "broker,namesrv,console", "environment": environment}
    with Server(directory / "data", "--http-port", "0", **options) as running:
        yield running


def test_a_chat_is_told_of_a_group_that_is_behind_and_again_when_it_is_not(visit, server, request) -> None:
    page = sign_in(visit(locale="en-GB"))
    java = start_java("5.3.3", "json", shared_directory(request, "java"))
    with http_receiver() as chat:
        request.addfinalizer(java.close)
        page.click("nav >> text=Alerts")
        page.click(".tabs >> text=Channels")
        page.click("text=Create a channel")
        page.fill("#id_name", "on call")
        page.select_option("#id_kind", "feishu")
        page.fill("#id_address", chat.url("/open-apis/bot/v2/hook/abc"))
        page.fill("#id_secret", "signs")
        page.click("button.go")
        chat.answers = [(200, b'{"code":19021,"msg":"sign match fail"}')]
        page.click("button:has-text('Send a test')")
        expect(page.locator("#notices")).to_contain_text("did not take the test")
        expect(page.locator("#notices")).to_contain_text("sign match fail")
        chat.answers = [(200, b'{"code":0,"msg":"success"}')]
        page.click("button:has-text('Send a test')")
        expect(page.locator("#notices")).to_contain_text("took the test")

        with java.producer(server.namesrv) as producer:
            # All into one queue: lag counts only in queues in which the group has committed an offset.
            producer.send("orders", [Message(b"first", order="one")], how="ordered")
            with java.push(server.namesrv, "orders", "mailer") as consumer:
                consumer.wait_for(1, 90)
                # Its listener may not have returned yet: a client that leaves before does not commit that message.
                ask = partial(page.request.get, "/api/v1/groups/mailer/progress")
                wait_for(lambda: any(one["committed"] == 1 for one in ask().json()["items"]), "it has committed")
            producer.send("orders", [Message(b"late %d" % number, order="one") for number in range(20)], how="ordered")

        page.click("nav >> text=Alerts")
        page.click(".tabs >> text=Rules")
        page.click("text=Create a rule")
        page.fill("#id_name", "far behind")
        page.select_option("#id_figure", "lag_messages")
        page.fill("#id_pattern", "mail*")
        page.fill("#id_above", "10")
        page.fill("#id_for_minutes", "0")
        page.check("text=on call")
        page.click("text=Try on the last 24 hours")
        expect(page.locator("[role=status]")).to_contain_text("Nothing was measured that this rule is about")
        page.click("button.go")
        expect(page.locator("tbody")).to_contain_text("above 10 messages")

        wait_for(lambda: len(chat.received) == 3, "the chat is told", TOLD_LIMIT_S)
        told = json.loads(chat.received[2].body)["content"]["text"]
        assert "Group mailer is 20 messages behind (limit 10)" in told
        page.click("nav >> text=Alerts")
        expect(page.locator("tbody >> nth=0")).to_contain_text("Group mailer is 20 messages behind")
        expect(page.locator("tbody >> nth=0")).to_contain_text("on call: sent")

        with java.push(server.namesrv, "orders", "mailer") as consumer:
            consumer.wait_for(20, 90)
            wait_for(lambda: len(chat.received) == 4, "the chat is told that it is over", TOLD_LIMIT_S)
        assert "Over" in json.loads(chat.received[3].body)["content"]["text"]
        page.reload()
        expect(page.locator("tbody >> nth=0")).to_contain_text("Nothing is above its limit.")
