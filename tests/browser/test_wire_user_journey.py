"""A user of the wire in the browser: made, allowed, asked about, rotated and deleted, on a broker that checks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PASSWORD, sign_in
from tests.browser.test_pages import ENGLISH, OWN_WORDS, WIDE, look
from tests.engine.access.test_enforced import SignedPeer
from tests.support.directories import shared_directory
from tests.support.engine import send_fields
from tests.support.server import Server

SEND = 310

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    first = {"username": "root", "password": "the first one's Zq31 secret"}
    environment = {
        "ADMIN_USER": "ada",
        "ADMIN_PASSWORD": PASSWORD,
        "ROCKETBOX_BROKER_ACCESS_CONTROL": "enforce",
        "ROCKETBOX_BROKER_INIT_AUTHENTICATION_USER": json.dumps(first),
    }
    options = {"roles": "broker,namesrv,console", "environment": environment}
    with Server(shared_directory(request, "wire-users") / "data", "--http-port", "0", **options) as running:
        yield running


def test_a_user_from_the_first_secret_to_the_end(visit: Callable[..., Page], server: Server) -> None:
    page = sign_in(visit(locale="en-GB", viewport=WIDE))
    page.click("nav >> text=Wire users")
    look(page)
    page.click("text=Add a wire user")
    look(page)
    page.fill("#id_name", "shop")
    page.click("button.go")
    secret = page.locator(".secret").inner_text().strip()
    look(page)
    page.reload()
    expect(page.locator("main")).to_contain_text("was shown once")
    assert page.locator(".secret").count() == 0
    page.click("text=The wire user")
    peer = SignedPeer(server.broker, ("shop", secret))
    assert peer.ask(SEND, send_fields("orders"), b"x").code == 16

    page.click("nav >> text=Wire users")
    page.click("text=Refused requests")
    expect(page.locator("main tbody tr")).to_contain_text("no entry fits")
    look(page)
    page.click("text=Allow it…")
    expect(page.locator("#id_resource")).to_have_value("Topic:orders")
    expect(page.locator("#id_actions_0")).to_be_checked()

    page.fill("#id_resource", "orders")
    page.check("#id_actions_0")
    page.click("text=Save the entry")
    expect(page.locator(".field .error")).to_contain_text("must be * or begin with Topic:")
    look(page)
    page.fill("#id_resource", "Topic:orders*")
    page.fill("#id_sources", "127.0.0.0/8, 10.0.0.0/8")
    page.click("text=Save the entry")
    expect(page.locator("main table")).to_contain_text("Topic:orders*")
    peer = SignedPeer(server.broker, ("shop", secret))
    assert peer.ask(SEND, send_fields("orders"), b"x").code == 0
    page.fill("#id_resource", "Topic:*")
    page.check("#id_actions_6")
    page.check("#id_decision_1")
    page.click("text=Save the entry")
    page.fill("#ask_resource", "Topic:orders")
    page.click("text=Ask")
    expect(page.locator("#question")).to_contain_text("The entry for Topic:orders* decides: it allows.")
    expect(page.locator("#question")).to_contain_text("fits, but another one decides")
    look(page)

    page.click("text=New secret")
    assert page.locator(".secret").inner_text().strip() != secret
    page.click("text=The wire user")
    look(page)
    page.click("button[value=zh-hans]")
    for address in ("/system/wire-users/", "/create/wire-user/", "/system/wire-users/shop/delete/",
                    "/system/wire-users/shop/?action=Pub&resource=Topic%3Aorders&address=10.0.0.1"):  # fmt: skip
        page.goto(address)
        assert not ENGLISH.findall(page.evaluate(OWN_WORDS)), address
    page.click("button[value=en]")
    page.click("text=End the old secret")
    page.click("button:has-text('Disable')")
    expect(page.locator("h1")).to_contain_text("disabled")
    page.click("a:has-text('Delete')")
    look(page)
    page.fill("#typed", "shop")
    page.click("text=Delete the wire user")
    expect(page.locator("#notices")).to_contain_text("Wire user shop deleted.")
