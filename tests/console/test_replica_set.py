"""The page of a set that fails over, and what is done there: from a leader, from a follower, and when it is ill."""

from __future__ import annotations

from dataclasses import replace

import pytest

from appliance import runtime
from appliance.console import jobs
from appliance.console.jobs import runner
from appliance.console.models import AuditEntry
from appliance.engine.errors import Unavailable
from appliance.engine.window.sentences import say
from tests.console.conftest import age_login
from tests.support.directories import shared_directory
from tests.support.engine import RunningEngine
from tests.support.made_set import HERE, OTHER, MadeSet, cut_file, cut_tail, following, leading, member, member_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def made(broker):
    with member_of(broker, MadeSet()) as found:
        yield found


def text_of(client, address: str, status: int = 200) -> str:
    answer = client.get(address)
    assert answer.status_code == status, answer.content
    return answer.content.decode()


def test_a_leader_shows_the_set_and_how_far_each_member_is(client_as, made):
    page = text_of(client_as("admin"), "/replication/")
    for words in ("orders-set", "10.0.0.2:10911", "40.0 KiB", "12 ms", "2 of 3", "not connected", "this broker",
                  "the leader&#x27;s ports refused", "4.0 KiB at most were lost", "haOnPromote"):  # fmt: skip
        assert words in page, words
    assert page.count("Have it lead…") == 1, "of the one that is in sync and elsewhere"
    assert f"/replication/switch/?to={OTHER}" in page
    assert "Adopt the set" not in page
    for role in ("viewer", "operator"):
        assert "Have it lead…" not in text_of(client_as(role), "/replication/")
    assert "10.0.0.2:10911" in text_of(client_as("viewer"), "/replication/now/")


def test_a_follower_does_not_claim_to_know_what_only_the_leader_knows(client_as, made):
    made.seen = following()
    page = text_of(client_as("admin"), "/replication/")
    assert "The leader knows how far each of them is." in page
    assert "Have it lead…" not in page
    assert "Adopt the set" not in page
    assert "0 ms" not in page


def test_the_page_stays_while_the_broker_changes_its_role(client_as, made, broker):
    parts, broker._parts = broker._parts, None
    broker._without = "role_changes"
    try:
        page = text_of(client_as("admin"), "/replication/")
    finally:
        broker._parts, broker._without = parts, "no_broker"
    assert "changing its role" in page
    assert "10.0.0.2:10911" in page


def test_a_switch_is_looked_at_then_done_and_written_down(client_as, made):
    admin = client_as("admin")
    page = text_of(admin, f"/replication/switch/?to={OTHER}")
    assert OTHER in page
    assert "Nothing acknowledged is lost" in page
    assert made.asked == []
    answer = admin.post("/replication/switch/", {"to": OTHER, "step": "apply"})
    assert answer.headers["Location"] == "/replication/"
    assert made.asked == [("switch", OTHER, "the-admin")]
    [line] = AuditEntry.objects.all()
    assert (line.action, line.target, line.result) == ("set.switch", OTHER, "done")


def test_a_refused_switch_leads_back_with_the_reason(client_as, made):
    made.seen = following()
    admin = client_as("admin")
    assert admin.post("/replication/switch/", {"to": OTHER, "step": "apply"}).status_code == 302
    assert "neither leads nor follows" in text_of(admin, "/replication/")
    [line] = AuditEntry.objects.all()
    assert line.result == "refused"


def test_a_set_is_adopted_once_its_name_was_typed(client_as, made):
    made.seen = leading(role="frozen", leader="", leader_addr="", role_why=say("set_frozen"))
    admin = client_as("admin")
    assert "/replication/adopt/" in text_of(admin, "/replication/")
    page = text_of(admin, "/replication/adopt/")
    assert "is lost for good" in page
    assert "on this broker only" in page, "the warnings say what may be lost"
    assert admin.post("/replication/adopt/", {"name": "orders"}).status_code == 422
    assert made.asked == []
    assert not AuditEntry.objects.exists()
    assert admin.post("/replication/adopt/", {"name": "orders-set"}).status_code == 302
    assert made.asked == [("adopt", HERE, "the-admin")]
    [line] = AuditEntry.objects.all()
    assert (line.action, line.target, line.result) == ("set.adopt", "orders-set", "done")


