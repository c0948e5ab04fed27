"""Messages that wait, in the console: the histogram, the list, and what is done with them before they are due."""

from __future__ import annotations

import re
import time

import pytest

from appliance.console.models import AuditEntry
from appliance.engine.window.waiting.snapshots import WaitingPlace
from tests.support.engine import Peer, send_fields
from tests.support.waiting import wait_for

HOUR_MS = 3_600_000


def content(response, status: int = 200) -> str:
    assert response.status_code == status, response.content
    return str(response.content.decode())


@pytest.fixture
def waiting(broker, topic) -> dict[str, str]:
    """Two messages of a level and two with times of their own, of one topic; their offset ids by key."""
    soon = int(time.time() * 1000) + HOUR_MS
    sent = {}
    for key, how in (
        ("level-a", {"delay_level": 17}),
        ("level-b", {"delay_level": 18}),
        ("timed-a", {"deliver_at_ms": soon}),
        ("timed-b", {"deliver_at_ms": soon + 12 * HOUR_MS}),
    ):
        sent[key] = broker.sender.send(topic, b"x", keys=[key], **how).offset_id
    # A timer's place is in its schedule a moment later.
    wait_for(lambda: len(broker.waiting.page(topic=topic).rows) == 4, "four messages that wait")
    yield sent
    rows = broker.waiting.page(topic=topic).rows
    broker.waiting_commands.run("drop", [WaitingPlace(row.level, row.queue_offset) for row in rows] or _NOTHING)


_NOTHING = [WaitingPlace(1, 1 << 40), WaitingPlace(1, 1 << 41)]


def picks(page: str) -> list[str]:
    return re.findall(r'name="pick"\s+value="([^"]*)"', page)


def test_the_list_and_its_filters(client_as, broker, topic, waiting):
    viewer = client_as("viewer")
    page = content(viewer.get(f"/delayed/?topic={topic}"))
    for key, offset_id in waiting.items():
        assert key in page
        assert f"/messages/{offset_id}/" in page
    assert not picks(page), "a viewer chooses nothing"
    assert page.index("timed-a") < page.index("timed-b"), "due first, first"
    for query, shown in (
        ("level=17", {"level-a"}),
        ("level=0", {"timed-a", "timed-b"}),
        (f"from={int(time.time() * 1000) + 6 * HOUR_MS}", {"timed-b"}),
        ("show=delayed", set(waiting)),
        ("show=retries", set()),
    ):
        page = content(viewer.get(f"/delayed/?topic={topic}&{query}"))
        assert {key for key in waiting if key in page} == shown, query
    page = content(viewer.get("/delayed/?q=timed-b"))
    assert waiting["timed-b"] in page
    assert waiting["timed-a"] not in page
    for bad in ("level=x", "show=x", "from=x"):
        content(viewer.get(f"/delayed/?{bad}"), 422)
    assert content(viewer.get("/delayed/?span=x"), 400)
    assert "fits this filter" in content(viewer.get("/delayed/?topic=no-such"))


def test_the_histogram_has_levels_and_timers_together_and_its_bars_are_filters(client_as, topic, waiting):
    page = content(client_as("viewer").get(f"/delayed/?topic={topic}&span=1d"))
    bars = re.findall(r'<a href="\?([^"]*)"><rect', page)
    plot = page[page.index('id="histogram"') : page.index('id="waiting"')]
    assert sum(int(n) for n in re.findall(r'<td class="num">(\d+)</td>', plot)) == 4
    last = content(client_as("viewer").get("/delayed/?" + bars[-1].replace("&amp;", "&")))
    assert waiting["timed-b"] in last
    assert waiting["level-a"] not in last


