"""Consumer groups: lag in messages and in time, members, subscriptions that differ."""

import time

import pytest

from appliance.engine.errors import NotFound
from tests.support.engine import pull_fields

from .conftest import wait_for


def test_lag_is_counted_in_messages_and_in_time(house):
    house.put("Orders", *[b"x"] * 5, queue=0)
    time.sleep(0.3)
    house.put("Orders", *[b"x"] * 3, queue=1)
    house.join("c-1", "CG")
    house.commit("CG", "Orders", 0, 4)
    house.commit("CG", "Orders", 1, 0)
    row = house.window.groups().rows[0]
    assert (row.name, row.lag, row.clients, row.topics, row.model) == ("CG", 4, 1, 1, "CLUSTERING")
    assert row.lag_why is None
    first = house.window.message("Orders/0/4").row.stored_at_ms
    now = int(time.time() * 1000)
    assert now - first - 200 <= row.lag_ms <= now - first, "the oldest of both queues counts"
    house.commit("CG", "Orders", 0, 5)
    later = house.window.message("Orders/1/0").row.stored_at_ms
    assert house.window.groups().rows[0].lag_ms <= int(time.time() * 1000) - later
    house.commit("CG", "Orders", 1, 3)
    row = house.window.groups().rows[0]
    assert (row.lag, row.lag_ms) == (0, 0)


def test_a_group_that_never_committed_has_an_unknown_lag(house):
    house.put("Orders", b"x")
    house.join("c-1", "CG")
    row = house.window.groups().rows[0]
    assert (row.lag, row.lag_ms) == (None, None)
    assert row.lag_why.code == row.lag_ms_why.code == "never_committed"
    queue = house.window.group("CG").queues[0]
    assert (queue.committed, queue.lag, queue.lag_why.code) == (None, None, "never_committed")


def test_queues_without_a_commit_are_not_counted_and_named(house):
    house.put("Orders", b"x", b"x", queue=0)
    house.put("Orders", b"x", queue=2)
    house.join("c-1", "CG")
    house.commit("CG", "Orders", 0, 1)
    row = house.window.groups().rows[0]
    assert row.lag == 1
    assert (row.lag_why.code, row.lag_why.args) == ("some_never_committed", {"queues": 1})


def test_a_broadcast_group_keeps_its_offsets_on_its_clients(house):
    house.put("Orders", b"x")
    house.join("c-1", "BG", model="BROADCASTING")
    row = house.window.groups().rows[0]
    assert (row.lag, row.lag_why.code) == (None, "broadcast_keeps_offsets")
    assert house.window.group("BG").queues[0].lag_why.code == "broadcast_keeps_offsets"


def test_an_offset_ahead_of_the_queue_is_no_negative_lag(house):
    house.put("Orders", b"x")
    house.join("c-1", "CG")
    house.commit("CG", "Orders", 0, 99)
    assert house.window.groups().rows[0].lag == 0
    assert house.window.group("CG").queues[0].lag == 0


def test_lists_are_filtered_and_sorted(house):
    house.put("Orders", *[b"x"] * 9)
    for group, offset in (("a", 9), ("b", 2), ("c", 5)):
        house.engine.broker.groups.find(group)
        house.commit(group, "Orders", 0, offset)
    house.join("c-1", "c")
    house.join("d-1", "d")

    def names(**options):
        return [row.name for row in house.window.groups(**options).rows]

    assert names() == ["a", "b", "c", "d"]
    assert names(sort="-lag") == ["b", "c", "a", "d"], "the one whose lag is not known comes last"
    assert names(sort="-lag_time") == ["b", "c", "a", "d"]
    assert names(online=True) == ["c", "d"]
    assert names(q="A") == ["a"]
    assert "TOOLS_CONSUMER" in names(system=True)


def test_progress_counts_and_resets_do_not(house):
    house.put("Orders", *[b"x"] * 50)
    house.engine.broker.groups.find("CG")
    house.commit("CG", "Orders", 0, 20)
    house.sample()
    sampler = house.window._parts.sampler
    assert sampler.pairs["Orders", "CG"].resting, "where a group begins is no consumption"
    house.commit("CG", "Orders", 0, 45)
    house.sample()
    house.commit("CG", "Orders", 0, 10)
    house.commit("CG", "Orders", 1, 1000)
    house.sample()
    assert sampler.pairs["Orders", "CG"].moved(sampler.count) == 25
    assert house.window.groups().rows[0].out_rate > 0
    assert max(house.window.series("out", group="CG").values) > 0


def test_members_show_what_each_of_them_subscribes_to(house):
    house.join("ship-01", "CG", tags="paid || sent")
    house.join("ship-02", "CG", tags="sent||paid")
    detail = house.window.group("CG")
    assert [(c.client_id, c.subscriptions[0].expression) for c in detail.clients] == [
        ("ship-01", "paid || sent"),
        ("ship-02", "sent||paid"),
    ]
    assert detail.conflicts == (), "the same tags in another order are no conflict"


