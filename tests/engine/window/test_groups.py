"""Consumer groups: lag in messages and in time, members, subscriptions that differ."""

import json
import time

import pytest

from appliance.engine.errors import NotFound
from appliance.engine.window.health import needs
from tests.support.engine import pull_fields
from tests.support.waiting import wait_for


def test_lag_is_counted_in_messages_and_in_time(running):
    running.put("Orders", *[b"x"] * 5, queue=0)
    time.sleep(0.3)
    running.put("Orders", *[b"x"] * 3, queue=1)
    running.join("c-1", "CG")
    running.commit("CG", "Orders", 0, 4)
    running.commit("CG", "Orders", 1, 0)
    before = int(time.time() * 1000)
    row = running.window.groups.page().rows[0]
    after = int(time.time() * 1000)
    assert (row.name, row.lag, row.clients, row.topics, row.model) == ("CG", 4, 1, 1, "CLUSTERING")
    assert row.lag_why is None
    first = running.window.messages.detail("Orders/0/4").stored_at_ms
    assert before - first <= row.lag_ms <= after - first, "the oldest of both queues counts"
    running.commit("CG", "Orders", 0, 5)
    later = running.window.messages.detail("Orders/1/0").stored_at_ms
    assert running.window.groups.page().rows[0].lag_ms <= int(time.time() * 1000) - later
    running.commit("CG", "Orders", 1, 3)
    row = running.window.groups.page().rows[0]
    assert (row.lag, row.lag_ms) == (0, 0)


def test_a_group_that_never_committed_has_an_unknown_lag(running):
    running.put("Orders", b"x")
    running.join("c-1", "CG")
    row = running.window.groups.page().rows[0]
    assert (row.lag, row.lag_ms) == (None, None)
    assert row.lag_why.code == row.lag_ms_why.code == "never_committed"
    queue = running.window.groups.detail("CG").queues[0]
    assert (queue.committed, queue.lag, queue.lag_why.code) == (None, None, "never_committed")


def test_queues_without_a_commit_are_not_counted_and_named(running):
    running.put("Orders", b"x", b"x", queue=0)
    running.put("Orders", b"x", queue=2)
    running.join("c-1", "CG")
    running.commit("CG", "Orders", 0, 1)
    row = running.window.groups.page().rows[0]
    assert row.lag == 1
    assert (row.lag_why.code, row.lag_why.args) == ("some_never_committed", {"queues": 1})
    whys = {queue.queue_id: queue.lag_why for queue in running.window.groups.detail("CG").queues if queue.lag is None}
    assert {number: why.code for number, why in whys.items()} == {2: "queue_never_committed"}
    frame = json.loads(running.window.live.frame()[1])
    assert [(one["lag"], one["partial"]) for one in frame["behind"]] == [(1, True)]


def test_a_broadcast_group_keeps_its_offsets_on_its_clients(running):
    running.put("Orders", b"x")
    running.join("c-1", "BG", model="BROADCASTING")
    row = running.window.groups.page().rows[0]
    assert (row.lag, row.lag_why.code) == (None, "broadcast_keeps_offsets")
    assert running.window.groups.detail("BG").queues[0].lag_why.code == "broadcast_keeps_offsets"


def test_an_offset_ahead_of_the_queue_is_no_negative_lag(running):
    running.put("Orders", b"x")
    running.join("c-1", "CG")
    running.engine.broker.offsets._keep("CG", "Orders", 0, 99)  # no client can commit it
    assert running.window.groups.page().rows[0].lag == 0
    assert running.window.groups.detail("CG").queues[0].lag == 0


def test_lists_are_filtered_and_sorted(running):
    running.put("Orders", *[b"x"] * 9)
    for group, offset in (("a", 9), ("b", 2), ("c", 5)):
        running.engine.broker.groups.find(group)
        running.commit(group, "Orders", 0, offset)
    running.join("c-1", "c")
    running.join("d-1", "d")

    def names(**options):
        return [row.name for row in running.window.groups.page(**options).rows]

    assert names() == ["a", "b", "c", "d"]
    assert names(sort="-lag") == ["b", "c", "a", "d"], "the one whose lag is not known comes last"
    assert names(sort="-lag_time") == ["b", "c", "a", "d"]
    assert names(online=True) == ["c", "d"]
    assert names(q="A") == ["a"]
    assert "TOOLS_CONSUMER" in names(system=True)


def test_progress_counts_and_resets_do_not(running):
    running.put("Orders", *[b"x"] * 50)
    running.engine.broker.groups.find("CG")
    running.commit("CG", "Orders", 0, 20)
    running.sample()
    sampler = running.window._parts.sampler
    assert sampler.pairs["Orders", "CG"].resting, "where a group begins is no consumption"
    running.commit("CG", "Orders", 0, 45)
    running.sample()
    running.commit("CG", "Orders", 0, 10)
    running.put("Orders", *[b"x"] * 9, queue=1)
    running.commit("CG", "Orders", 1, 9)
    running.sample()
    assert sampler.pairs["Orders", "CG"].moved(sampler.count) == 25
    assert running.window.groups.page().rows[0].out_rate > 0
    assert max(running.window.charts.series("out", group="CG").values) > 0


def test_members_show_what_each_of_them_subscribes_to(running):
    running.join("ship-01", "CG", tags="paid || sent")
    running.join("ship-02", "CG", tags="sent||paid")
    detail = running.window.groups.detail("CG")
    assert [(c.client_id, c.subscriptions[0].expression) for c in detail.members] == [
        ("ship-01", "paid || sent"),
        ("ship-02", "sent||paid"),
    ]
    assert detail.conflicts == (), "the same tags in another order are no conflict"


