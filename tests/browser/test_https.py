"""The console by HTTPS in a browser: from the set-up link to a live tail over a secure WebSocket."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import first_run
from tests.support.directories import shared_directory
from tests.support.peer import Peer, send_fields
from tests.support.server import Server
from tests.support.tls import make_pair


@pytest.fixture(scope="module")
def secure(request: pytest.FixtureRequest) -> Iterator[Server]:
    directory = shared_directory(request, "https")
    certificate, key = make_pair(directory)
    options = ["--https-port", "0", "--https-cert", str(certificate), "--https-key", str(key)]
    with Server(directory / "data", *options, roles="broker,namesrv,console") as running:
        yield running


def test_a_browser_sets_up_signs_in_and_watches_a_tail(browser: Browser, secure: Server):
    base = f"https://{secure.ready['http']}"
    assert secure.ready["setup_url"].startswith(base)
    context = browser.new_context(base_url=base, locale="en-GB", ignore_https_errors=True)
    page = context.new_page()
    page.set_default_timeout(60_000)
    sockets: list[str] = []
    wrong: list[str] = []
    page.on("websocket", lambda socket: sockets.append(socket.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    first_run(page, secure.ready["setup_url"]).click("text=Open the console")
    page.wait_for_selector("body.console")
    cookies = {cookie["name"]: cookie["secure"] for cookie in context.cookies()}
    assert cookies["rocketbox_session"]
    assert cookies["rocketbox_csrf"]
    page.goto("/system/checks/")
    expect(page.locator("main")).to_contain_text("TLS certificate of the console")
    peer = Peer(secure.broker)
    assert peer.ask(310, send_fields("watched"), b"first").code == 0
    page.goto("/messages/tail/?topic=watched")
    expect(page.locator("#tail-state")).to_have_text("live")  # what came before is not shown
    assert peer.ask(310, send_fields("watched"), json.dumps({"over": "wss"}).encode()).code == 0
    expect(page.locator("#tail-rows tr")).to_contain_text(["wss"])
    peer.close()
    assert [url.split("?")[0] for url in sockets] == [f"{base.replace('https', 'wss')}/messages/tail/"]
    assert not wrong
    context.close()