def test_subscriptions_that_differ_are_shown_side_by_side(house):
    house.join("ship-01", "CG", tags="paid")
    house.join("ship-02", "CG", tags="*")
    house.join("ship-03", "CG", topic="Other")
    detail = house.window.group("CG")
    assert detail.row.conflict
    orders = next(conflict for conflict in detail.conflicts if conflict.topic == "Orders")
    assert {
        (version.expression, tuple(client.client_id for client in version.clients)) for version in orders.versions
    } == {("paid", ("ship-01",)), ("*", ("ship-02",)), (None, ("ship-03",))}
    assert any(need.sentence.code == "subscriptions_differ" for need in house.window.overview().needs)


def test_a_member_that_left_is_gone(house):
    one = house.join("ship-01", "CG", tags="paid")
    house.join("ship-02", "CG")
    one.close()
    wait_for(lambda: len(house.window.group("CG").clients) == 1, "ship-01 left")
    assert house.window.group("CG").conflicts == ()


def test_who_holds_a_queue_in_order(house):
    house.put("Orders", b"x")
    peer = house.join("ship-01", "CG")
    queue = {"topic": "Orders", "brokerName": "broker-a", "queueId": 0}
    import json

    body = {"consumerGroup": "CG", "clientId": "ship-01", "mqSet": [queue]}
    assert peer.ask(41, {}, json.dumps(body).encode()).code == 0
    assert house.window.group("CG").queues[0].held_by == "ship-01"


def test_retries_and_dead_letters_are_counted_apart(house):
    house.engine.broker.groups.find("CG")
    house.put("%RETRY%CG", b"x", b"y", j=1)
    house.put("%DLQ%CG", b"x", c="TBW102", d=1)
    row = house.window.groups().rows[0]
    assert (row.retries, row.dead_letters) == (2, 1)
    needs = [need for need in house.window.overview().needs if need.sentence.code == "dead_letters"]
    assert [(need.name, need.level, str(need.sentence)) for need in needs] == [("CG", "act", "Dead letters of CG: 1.")]


def test_many_groups_that_need_somebody_are_a_number_at_the_end(house):
    from appliance.engine.window.needs import NEEDS_SHOWN

    house.put("Orders", b"x", b"y")
    for number in range(NEEDS_SHOWN + 5):
        house.engine.broker.offsets.commit(f"G{number:02}", "Orders", 0, 1)
    needs = house.window.overview().needs
    assert len(needs) == NEEDS_SHOWN
    assert [need.name for need in needs[:2]] == ["G00", "G01"]
    assert (needs[-1].kind, str(needs[-1].sentence)) == ("groups", "More groups that need a look: 6.")


def test_an_unknown_group_is_not_found(house):
    with pytest.raises(NotFound):
        house.window.group("Nope")


def test_clients_show_their_roles(house):
    house.join("ship-01", "CG")
    house.produce_as("shop-01", "PG")
    rows = {row.client_id: row for row in house.window.clients().rows}
    assert rows["ship-01"].consumer_groups == ("CG",)
    assert rows["shop-01"].producer_groups == ("PG",)
    assert rows["shop-01"].version == "V5_3_3"
    assert [row.client_id for row in house.window.clients(role="producer").rows] == ["shop-01"]
    assert [row.client_id for row in house.window.clients(q="SHIP").rows] == ["ship-01"]
    assert [row.client_id for row in house.window.clients(group="CG").rows] == ["ship-01"]
    assert house.window.client("shop-01")[0].address == rows["shop-01"].address
    assert house.window.client("nobody") == ()


def test_clients_tell_how_many_of_their_pulls_wait(house):
    house.put("Orders", b"first")
    waiting, other = house.join("ship-01", "CG"), house.join("ship-02", "CG")
    held = {"consumerGroup": "CG", "sysFlag": 6, "suspendTimeoutMillis": 15_000}
    for queue in (0, 1, 1):
        waiting.send(11, pull_fields("Orders", queue, 1 - queue, **held))
    other.send(11, pull_fields("Orders", 2, 0, **held))

    def waits() -> dict[str, int]:
        return {row.client_id: row.parked_pulls for row in house.window.clients().rows}

    wait_for(lambda: waits() == {"ship-01": 3, "ship-02": 1}, "four pulls wait")
    assert house.window.client("ship-01")[0].parked_pulls == 3
    assert house.window.overview().parked_pulls == house.window.metrics()["parked_pulls"] == 4
    house.put("Orders", b"wakes two", queue=1)
    wait_for(lambda: waits() == {"ship-01": 1, "ship-02": 1}, "a message woke two of them")
    other.close()
    wait_for(lambda: waits() == {"ship-01": 1}, "who closed waits no more")


def test_what_java_clients_send_back_with_makes_nobody_a_producer(house):
    """Every Java client's heartbeat names CLIENT_INNER_PRODUCER, a consumer's too."""
    house.join("ship-01", "CG", also="CLIENT_INNER_PRODUCER")
    house.produce_as("shop-01", "PG")
    rows = {row.client_id: row for row in house.window.clients().rows}
    assert rows["ship-01"].producer_groups == ()
    assert [row.client_id for row in house.window.clients(role="producer").rows] == ["shop-01"]
    overview = house.window.overview()
    assert (overview.producer_clients, overview.consumer_clients) == (1, 1)