def test_subscriptions_that_differ_are_shown_side_by_side(running):
    running.join("ship-01", "CG", tags="paid")
    running.join("ship-02", "CG", tags="*")
    running.join("ship-03", "CG", topic="Other")
    detail = running.window.groups.detail("CG")
    assert detail.conflict
    orders = next(conflict for conflict in detail.conflicts if conflict.topic == "Orders")
    assert {
        (version.expression, tuple(client.client_id for client in version.clients)) for version in orders.versions
    } == {("paid", ("ship-01",)), ("*", ("ship-02",)), (None, ("ship-03",))}
    assert any(need.sentence.code == "subscriptions_differ" for need in running.window.overview.snapshot().needs)


def test_a_member_that_left_is_gone(running):
    one = running.join("ship-01", "CG", tags="paid")
    running.join("ship-02", "CG")
    one.close()
    wait_for(lambda: len(running.window.groups.detail("CG").members) == 1, "ship-01 left")
    assert running.window.groups.detail("CG").conflicts == ()


def test_who_holds_a_queue_in_order(running):
    running.put("Orders", b"x")
    peer = running.join("ship-01", "CG")
    queue = {"topic": "Orders", "brokerName": "broker-a", "queueId": 0}
    import json

    body = {"consumerGroup": "CG", "clientId": "ship-01", "mqSet": [queue]}
    assert peer.ask(41, {}, json.dumps(body).encode()).code == 0
    assert running.window.groups.detail("CG").queues[0].held_by == "ship-01"


def test_retries_and_dead_letters_are_counted_apart(running):
    running.engine.broker.groups.find("CG")
    running.put("%RETRY%CG", b"x", b"y", j=1)
    running.put("%DLQ%CG", b"x", c="TBW102", d=1)
    row = running.window.groups.page().rows[0]
    assert (row.retries, row.dead_letters) == (2, 1)
    needs = [need for need in running.window.overview.snapshot().needs if need.sentence.code == "dead_letters"]
    assert [(need.name, need.level, str(need.sentence)) for need in needs] == [("CG", "act", "CG has 1 dead letter.")]


def test_many_groups_that_need_somebody_are_a_number_at_the_end(running, monkeypatch):
    monkeypatch.setattr(needs, "MOST_NEEDS", 20)
    running.put("Orders", b"x", b"y")
    for number in range(25):
        running.engine.broker.offsets.commit(f"G{number:02}", "Orders", 0, 1)
    found = running.window.overview.snapshot().needs
    assert len(found) == 20
    assert {need.name for need in found[:19]} < {f"G{number:02}" for number in range(25)}
    assert (found[-1].kind, str(found[-1].sentence)) == ("groups", "6 more groups need a look.")


def test_an_unknown_group_is_not_found(running):
    with pytest.raises(NotFound):
        running.window.groups.detail("Nope")


def test_clients_show_their_roles(running):
    running.join("ship-01", "CG")
    running.produce_as("shop-01", "PG")
    rows = {row.client_id: row for row in running.window.clients.page().rows}
    assert rows["ship-01"].consumer_groups == ("CG",)
    assert rows["shop-01"].producer_groups == ("PG",)
    assert rows["shop-01"].version == "5.3.3"
    assert [row.client_id for row in running.window.clients.page(role="producer").rows] == ["shop-01"]
    assert [row.client_id for row in running.window.clients.page(q="SHIP").rows] == ["ship-01"]
    assert [row.client_id for row in running.window.clients.page(group="CG").rows] == ["ship-01"]
    assert running.window.clients.named("shop-01")[0].address == rows["shop-01"].address
    assert running.window.clients.named("nobody") == ()


def test_clients_tell_how_many_of_their_pulls_wait(running):
    running.put("Orders", b"first")
    waiting, other = running.join("ship-01", "CG"), running.join("ship-02", "CG")
    held = {"consumerGroup": "CG", "sysFlag": 6, "suspendTimeoutMillis": 15_000}
    for queue in (0, 1, 1):
        waiting.send(11, pull_fields("Orders", queue, 1 - queue, **held))
    other.send(11, pull_fields("Orders", 2, 0, **held))

    def waits() -> dict[str, int]:
        return {row.client_id: row.parked_pulls for row in running.window.clients.page().rows}

    wait_for(lambda: waits() == {"ship-01": 3, "ship-02": 1}, "four pulls wait")
    assert running.window.clients.named("ship-01")[0].parked_pulls == 3
    assert running.window.overview.snapshot().parked_pulls == running.window.metrics()["parked_pulls"] == 4
    running.put("Orders", b"wakes two", queue=1)
    wait_for(lambda: waits() == {"ship-01": 1, "ship-02": 1}, "a message woke two of them")
    other.close()
    wait_for(lambda: waits() == {"ship-01": 1}, "who closed waits no more")


def test_what_java_clients_send_back_with_makes_nobody_a_producer(running):
    """Every Java client's heartbeat names CLIENT_INNER_PRODUCER, even a consumer's."""
    running.join("ship-01", "CG", also="CLIENT_INNER_PRODUCER")
    running.produce_as("shop-01", "PG")
    rows = {row.client_id: row for row in running.window.clients.page().rows}
    assert rows["ship-01"].producer_groups == ()
    assert [row.client_id for row in running.window.clients.page(role="producer").rows] == ["shop-01"]
    overview = running.window.overview.snapshot()
    assert (overview.producer_clients, overview.consumer_clients) == (1, 1)
