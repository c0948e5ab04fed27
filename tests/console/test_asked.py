"""Parameters that a page does not have: the page says so, and a file is refused."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urldefrag, urlencode, urljoin

import pytest
from django.http import QueryDict

from appliance.console.pages.asked import Asked
from tests.support.dead_letters import make_group, put_dead_letters
from tests.support.engine import Peer
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db
NOTICE = "This page has no parameter called"


@pytest.mark.parametrize("address", ["/topics/", "/groups/", "/clients/", "/jobs/", "/system/audit/", "/dead-letters/"])
def test_a_page_says_which_parameter_it_does_not_know(client_as, broker, address):
    admin = client_as("admin")
    assert NOTICE not in admin.get(address + "?page=1").content.decode()
    page = admin.get(address + "?page=1&qq=orders&<b>=1").content.decode()
    assert f"{NOTICE} qq, &lt;b&gt;; it was ignored." in page


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
    assert f"4{'x' * 59}; it was ignored" in text
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
    broker.group_commands.create(name)
    for number in range(3):
        broker.sender.send(name, b"x", keys=[f"k{number}"], tags="A")


# --- forms

TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
#: Pages with forms that ask (method="get"), with something in each list: {name} is a topic and a group.
FORMS = (
    "/topics/",
    "/topics/{name}/purge/",
    "/groups/",
    "/groups/{name}/",
    "/groups/{name}/retries/",
    "/clients/",
    "/messages/?topic={name}",
    "/messages/tail/?topic={name}",
    "/search/?q={name}",
    "/delayed/",
    "/transactions/",
    "/transactions/?show=resolved",
    "/dead-letters/",
    "/dead-letters/{name}/",
    "/clean-up/?kind=groups",
    "/history/",
    "/jobs/",
    "/connect/",
    "/connect/try/",
    "/system/users/",
    "/system/audit/",
    "/system/log/",
    "/system/config/",
)


class _Forms(HTMLParser):
    """The forms of a page that ask: (address, fields, buttons with a name or another address)."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[SimpleNamespace] = []
        self._at: SimpleNamespace | None = None
        self._by_id: dict[str, SimpleNamespace] = {}
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        if tag == "form":
            self._at = SimpleNamespace(action=told.get("action") or "", fields={}, buttons=[])
            self._by_id[told.get("id") or ""] = self._at
            if told.get("method", "get") == "get":
                self.found.append(self._at)
        at = self._by_id.get(told["form"] or "", self._at) if "form" in told else self._at
        name = told.get("name") or ""
        if tag == "option" and at is not None and self._select and ("selected" in told or not at.fields[self._select]):
            at.fields[self._select] = told.get("value") or ""
        if at is not None and tag == "button":
            at.buttons.append((told.get("formaction") or at.action, {name: told.get("value") or ""} if name else {}))
        elif at is not None and name and tag in ("input", "select", "textarea"):
            at.fields[name] = told.get("value") or ""
            self._select = name if tag == "select" else ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._at = None


def asked_by(text: str, page: str) -> Iterator[str]:
    """Yield the address that each button of the page's forms leads to, with all fields sent."""
    forms = _Forms()
    forms.feed(text)
    for form in forms.found:
        if not form.fields and not form.buttons:
            continue  # it cannot be sent
        for action, more in form.buttons or [(form.action, {})]:
            fields = form.fields | more
            yield urldefrag(urljoin(page, action)).url.partition("?")[0] + "?" + urlencode(fields)


#: Pages that need access control, in test_wire_users.py.
TRIED_ELSEWHERE = {"wire_users/access.html", "wire_users/list.html", "wire_users/refusals.html", "wire_users/user.html"}


@pytest.fixture
def busy(_one_broker: Any, broker: Any, topic: str) -> Iterator[str]:
    """A name of a topic and a group with something in each list."""
    running: Any = SimpleNamespace(engine=_one_broker, window=broker)
    make_group(running, topic, topic)
    put_dead_letters(running, topic, 2)
    sent = broker.sender.send(topic, b"x")
    peer = Peer(broker.system().broker_address)
    fields = {
        "offset": int(sent.offset_id[-16:], 16), "group": topic, "originMsgId": "x", "delayLevel": 15,
        "originTopic": topic, "unitMode": "false", "maxReconsumeTimes": 16,
    }  # fmt: skip
    assert peer.ask(36, fields).code == 0
    peer.close()
    broker.sender.send(topic, b"x", delay_level=17)
    broker.sender.send(topic, b"x", half_of="PG")
    yield topic
    broker.waiting_commands.run("drop", group=topic)  # other tests count what waits


def replayed(broker: Any, group: str) -> str:
    """A replay that has ended."""
    job = broker.replay_commands.start(group, rate=10_000).job.id
    wait_for(lambda: broker.replays.job(job).finished, "it has ended")
    return str(job)


def test_no_form_of_a_page_sends_what_its_page_does_not_know(client_as, broker, busy):
    admin = client_as("admin", "may_read_bodies", "may_export")
    sent, wrong, templates = set(), [], set()
    for page in [*(page.format(name=busy) for page in FORMS), f"/replays/{replayed(broker, busy)}/"]:
        answer = admin.get(page)
        assert answer.status_code == 200, page
        templates |= {template.name for template in answer.templates}
        for address in asked_by(answer.content.decode(), page):
            sent.add(re.sub(r"=[^&]*", "=", address))
            shown = admin.get(address, follow=True)
            if shown.status_code not in (200, 422) or NOTICE in shown.content.decode():
                wrong.append((shown.status_code, address))
    assert not wrong
    asking = {
        str(path.relative_to(TEMPLATES))
        for path in TEMPLATES.rglob("*.html")
        if re.search(r'<form[^>]*method="get"|\{% filters', path.read_text(encoding="utf-8"))
    }
    assert asking - templates == TRIED_ELSEWHERE, "forms of these were not tried"
    for what in ("transactions/decide/?", "transactions/check/?", "retries/act/?", "delayed/act/?", "/archive/?"):
        assert any(what in one and "ticked=" in one and "pick=" in one for one in sent), what