def test_both_acts_ask_for_the_password_again(client_as, made):
    admin = client_as("admin")
    age_login(admin)
    for address in (f"/replication/switch/?to={OTHER}", "/replication/adopt/"):
        assert admin.get(address).headers["Location"].startswith("/confirm/")


def test_a_broker_in_no_set_says_so(client_as, broker):
    admin = client_as("admin")
    for address in ("/replication/switch/?to=x", "/replication/adopt/"):
        assert "haStore is not set" in text_of(admin, address, 409)
    assert admin.get("/api/v1/replication/set").status_code == 404


def test_the_api_tells_the_same(client_as, made):
    viewer = client_as("viewer")
    told = viewer.get("/api/v1/replication/set").json()
    assert (told["set"], told["epoch"], told["leader"]) == ("orders-set", 7, HERE)
    assert [one["lag_bytes"] for one in told["members"]] == [0, 40_960, None]
    assert [one["differs"] for one in told["members"]] == [[], [], []]
    assert told["settings"]["haStore"] == "etcd://10.0.1.1:2379"
    admin = client_as("admin")
    look = admin.post(
        "/api/v1/replication/set/switch?dry_run=true", {"to": OTHER}, content_type="application/json"
    ).json()
    assert look["applied"] is False
    wrong = {"uuid": HERE, "confirm": "orders"}
    answer = admin.post("/api/v1/replication/set/adopt", wrong, content_type="application/json")
    assert answer.status_code == 422
    assert made.asked == []


def codes(window) -> set[str]:
    return {one.sentence.code for one in window._parts.replication.of_set() if one.level}


def test_what_is_wrong_with_a_set_needs_somebody(made, broker):
    assert codes(broker) == {"set_member_lost_since"}
    well = (made.seen.members[0], made.seen.members[1])
    made.seen = leading(members=well)
    assert codes(broker) == set()
    made.seen = leading(members=(well[0], replace(well[1], lag_ms=70_000)))
    assert codes(broker) == {"slave_lags"}
    made.seen = leading(members=(well[0], replace(well[1], in_sync=False)))
    assert codes(broker) == {"set_one_copy"}
    made.seen = leading(members=(well[0], replace(well[1], in_sync=False)), min_in_sync=2)
    assert codes(broker) == {"set_too_few"}
    made.seen = leading(members=well, store_ok=False)
    assert codes(broker) == {"set_store_silent"}
    made.seen = leading(members=well, store_warning=say("set_store_short", reason="90% of its quota"))
    assert codes(broker) == {"set_store_short"}
    made.seen = leading(members=well, quarantine=(cut_file(),))
    assert codes(broker) == {"set_quarantined"}
    made.seen = leading(members=(well[0], replace(well[1], differs=("brokerRole=ASYNC_MASTER (here SYNC_MASTER)",))))
    assert codes(broker) == {"set_contradicts"}
    made.seen = leading(members=(well[0], replace(well[1], slow_ms=1200)))
    assert codes(broker) == {"set_member_slow_kept"}
    made.seen = leading(members=(well[0], replace(well[1], slow_ms=1200, in_sync=False), well[1]))
    assert codes(broker) == {"set_member_slow"}
    # A follower tells only what it sees itself.
    made.seen = following()
    assert codes(broker) == set()
    made.seen = following(leader="", leader_addr="")
    assert codes(broker) == {"set_no_leader"}
    made.seen = following(role="fenced")
    assert codes(broker) == {"set_fenced"}
    made.seen = following(role="frozen", leader="")
    assert codes(broker) == {"set_frozen"}
    # A member that has just been restarted is not lost.
    made.seen = leading(members=(*well, member("x", 3, connected=False)))
    assert codes(broker) == set()


