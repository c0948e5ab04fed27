"""Parameters that a page does not have: the page says so, and a file is refused."""

from __future__ import annotations

import html
import re
from urllib.parse import urljoin

import pytest
from django.http import QueryDict

from appliance.console.asked import Asked

pytestmark = pytest.mark.django_db
NOTICE = "This page knows no parameter called"


@pytest.mark.parametrize("address", ["/topics/", "/groups/", "/clients/", "/jobs/", "/system/audit/", "/dead-letters/"])
def test_a_page_says_which_parameter_it_does_not_know(client_as, broker, address):
    admin = client_as("admin")
    assert NOTICE not in admin.get(address + "?page=1").content.decode()
    page = admin.get(address + "?page=1&qq=orders&<b>=1").content.decode()
    assert f"{NOTICE} qq, &lt;b&gt;: it was ignored." in page


@pytest.mark.parametrize("address", ["/topics/", "/groups/", "/jobs/", "/system/audit/"])
def test_a_file_with_a_filter_that_is_none_is_refused(client_as, broker, address):
    admin = client_as("admin")
    assert admin.get(address + "?format=csv").status_code == 200
    answer = admin.get(address + "?format=csv&qq=orders")
    assert answer.status_code == 400
    assert "There is no filter called qq here" in answer.content.decode()
    assert "Content-Disposition" not in answer.headers


def test_names_are_bounded(client_as, broker):
    page = client_as("admin").get("/topics/?" + "&".join(f"{number}{'x' * 500}=1" for number in range(9)))
    text = page.content.decode()
    assert f"4{'x' * 59}: it was ignored" in text
    assert "x" * 61 not in text.split(NOTICE)[1].split("ignored")[0]


def test_what_is_asked_is_what_was_sent():
    text = "a=1&a=2&b=&%E6%B5%8B=%20"
    asked, plain = Asked(text), QueryDict(text)
    assert asked == plain
    assert asked.urlencode() == plain.urlencode() == asked.copy().urlencode()
    assert asked.getlist("a") == ["1", "2"]
    assert asked.get("c") is None
    assert "b" in asked
    assert asked.read == {"a", "b", "c"}


def test_no_link_of_a_page_asks_what_its_page_does_not_know(client_as, broker, topic):
    """From page to page: sort orders, filters, pagers, files."""
    make_group_of(broker, topic)
    admin = client_as("admin", "may_read_bodies", "may_export")
    waiting, seen, wrong = ["/", "/messages/?topic=" + topic, f"/topics/{topic}/", f"/groups/{topic}/"], set(), []
    while waiting and len(seen) < 250:
        address = waiting.pop(0)
        shape = re.sub(r"=[^&]*", "=", address)  # one link of a kind
        if shape in seen or address.startswith(("/static", "/live/", "/logout")):
            continue
        seen.add(shape)
        answer = admin.get(address)
        if answer.status_code != 200 or answer.streaming:
            if answer.status_code == 400 and "There is no filter called" in answer.content.decode():
                wrong.append(address)
            continue
        if answer.headers["Content-Type"].startswith("text/html"):
            text = answer.content.decode()
            if NOTICE in text:
                wrong.append(address)
            base = address.partition("?")[0]
            for link in re.findall(r'(?:href|action)="([^"#]*)"', text):
                found = urljoin(base, html.unescape(link))
                if found.startswith("/"):
                    waiting.append(found)
    assert len(seen) > 60
    assert not wrong


def make_group_of(broker, name: str) -> None:
    broker.create_group(name)
    for number in range(3):
        broker.send_test_message(name, b"x", keys=[f"k{number}"], tags="A")
