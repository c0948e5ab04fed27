"""Every page, on a broker full of odd things: no name runs as a script, axe has no serious finding in light or dark,
nothing is wider than a phone, no English is left for Chinese readers.

The tests of this module share one server: the first one sets it up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from http.client import HTTPConnection

import pytest
from playwright.sync_api import Page, TimeoutError, expect

from tests.browser.axe import problems
from tests.browser.conftest import PASSWORD, PHONE, sign_in
from tests.browser.furniture import LONG_GROUP, Furniture, by_day, odd_names, pages
from tests.support.directories import shared_directory
from tests.support.effort import NIGHTLY
from tests.support.server import Server

Visit = Callable[..., Page]
WIDE = {"width": 1200, "height": 900}
#: Script that returns a page's own words, without the parts that keep their language whatever the reader's is.
OWN_WORDS = """() => {
  const copy = document.querySelector('main').cloneNode(true);
  copy.querySelectorAll('pre, code, table.log, [lang=en], datalist, script').forEach(one => one.remove());
  copy.querySelectorAll('*').forEach(one => one.append(' | '));
  return copy.textContent;
}"""
LZ4_SAYS = "failed with code"
#: Three words in a row; names have no spaces.
ENGLISH = re.compile(r"\b[A-Za-z']{2,}(?: [a-z']{2,}){2,}")


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server on a store with odd names in it."""
    data_dir = shared_directory(request, "server") / "data"
    odd_names(data_dir)
    with Server(data_dir, "--http-port", "0", roles="broker,namesrv,console") as running:
        yield running


@pytest.fixture(scope="module")
def house(server: Server) -> Iterator[Furniture]:
    """The contents of the server's broker."""
    furniture = Furniture(server.broker)
    yield furniture
    furniture.close()


def look(page: Page) -> None:
    """Assert that the page has no mistakes as it is now."""
    assert not mistakes(page), page.url


def mistakes(page: Page, with_axe: bool = True) -> list[str]:
    """Return the mistakes of the page as it is now, in light and dark, wide and narrow."""
    page.wait_for_load_state()  # after a click the new page may still come
    found = ["a name ran as a script"] if page.title() == "taken" else []
    if page.locator("main img, main script, main iframe").count():
        found.append("a name became an element")
    if with_axe:
        found += problems(page)
        page.emulate_media(color_scheme="dark")
        found += [f"dark: {one}" for one in problems(page, "color-contrast")]
        page.emulate_media(color_scheme="light")
    for size in (PHONE, WIDE):
        page.set_viewport_size(size)
        try:  # a chart adapts to its window a moment later
            page.wait_for_function(
                "width => document.documentElement.scrollWidth <= width", arg=size["width"], timeout=90_000
            )
        except TimeoutError:
            found.append(f"wider than {size['width']}")
    return found


def shape(address: str) -> str:
    """Return an address without the names in it: the same for all pages of one kind."""
    path, _, query = address.partition("?")
    parts = path.split("/")
    if parts[1] in ("topics", "groups") or (parts[1] == "messages" and len(parts) > 3):
        parts[2:3] = ["NAME"] if parts[2] else [""]
    return "/".join(parts) + ("?none" if "no-such" in query or "never" in query or "nothing" in query else "")


def test_the_first_run(visit: Visit, server: Server) -> None:
    page = visit(locale="en-GB", timezone_id="Asia/Shanghai")
    page.goto("/login/")
    look(page)
    page.goto(server.ready["setup_url"])
    look(page)
    page.click("button[value=en]")
    expect(page.locator("#id_time_zone")).to_have_value("Asia/Shanghai")
    page.fill("#id_time_zone", "UTC")
    look(page)
    page.fill("#id_username", "ada")
    page.fill("#id_password", "short")
    page.fill("#id_again", "other")
    page.click("button.go")
    expect(page.locator(".field .error").first).to_be_visible()
    look(page)
    page.fill("#id_password", PASSWORD)
    page.fill("#id_again", PASSWORD)
    page.click("button.go")
    page.wait_for_selector("#findings")
    look(page)
    page.fill("#id_host", "no such host")
    page.wait_for_selector("#findings .error")
    look(page)
    page.fill("#id_host", "127.0.0.1")
    page.wait_for_selector("#findings .chip")
    page.click("button.go")
    page.wait_for_selector("#count")
    look(page)
    page.click("text=Open the console")
    page.wait_for_selector("body.console")
    look(page)
    page.goto("/system/users/1/")
    page.check("#id_may_read_bodies")
    page.check("#id_may_export")
    page.click("text=Save")