def test_needs_and_checks_reach_the_overview_and_the_way_leads_here(client_as, made):
    page = text_of(client_as("viewer"), "/needs/")
    assert "10.0.0.3:10911 does not follow" in page
    assert "/replication/" in page
    names = {one.name: one.level for one in runtime.window().checks()}
    assert names["leader_store"] == names["replication"] == names["copies"] == "ok"


def test_the_figures_of_a_set(client_as, made):
    lines = dict(
        line.rsplit(" ", 1) for line in text_of(client_as("viewer"), "/metrics").splitlines() if line[0] != "#"
    )
    assert lines["rocketbox_set_epoch"] == "7"
    assert lines['rocketbox_set_role{role="leader"}'] == "1"
    assert lines['rocketbox_set_role{role="follower"}'] == "0"
    assert lines["rocketbox_set_in_sync_members"] == "2"
    assert lines[f'rocketbox_set_member_lag_bytes{{member="{OTHER}"}}'] == "40960"
    assert f'rocketbox_set_member_lag_seconds{{member="{OTHER}"}}' in lines


def test_a_member_that_does_not_lead_sends_changes_to_the_leader(client_as, broker, made):
    made.seen = following()
    object.__setattr__(broker._parts, "is_slave", True)
    try:
        with pytest.raises(Unavailable, match=r"follows 10\.0\.0\.1:10911, which leads the set"):
            broker.topic_commands.create("New")
        made.seen = following(leader="", leader_addr="")
        with pytest.raises(Unavailable, match="no leader is known"):
            broker.topic_commands.create("New")
        assert broker.master_address() is None
        admin = client_as("admin")
        assert "its set has no leader now" in text_of(admin, "/topics/")
        made.seen = following()
        page = text_of(admin, "/topics/")
        assert "the leader of its set is <code>10.0.0.1:10911</code>" in page
        assert "/create/topic/" not in page
    finally:
        object.__setattr__(broker._parts, "is_slave", False)


# --- what was cut off


@pytest.fixture
def running(broker):
    found = RunningEngine.of(runtime.running().engine)
    yield found
    found.hang_up()


UNIQUE = "UNIQ_KEY\x01{id}\x02KEYS\x01order-{n}\x02TAGS\x01a\x02WAIT\x01true\x02"


def test_what_was_cut_off_can_be_read_page_by_page_without_bodies(client_as, running, broker):
    name = cut_tail(running, "CutPages", 3)
    viewer = client_as("viewer")
    page = text_of(viewer, f"/replication/quarantine/{name}/")
    assert page.count("CutPages") == 3
    assert "cut " not in page.replace("cut from", "")
    assert "another leads epoch 7" in page
    assert "Send 3 messages again" not in page
    assert "Send 3 messages again" in text_of(client_as("operator"), f"/replication/quarantine/{name}/")
    first = viewer.get(f"/api/v1/replication/quarantine/{name}?limit=2").json()
    assert (len(first["messages"]), first["records"]) == (2, 3)
    rest = viewer.get(f"/api/v1/replication/quarantine/{name}?limit=2&offset={first['next_offset']}").json()
    assert (len(rest["messages"]), rest["next_offset"]) == (1, None)
    for wrong in ("no-such", "..%2F..%2Fstore", "diverged-1-2-3.log"):
        assert viewer.get(f"/replication/quarantine/{wrong}/").status_code == 404, wrong


@pytest.fixture(scope="module")
def _other(request):
    found = RunningEngine(shared_directory(request, "leader"))
    yield found
    found.stop()


@pytest.fixture
def leader(_other, made):
    """Another broker, which leads the set by now."""
    made.seen = following(leader_addr=_other.engine.broker_address)
    return _other


