"""Users who are kept to some names: what pages and API show them, and what they refuse."""

import html
import re
from types import SimpleNamespace

import pytest

from appliance.console.models import User
from appliance.console.sign_in.identity import names_for
from appliance.console.users.access import ACCESS
from appliance.console.users.patterns import Names
from appliance.console.users.scope import NAMES, cut
from appliance.engine.broker.offset_resets.targets import Earliest
from appliance.engine.window.health import limits
from appliance.engine.window.snapshots import Page
from tests.support.engine import Peer
from tests.support.members import Member

from .conftest import signed_in
from .test_access import PAGES, address_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def kept(people):
    """An administrator kept to topics of orders and groups of billing."""
    User.objects.filter(username="the-admin").update(topic_pattern="orders-*", group_pattern="billing-*")
    return signed_in("the-admin")


def test_a_name_fits_all_patterns_of_its_kind():
    names = Names(("orders-*", "*-eu"), ("billing-*",))
    assert names.has_topic("orders-eu")
    assert not names.has_topic("orders-us")
    assert names.has_group("billing-1")
    assert not names.has("orders-eu"), "a name of either kind has to fit both"
    assert names.has_topic("%DLQ%billing-1")
    assert names.has_topic("%RETRY%billing-1")
    assert not names.has_topic("%DLQ%orders-eu")
    assert Names().is_every
    for topic in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC"):
        assert not Names(("*_*",), ()).has_topic(topic), "messages of all topics wait there"
        assert not Names((), ("a-*",)).has_topic(topic)
        assert Names().has_topic(topic)


def test_lists_have_only_what_fits(kept, broker):
    for name in ("orders-1", "orders-2", "payments-1", "billing-t"):
        broker.topic_commands.create(name, read_queues=1, write_queues=1)
    for name in ("billing-1", "orders-g"):
        broker.group_commands.create(name)
    page = kept.get("/topics/?show=all").content.decode()
    assert "orders-1" in page
    assert "payments-1" not in page
    assert "billing-t" not in page
    csv = kept.get("/topics/?format=csv&show=all").content.decode()
    assert "orders-2" in csv
    assert "payments-1" not in csv
    page = kept.get("/groups/").content.decode()
    assert "billing-1" in page
    assert "orders-g" not in page
    assert kept.get("/").headers["Location"] == "/topics/"
    rows = kept.get("/api/v1/topics").json()["items"]
    assert rows
    assert all(row["name"].startswith("orders-") for row in rows)


def test_every_other_page_is_refused(kept, broker):
    """A newly added page is closed to these users until its row says `names`."""
    open_to_them = {name for name, kind in NAMES.items() if kind in ("own", "list", "replay")}
    for name, route in PAGES:
        rule = ACCESS[name]
        if rule.grants or rule.door or not rule.role or name in open_to_them | {"overview"}:
            continue
        response = kept.get(address_of(route))
        assert response.status_code in (403, 405), f"{name}: {response.status_code}"
        if response.status_code == 405:
            assert kept.post(address_of(route)).status_code == 403, name


def test_pages_of_a_name_are_for_names_that_fit(kept, broker):
    broker.topic_commands.create("orders-of-mine", read_queues=1, write_queues=1)
    assert kept.get("/topics/orders-of-mine/").status_code == 200
    assert kept.get("/topics/payments-1/").status_code == 403
    assert kept.get("/topics/billing-1/").status_code == 403
    assert kept.get("/groups/orders-1/").status_code == 403
    assert kept.post("/topics/payments-1/delete/", {"name": "payments-1"}).status_code == 403
    refused = kept.get("/groups/orders-1/").content.decode()
    assert "topics orders-*, groups billing-*" in refused
    assert '<nav aria-label="Main">' in refused, "with the menu"


def test_what_scope_lists_exists():
    names = {name for name, _ in PAGES} | {"api_docs", "openapi"}
    assert not NAMES.keys() - names
    assert set(NAMES.values()) == {"own", "list", "topic", "group", "replay"}


def test_who_has_no_pattern_sees_all(people):
    assert names_for(people["viewer"]).is_every


def test_no_page_leads_where_a_user_with_patterns_may_not_go(kept, broker, monkeypatch):
    """Each link and form of the pages that are open to them, with a group that consumes a topic that is not."""
    monkeypatch.setattr(limits, "STUCK_S", 0.0)
    broker.topic_commands.create("orders-links", read_queues=1, write_queues=1)
    broker.topic_commands.create("payments-links", read_queues=1, write_queues=1)
    broker.group_commands.create("billing-links")
    broker.group_commands.create("shipping-links")
    peer = Peer(broker.system().broker_address)
    for topic in ("orders-links", "payments-links"):
        for body in (b"a", b"b", b"c"):
            broker.sender.send(topic, body, queue_id=0)
        for group in ("billing-links", "shipping-links"):
            assert peer.ask(15, {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 1}).code == 0
    peer.close()
    member = Member(broker.system().broker_address, "one@10.0.0.9", "billing-links", "orders-links", 0.0)
    reset = broker.offset_commands.reset("billing-links", ["orders-links", "payments-links"], Earliest())
    pages = [
        *("/topics/?show=all", "/topics/orders-links/", "/groups/", "/dead-letters/", "/account/", "/system/tokens/"),
        *(f"/groups/billing-links/{rest}" for rest in ("", "?tab=clients", "?tab=subscriptions", "?tab=settings")),
        *(f"/groups/billing-links/{rest}" for rest in ("diagnosis/", "resets/", "retries/", f"resets/{reset.id}/")),
        "/groups/billing-links/reset/?topic=orders-links&to=latest&step=preview",
    ]
    found, texts = {}, {}
    for page in pages:
        answer = kept.get(page)
        assert answer.status_code == 200, page
        texts[page] = answer.content.decode()
        for link in re.findall(r'(?:href|action|hx-get)="(/[^"#]*)', texts[page]):
            found.setdefault(html.unescape(link), page)
    member.close()
    closed = {link: page for link, page in found.items() if kept.get(link).status_code == 403}
    assert not closed
    assert "/topics/orders-links/" in found, "what is open to them is a link"
    diagnosis = texts["/groups/billing-links/diagnosis/"]
    assert "a queue is stuck</span>" in diagnosis
    assert "Message that holds it up" in diagnosis
    assert "Look at it" not in diagnosis
    assert "payments-links" in texts["/groups/billing-links/"], "what is not open to them is a name"


def test_a_list_for_some_names_is_filtered_and_sorted_once(people):
    people["viewer"].topic_pattern = "t-7*"
    rows = tuple(SimpleNamespace(name=f"t-{number}") for number in range(900))
    asked = []

    def fetch(number: int, size: int) -> Page:
        asked.append(number)
        return Page(rows[(number - 1) * size : number * size], len(rows), number, -(-len(rows) // size), size)

    page = cut(SimpleNamespace(user=people["viewer"]), "topic", fetch)(2, 50)
    assert (page.total, [row.name for row in page.rows][:2], asked) == (111, ["t-739", "t-740"], [1])