def test_the_door(visit: Visit, house: Furniture) -> None:
    page = visit(locale="en-GB")
    page.goto("/login/?next=/topics/")
    look(page)
    page.fill("#id_username", "nobody")
    page.fill("#id_password", "wrong password")
    page.click("button.go")
    expect(page.locator("[role=alert]")).to_have_count(1)
    look(page)


def test_a_time_is_chosen_from_a_calendar(visit: Visit, house: Furniture) -> None:
    page = sign_in(visit(locale="en-GB", viewport=WIDE))
    page.goto("/messages/?topic=orders")
    page.locator("button[aria-label='Choose from a calendar']").first.click()
    page.locator(".timed input[type=datetime-local]").first.fill("2026-11-21T10:00")
    expect(page.locator("#from")).to_have_value("2026-11-21 10:00")


def test_another_name_for_this_machine_reads_nothing(server: Server, house: Furniture) -> None:
    """A request under a foreign host name that resolves to 127.0.0.1 is answered 400, whatever its path."""
    host, _, port = server.ready["http"].rpartition(":")
    for path in ("/", "/login/", "/healthz", "/metrics", "/api/v1/me", "/static/console.css"):
        connection = HTTPConnection(host, int(port), timeout=60)
        connection.request("GET", path, headers={"Host": f"elsewhere.example:{port}"})
        assert connection.getresponse().status == 400, path
        connection.close()


def test_every_page(visit: Visit, house: Furniture) -> None:
    page = sign_in(visit(locale="en-GB", viewport=WIDE))
    answers: dict[str, int] = {}
    wrong: dict[str, list[str]] = {}
    looked_at = set()
    for address in pages(house.ids) if NIGHTLY else by_day(pages(house.ids)):
        answer = page.goto(address)
        assert answer is not None
        answers[address] = answer.status
        # axe checks one page of each kind and status; for further ones the other checks suffice.
        kind = (shape(address), answer.status)
        if found := mistakes(page, with_axe=kind not in looked_at):
            wrong[address] = found
        looked_at.add(kind)
    assert not wrong
    assert all(status < 500 for status in answers.values())
    assert sum(status == 200 for status in answers.values()) > len(answers) * 0.8


@pytest.mark.nightly
def test_forms_with_mistakes_and_previews(visit: Visit, house: Furniture) -> None:
    page = sign_in(visit(locale="en-GB", viewport=WIDE))
    for address, fields, button in (
        ("/create/topic/", {"#id_name": "a b"}, "Preview"),
        ("/create/topic/", {"#id_name": "fine"}, "Preview"),
        ("/topics/orders/edit/", {"#id_write_queues": "2", "#id_read_queues": "1"}, "Preview"),
        ("/topics/orders/delete/", {"#typed": "payments"}, "Delete the topic"),
        ("/create/group/", {"#id_name": "a b", "#id_retry_max_times": "-7"}, "Preview"),
        ("/groups/billing/edit/", {"#id_retry_max_times": "3"}, "Preview"),
        (f"/groups/{LONG_GROUP}/delete/", {"#typed": LONG_GROUP}, "Delete the group"),
        ("/messages/send/", {"#id_topic": "no-such", "#id_body": "x", "#id_properties": "no equals sign"}, "Send"),
        ("/system/config/change/", {"#o-shortPollingTimeMills": "7"}, "Preview"),
        ("/system/tokens/new/", {"#id_name": "ci"}, "Create the token"),
        ("/system/users/new/", {"#id_username": "ada"}, "Add the user"),
        ("/system/users/new/", {"#id_username": "vera"}, "Add the user"),
        ("/account/", {"#id_current": "wrong", "#id_password": "x", "#id_again": "y"}, "Change the password"),
        ("/confirm/", {"#id_password": "wrong"}, "Continue"),
    ):
        page.goto(address)
        for field, value in fields.items():
            page.fill(field, value)
        page.click(f"main >> text={button} >> nth=-1")
        page.wait_for_load_state()
        look(page)