def test_what_the_leader_lacks_is_sent_again_and_what_it_has_is_not(running, broker, leader):
    name = cut_tail(running, "CutThere", 1, properties=UNIQUE.format(id="0A" * 16, n=1), queue=2)
    assert [one.outcome for one in broker.quarantine.send(name, by="ada")[0]] == ["sent"]
    found = leader.window
    [row] = found.messages.page("CutThere", limit=5).rows
    assert (row.unique_id, row.keys, row.tags, row.queue_id) == ("0A" * 16, ("order-1",), "a", 2)
    assert found.messages.body_bytes(row.offset_id) == broker.messages.body_bytes(f"CutThere/2/{row.queue_offset}")
    [one], rest = broker.quarantine.send(name, by="ada")
    assert (one.outcome, one.unique_id, rest) == ("there", "0A" * 16, None)
    assert found.messages.page("CutThere", limit=5).total == 1


def test_a_message_with_the_unique_id_of_one_that_was_cut_is_not_taken_for_it(running, broker, leader):
    properties = UNIQUE.format(id="0C" * 16, n=1)
    leader.put("CutTwin", b"another", properties=properties)
    name = cut_tail(running, "CutTwin", 1, properties=properties)
    assert [one.outcome for one in broker.quarantine.send(name)[0]] == ["sent"]
    assert leader.window.messages.page("CutTwin", limit=5).total == 2
    assert [one.outcome for one in broker.quarantine.send(name)[0]] == ["there"]


def test_the_next_retry_of_a_message_is_not_taken_for_the_one_before(running, broker, leader):
    """A message that came back twice: both copies have its unique id, its birth and its body."""
    properties = UNIQUE.format(id="0D" * 16, n=1)
    name = cut_tail(running, "CutRetry", 1, properties=properties, j=2)
    body = b"cut %d 0" % int(name.split("-")[2])
    leader.put("CutRetry", body, properties=properties, j=1)
    assert [one.outcome for one in broker.quarantine.send(name)[0]] == ["sent"]
    assert leader.window.messages.page("CutRetry", limit=5).total == 2
    assert [one.outcome for one in broker.quarantine.send(name)[0]] == ["there"]


def test_a_job_sends_all_of_a_file_and_counts_what_became_of_them(client_as, running, broker, leader):
    name = cut_tail(running, "CutJob", 120)
    answer = client_as("operator").post(f"/replication/quarantine/{name}/send/")
    assert answer.status_code == 302
    [line] = AuditEntry.objects.all()
    assert line.target == name
    assert runner.run_waiting() == 1
    job = jobs.board().get(answer.headers["Location"].split("/")[2])
    assert (job.state, job.counts) == ("done", {"sent": 120, "there": 0, "left_out": 0, "failed": 0})
    assert leader.window.messages.page("CutJob", limit=500).total == 120
    assert job.id in text_of(client_as("operator"), f"/replication/quarantine/{name}/")


def test_halves_are_not_sent_again_and_delayed_ones_wait_again(running, broker, leader):
    name = cut_tail(running, "CutDelayed", 1, properties="DELAY\x015\x02UNIQ_KEY\x01" + "0B" * 16 + "\x02")
    [one], _ = broker.quarantine.send(name)
    assert one.topic == "SCHEDULE_TOPIC_XXXX"
    assert one.outcome == "sent"
    [row] = leader.window.waiting.page().rows
    assert (row.level, row.topic) == (5, "CutDelayed")
    assert [one.outcome for one in broker.quarantine.send(name)[0]] == ["there"]
    half = cut_tail(running, "CutHalf", 1, properties="TRAN_MSG\x01true\x02PGROUP\x01PG\x02", f=4)
    [one], _ = broker.quarantine.send(half)
    assert (one.outcome, one.why.code) == ("left_out", "quarantine_of_the_broker")


def test_nothing_is_sent_while_nobody_leads(running, broker, made):
    name = cut_tail(running, "CutAlone", 1)
    made.seen = following(leader="", leader_addr="")
    object.__setattr__(broker._parts, "is_slave", True)
    try:
        with pytest.raises(Unavailable, match="No leader is known"):
            broker.quarantine.send(name)
        made.seen = following(leader_addr="127.0.0.1:1")
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
            broker.quarantine.send(name)
    finally:
        object.__setattr__(broker._parts, "is_slave", False)
