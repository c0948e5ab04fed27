"""A journey below a path behind a reverse proxy: no link, form, file, stream or redirect leads out of the path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import PASSWORD
from tests.support.reverse_proxy import ReverseProxy
from tests.support.server import Server

pytestmark = pytest.mark.nightly

PREFIX = "/mq/box"
ATTRIBUTES = ["href", "src", "action", "hx-get", "data-url"]
PLACES = """names => [...document.querySelectorAll(names.map(name => `[${name}]`).join())].flatMap(one =>
  names.map(name => one.getAttribute(name)).filter(value => value !== null))"""


@pytest.fixture(params=[True, False], ids=["the proxy cuts the path off", "the proxy hands the path on"])
def proxy(request: pytest.FixtureRequest) -> Iterator[ReverseProxy]:
    with ReverseProxy(PREFIX, cut=request.param) as running:
        yield running


def stays_inside(page: Page) -> None:
    """Assert that every address on the page lies below the proxy's path."""
    for place in page.evaluate(PLACES, ATTRIBUTES):
        if not place.startswith("data:"):
            path = urlsplit(urljoin(page.url, place)).path
            assert path.startswith(PREFIX + "/"), f"{place} on {page.url}"
    assert urlsplit(page.url).path.startswith(PREFIX + "/")


def test_a_journey_below_a_path(browser: Browser, proxy: ReverseProxy, tmp_path: Path) -> None:
    arguments = ("--http-port", "0", "--public-url", proxy.url)
    with Server(tmp_path / "data", *arguments, roles="broker,namesrv,console") as server:
        proxy.backend = server.ready["http"]
        context = browser.new_context(locale="en-GB")
        page = context.new_page()
        page.set_default_timeout(60_000)
        assert server.ready["setup_url"].startswith(proxy.url + "/setup/")
        page.goto(server.ready["setup_url"])
        stays_inside(page)
        page.click("button[value=en]")
        page.fill("#id_username", "ada")
        page.fill("#id_password", PASSWORD)
        page.fill("#id_again", PASSWORD)
        page.click("button.go")
        page.wait_for_selector("#findings")
        stays_inside(page)
        page.click("button.go")
        page.wait_for_selector("#count")
        stays_inside(page)
        page.click("text=Open the console")
        expect(page.locator("#live-state")).to_contain_text("live")
        page.goto(proxy.url + "/create/topic/")
        page.fill("#id_name", "below")
        page.click("text=Preview")
        page.click("text=Create the topic")
        page.click(".actions >> text=Send a test message")
        page.fill("#id_body", "hello")
        page.fill("#id_keys", "one")
        page.click("button.go")
        expect(page.locator("#notices")).to_contain_text("Sent and stored")
        message = page.url
        page.fill("#search", page.locator("h1").inner_text())
        page.press("#search", "Enter")
        page.wait_for_url(message)
        menu = page.locator("nav[aria-label=Main] a")
        addresses = [menu.nth(number).get_attribute("href") or "" for number in range(menu.count())]
        for address in [*addresses, PREFIX + "/topics/?sort=-messages", message, PREFIX + "/account/"]:
            answer = page.goto(urljoin(page.url, address))
            assert answer is not None
            assert answer.status == 200, address
            stays_inside(page)
        page.goto(proxy.url + "/system/users/new/")
        page.click("button[value=zh-hans]")
        assert page.url == proxy.url + "/system/users/new/"
        page.click("button[value=en]")
        cookies = {cookie["name"]: cookie for cookie in context.cookies()}
        assert {cookie["path"] for cookie in cookies.values()} == {PREFIX + "/"}
        assert cookies["rocketbox_session"]["httpOnly"]
        page.click("text=Sign out")
        page.wait_for_url(proxy.url + "/login/")
        page.goto(proxy.url + "/topics/")
        assert re.fullmatch(re.escape(proxy.url) + r"/login/\?next=.*topics.*", page.url)
        page.fill("#id_username", "ada")
        page.fill("#id_password", PASSWORD)
        page.click("button.go")
        page.wait_for_url(proxy.url + "/topics/")
        context.close()
    assert [asked for asked in proxy.outside if "favicon" not in asked] == []
    assert any("/live/" in asked for asked in proxy.seen)
    assert any("/static/console.css" in asked for asked in proxy.seen)