def test_what_a_viewer_sees(visit: Visit, house: Furniture) -> None:
    admin = sign_in(visit(locale="en-GB"))
    admin.goto("/system/users/new/")
    admin.fill("#id_username", "victor")
    admin.check("#id_first_1")
    admin.click("button.go")
    first = admin.locator(".secret").inner_text().strip()
    page = sign_in(visit(locale="en-GB", viewport=WIDE), "victor", first)
    look(page)
    page.fill("#id_current", first)
    page.fill("#id_password", PASSWORD)
    page.fill("#id_again", PASSWORD)
    page.click("button.go")
    message = f"/messages/{house.ids['hostile']}/"
    for address in ("/", "/topics/orders/", "/groups/billing/", message, message + "content/", "/system/users/"):
        page.goto(address)
        look(page)


@pytest.mark.nightly
def test_nothing_is_left_in_english(visit: Visit, house: Furniture) -> None:
    page = sign_in(visit(locale="en-GB", viewport=WIDE))
    page.click("button[value=zh-hans]")
    english = {}
    for address in pages(house.ids):
        page.goto(address)
        assert page.locator("html").get_attribute("lang") == "zh-hans", address
        found = [words for words in ENGLISH.findall(page.evaluate(OWN_WORDS)) if words != LZ4_SAYS]
        if found:
            english[address] = found
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDE["width"], address
    assert not english
    for address, fields in (
        ("/create/topic/", {"#id_name": "a b"}),
        ("/create/topic/", {"#id_name": "%RETRY%a"}),
        ("/create/group/", {"#id_name": "a b", "#id_retry_max_times": "-7"}),
        ("/messages/send/", {"#id_topic": "orders", "#id_body": "x", "#id_tags": "a b"}),
        ("/messages/send/", {"#id_topic": "orders", "#id_body": "", "#id_queue_id": "77"}),
        ("/system/config/change/", {"#o-shortPollingTimeMills": "-1"}),
    ):
        page.goto(address)
        for field, value in fields.items():
            page.fill(field, value)
        page.locator("main form.body").evaluate("form => { form.noValidate = true; }")
        page.click("main form.body button.go")
        expect(page.locator("main .error, main [role=alert]").first).to_be_visible()
        assert not ENGLISH.findall(page.evaluate(OWN_WORDS)), address
    page.click("button[value=en]")


@pytest.mark.nightly
def test_a_page_is_walked_with_the_keyboard(visit: Visit, house: Furniture) -> None:
    page = sign_in(visit(locale="en-GB", viewport=WIDE))
    page.goto("/topics/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    seen = set()
    for _ in range(12):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.outerHTML.slice(0, 60)"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", page.evaluate("document.activeElement.outerHTML")
    assert len(seen) > 8, "the focus moves on"


@pytest.mark.nightly
def test_the_menu_of_a_phone_opens_and_closes(visit: Visit, house: Furniture) -> None:
    page = sign_in(visit(locale="en-GB", viewport=PHONE))
    assert not page.locator("nav >> text=Consumer groups").is_visible()
    page.click("text=Menu >> nth=0")
    expect(page.locator("nav >> text=Consumer groups")).to_be_visible()
    assert not problems(page)
    page.click("nav >> text=Consumer groups")
    page.wait_for_url("**/groups/")
    expect(page.locator("nav >> text=Consumer groups")).to_be_hidden()