def test_retries_can_be_left_out(client_as, broker, topic, waiting):
    peer = Peer(broker.system().broker_address)
    broker.group_commands.create(topic)
    answer = peer.ask(310, send_fields(topic, 0, "UNIQ_KEY\x01AB\x02KEYS\x01came-back\x02"), b"x")
    fields = {
        "offset": int(answer.ext_fields["msgId"][-16:], 16), "group": topic, "delayLevel": 18, "originMsgId": "x",
        "originTopic": topic, "unitMode": "false", "maxReconsumeTimes": 16,
    }  # fmt: skip
    assert peer.ask(36, fields).code == 0
    peer.close()
    viewer = client_as("viewer")
    for show, there in (("", True), ("retries", True), ("delayed", False)):
        page = content(viewer.get(f"/delayed/?level=18&show={show}"))
        assert (f'href="/groups/{topic}/"' in page) == there, show
        assert ("level-b" in page) == (show != "retries")
    found = content(viewer.get("/delayed/?q=came-back"))
    assert f'data-label="Group"><a href="/groups/{topic}/">' in found
    # All of a filter: the retry becomes a dead letter, nothing else does.
    operator = client_as("operator")
    operator.post("/delayed/act/", {"what": "to_dead_letters", "topic": f"%RETRY%{topic}", "step": "apply"})
    assert "1 message became a dead letter" in content(operator.get("/delayed/done/"))
    assert broker.dead_letters.page(topic).total == 1
    assert len(broker.waiting.page(topic=topic).rows) == 4


def test_ticked_ones_are_cancelled_after_a_preview(client_as, broker, topic, waiting):
    operator = client_as("operator")
    page = content(operator.get(f"/delayed/?topic={topic}"))
    ticked = [one for one in picks(page) if one.startswith(("17-", "0-"))][:2]
    query = "&".join(f"pick={one}" for one in ticked)
    preview = content(operator.get(f"/delayed/act/?what=drop&ticked=yes&{query}"))
    assert "2 messages would be cancelled" in preview
    assert not AuditEntry.objects.exists()
    assert len(broker.waiting.page(topic=topic).rows) == 4
    answer = operator.post("/delayed/act/", {"what": "drop", "pick": ticked, "step": "apply"})
    assert answer.headers["Location"] == "/delayed/done/"
    done = content(operator.get("/delayed/done/"))
    assert "2 messages were cancelled" in done
    # A mark takes a moment to reach the schedule of times.
    wait_for(lambda: len(broker.waiting.page(topic=topic).rows) == 2, "two that are left")
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.after["done"]) == ("delayed.drop", 2)
    # Sent a second time, there is nothing left to cancel, and the page says so.
    operator.post("/delayed/act/", {"what": "drop", "pick": ticked, "step": "apply"})
    assert "0 messages were cancelled" in content(operator.get("/delayed/done/"))
    assert "handled before" in content(operator.get("/delayed/done/"))


def test_all_of_a_filter_is_delivered_now(client_as, broker, topic, waiting):
    operator = client_as("operator")
    preview = content(operator.get(f"/delayed/act/?what=deliver_now&topic={topic}"))
    assert "4 messages would be delivered" in preview
    operator.post("/delayed/act/", {"what": "deliver_now", "topic": topic, "step": "apply"})
    done = content(operator.get("/delayed/done/"))
    assert "4 messages were delivered" in done
    wait_for(lambda: broker.messages.page(topic).total == 4, "the messages in their topic")
    assert AuditEntry.objects.get().after["filter"] == {"topic": topic}


def test_nothing_ticked_is_not_everything(client_as, waiting, topic):
    operator = client_as("operator")
    answer = operator.get(f"/delayed/act/?what=drop&ticked=yes&topic={topic}", follow=True)
    assert answer.redirect_chain == [(f"/delayed/?topic={topic}", 302)]
    assert "No message is ticked." in content(answer)
    for bad in ("what=explode", "what=drop&pick=x", "what=drop&pick=1-x", "what=drop&pick=²-1", "what=drop&level=x",
                "what=drop&from=x", "what=drop&" + "pick=1-1&" * 101):  # fmt: skip
        assert operator.get(f"/delayed/act/?{bad}").status_code == 400, bad
    gone = operator.get("/delayed/act/?what=drop&pick=1-999999999", follow=True)
    assert gone.redirect_chain == [("/delayed/", 302)], "the only one that was ticked has gone"
    assert client_as("viewer").get("/delayed/act/?what=drop&pick=1-1").status_code == 403
    assert client_as("operator").get("/delayed/done/").status_code == 302, "nothing was done yet"
