"""Problems of a group: each finding is caused, with its numbers, and is absent when all is well."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appliance.engine.errors import NotFound
from appliance.engine.window.groups import diagnosis
from appliance.engine.window.groups.diagnosis_snapshots import Skip
from appliance.engine.window.health import limits
from tests.support.engine import RunningEngine, pull_fields
from tests.support.waiting import wait_for

LOCK = 41


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Findings need no waiting time, and a rate is known after two samples."""
    for module, name in ((limits, "SILENT_S"), (limits, "KEEPS_UP_S"), (diagnosis, "DELIVERIES_KEPT_S")):
        monkeypatch.setattr(module, name, 0.05)
    monkeypatch.setattr(limits, "RATE_KNOWN_S", 0.0)


def states(running: RunningEngine, group: str = "CG") -> dict[str, str]:
    return {look.kind: look.state for look in running.window.diagnosis.of(group).looked}


def found(running: RunningEngine, kind: str, group: str = "CG") -> Any:
    """Return the only finding of a kind."""
    (one,) = [finding for finding in running.window.diagnosis.of(group).findings if finding.kind == kind]
    return one


def numbers(finding: Any) -> dict[str, float]:
    return {one.name: one.value for one in finding.evidence}


def lasting(running: RunningEngine, kind: str, group: str = "CG") -> Any:
    """Return the finding once it has lasted long enough."""
    wait_for(lambda: states(running, group)[kind] == "found", f"{kind} is found")
    return found(running, kind, group)


def pull(peer: Any, queue: int = 0, offset: int = 0, topic: str = "Orders") -> None:
    """Have the member pull the messages, and commit nothing."""
    answer = peer.ask(11, pull_fields(topic, queue, offset))
    assert answer.code in (0, 19), answer


def lock(peer: Any, client_id: str, *queues: int) -> None:
    wanted = [{"topic": "Orders", "brokerName": "broker-a", "queueId": queue} for queue in queues]
    body = json.dumps({"consumerGroup": "CG", "clientId": client_id, "mqSet": wanted}).encode()
    assert len(json.loads(peer.ask(LOCK, {}, body).body)["lockOKMQSet"]) == len(queues)


def healthy(running: RunningEngine) -> None:
    """One member that consumes what comes, four queues."""
    running.join("c1", "CG")
    for queue in range(4):
        running.put("Orders", b"x", queue=queue)
        running.commit("CG", "Orders", queue, 0)
    running.sample()
    for queue in range(4):
        running.commit("CG", "Orders", queue, 1)
    running.sample()


def test_a_group_that_is_well(running):
    healthy(running)
    report = running.window.diagnosis.of("CG")
    assert report.findings == ()
    assert [look.kind for look in report.looked] == list(diagnosis.KINDS)
    assert {look.state for look in report.looked} == {"clear"}
    assert report.at_ms > 1_700_000_000_000


def test_a_group_that_is_not_there(running):
    with pytest.raises(NotFound):
        running.window.diagnosis.of("Nobody")


def test_what_cannot_be_told_says_why(running):
    running.window.group_commands.create("CG")
    report = running.window.diagnosis.of("CG")
    why = {look.kind: str(look.why) for look in report.looked if look.state == "unknown"}
    assert why["no_consumer"] == "The group has not committed an offset yet."
    assert why["queue_stuck"] == "No consumer of the group is connected."
    running.join("c1", "Broad", model="BROADCASTING")
    why = {look.kind: str(look.why) for look in running.window.diagnosis.of("Broad").looked if look.why}
    assert why["slow_handler"] == "A broadcasting group keeps its offsets on its clients."


def test_a_rate_is_not_known_at_once(running, monkeypatch):
    monkeypatch.setattr(limits, "RATE_KNOWN_S", 3600.0)
    healthy(running)
    assert states(running)["retries_storming"] == "unknown"


def test_nobody_consumes_while_messages_wait(running):
    running.window.group_commands.create("CG")
    running.put("Orders", b"a", b"b", b"c")
    running.commit("CG", "Orders", 0, 1)
    one = found(running, "no_consumer")
    assert (one.level, numbers(one)) == ("act", {"lag": 2, "retries": 0, "clients": 0})
    assert str(one.sentence) == "No consumer is connected, and 2 messages are waiting."
    running.commit("CG", "Orders", 0, 3)
    assert states(running)["no_consumer"] == "clear"
    running.put("Orders", b"d")
    assert states(running)["no_consumer"] == "found"
    running.join("c1", "CG")
    assert states(running)["no_consumer"] == "clear"


def test_members_are_connected_and_pull_nothing(running):
    peer = running.join("c1", "CG")
    running.put("Orders", b"a", b"b", b"c")
    running.commit("CG", "Orders", 0, 1)
    one = lasting(running, "nobody_pulls")
    assert (one.level, one.clients) == ("act", ("c1",))
    assert (numbers(one)["lag"], numbers(one)["clients"]) == (2, 1)
    running.window.group_commands.edit("CG", consume_enable=False)
    assert states(running)["nobody_pulls"] == "clear", "they are refused, which is said already"
    running.window.group_commands.edit("CG", consume_enable=True)
    pull(peer, 0, 1)
    assert states(running)["nobody_pulls"] == "clear"


def test_members_that_have_not_been_there_for_long_may_pull_yet(running, monkeypatch):
    monkeypatch.setattr(limits, "SILENT_S", 60.0)
    running.join("c1", "CG")
    running.put("Orders", b"a")
    running.commit("CG", "Orders", 0, 0)
    assert states(running)["nobody_pulls"] == "clear"


def test_a_handler_that_hung_from_the_first_message_on(running):
    """Nothing was ever committed, but the delivered messages are known."""
    peer = running.join("c1", "CG")
    running.put("Orders", *[b"x"] * 80)
    pull(peer)
    pull(peer, 0, 32)
    pull(peer, 0, 64)
    running.sample()
    running.sample()
    one = lasting(running, "slow_handler")
    assert numbers(one)["in_flight"] == 80
    assert one.level == "act"


def test_consumption_is_switched_off(running):
    healthy(running)
    running.put("Orders", b"more")
    running.window.group_commands.edit("CG", consume_enable=False)
    one = found(running, "consumption_off")
    assert (one.level, numbers(one)) == ("act", {"clients": 1, "lag": 1})
    running.window.group_commands.edit("CG", consume_enable=True)
    assert states(running)["consumption_off"] == "clear"


def test_members_subscribe_differently(running):
    running.join("c1", "CG", tags="a")
    running.join("c2", "CG", tags="b || a")
    one = found(running, "subscriptions_differ")
    assert (numbers(one), sorted(one.clients)) == ({"subscriptions": 2, "clients": 2}, ["c1", "c2"])
    assert "Orders" in str(one.sentence)
    running.hang_up()
    wait_for(lambda: not running.window.clients.page().rows, "they have gone")
    running.join("c1", "CG", tags="a || b")
    running.join("c2", "CG", tags="b||a")
    assert states(running)["subscriptions_differ"] == "clear"


def test_two_clients_with_one_id_are_told_of_with_both_addresses(running):
    first = running.join("c1", "CG")
    running.join("c1", "CG")
    assert states(running)["client_id_twice"] == "clear", "it may have lost its connection, and be back"
    beat = {"clientID": "c1", "consumerDataSet": [{"groupName": "CG"}]}
    assert first.ask(34, body=json.dumps(beat).encode()).code == 0
    one = found(running, "client_id_twice")
    channels = running.engine.broker.clients.consumer_group("CG").channels
    hosts = [conn.remote_host for conn in channels]
    assert (one.level, one.clients, one.sentence.args["hosts"]) == ("act", ("c1",), ", ".join(hosts))
    assert any(need.sentence.code == "client_id_twice" for need in running.window.overview.snapshot().needs)
    first.close()
    wait_for(lambda: states(running)["client_id_twice"] == "clear", "one of them is left")


def test_a_lock_of_a_client_that_is_no_member(running):
    healthy(running)
    assert states(running)["silent_lock"] == "clear"
    lock(running.join("c3", "Another"), "c2", 1, 2)
    one = found(running, "silent_lock")
    left = numbers(one)
    assert (one.level, one.clients, one.queues) == ("watch", ("c2",), (("Orders", 1), ("Orders", 2)))
    assert (left["queues"], left["lag"], 0 < left["lease_left"] <= 60) == (2, 0, True)
    running.put("Orders", b"x", queue=1)
    one = found(running, "silent_lock")
    assert (one.level, numbers(one)["lag"]) == ("act", 1)


def test_a_lock_of_a_client_that_pulls_nothing(running):
    healthy(running)
    holder = running.join("c2", "CG")
    lock(holder, "c2", 0)
    running.put("Orders", b"x")
    one = lasting(running, "silent_lock")
    assert (one.clients, one.queues, numbers(one)["lag"]) == (("c2",), (("Orders", 0),), 1)
    assert "has pulled nothing" in str(one.sentence)
    pull(holder, 0, 1)  # it has the message now
    assert states(running)["silent_lock"] == "clear"
    running.engine.broker.offsets.pulled.remove_group("CG")  # as if a restart had lost it
    wait_for(lambda: states(running)["silent_lock"] == "clear", "it is known that it was given out", every=0.1)
    assert states(running)["nobody_pulls"] == "clear"


def test_one_queue_stays_where_it_is_while_others_go_on(running, monkeypatch):
    monkeypatch.setattr(limits, "STUCK_S", 0.6)
    healthy(running)
    running.put("Orders", b"poison", b"behind it", queue=3)
    pull(running.join("c2", "CG"), 3, 1)
    with monkeypatch.context() as patience:
        patience.setattr(limits, "STUCK_S", 3600.0)
        assert states(running)["queue_stuck"] == "clear"  # not yet

    def others_go_on() -> bool:
        offset = others_go_on.offset = getattr(others_go_on, "offset", 1) + 1  # type: ignore[attr-defined]
        running.put("Orders", b"x", queue=0)
        running.commit("CG", "Orders", 0, offset)
        running.sample()
        return states(running)["queue_stuck"] == "found"

    wait_for(others_go_on, "queue 3 is stuck", every=0.1)
    one = found(running, "queue_stuck")
    told = numbers(one)
    assert (one.queues, told["offset"], told["lag"]) == ((("Orders", 3),), 1, 2)
    assert told["idle"] >= 0.6
    held = one.message
    assert (held.topic, held.queue_id, held.offset) == ("Orders", 3, 1)
    assert running.window.messages.detail(held.offset_id).queue_offset == 1
    assert held.skip == Skip(("Orders",), (3,), "skip", 1)
    wait_for(lambda: found(running, "queue_stuck").message.delivered == 1, "its delivery is written down", every=0.1)
    assert found(running, "queue_stuck").message.last_client == "c2"
    assert told["queues_moving"] >= 1
    running.commit("CG", "Orders", 3, 3)
    assert states(running)["queue_stuck"] == "clear"


def test_a_group_in_which_nothing_goes_on_is_stuck_too(running, monkeypatch):
    monkeypatch.setattr(limits, "STUCK_S", 0.1)
    peer = running.join("c1", "CG")
    running.put("Orders", b"x", b"y")
    running.commit("CG", "Orders", 0, 1)
    pull(peer, 0, 1)
    running.sample()
    one = lasting(running, "queue_stuck")
    assert (one.queues, numbers(one)["queues_moving"]) == ((("Orders", 0),), 0)


def test_who_has_the_message_is_named_as_long_as_it_can_be_asked(running, monkeypatch):
    monkeypatch.setattr(limits, "STUCK_S", 0.1)
    monkeypatch.setattr("appliance.engine.window.groups.diagnosis.DELIVERIES_KEPT_S", 0.0)
    peer = running.join("c1", "CG")
    running.put("Orders", b"x", b"y")
    running.commit("CG", "Orders", 0, 1)
    pull(peer, 0, 1)
    running.sample()
    lasting(running, "queue_stuck")
    wait_for(lambda: found(running, "queue_stuck").message.delivered == 1, "its delivery is written down", every=0.1)
    assert found(running, "queue_stuck").clients == ("c1",)
    running.join("c2", "CG")
    peer.close()
    wait_for(lambda: [row.client_id for row in running.window.clients.page().rows] == ["c2"], "it has gone")
    one = found(running, "queue_stuck")
    assert (one.clients, one.message.last_client) == ((), "c1")


def test_a_slow_handler(running, monkeypatch):
    healthy(running)
    member = running.join("c1", "CG")
    for _ in range(3):
        running.put("Orders", *[b"work"] * 30)
    pull(member, 0, 1)
    pull(member, 0, 33)
    with monkeypatch.context() as patience:
        patience.setattr(limits, "KEEPS_UP_S", 3600.0)
        assert states(running)["slow_handler"] == "clear"  # 64 at once, and not for long
    running.sample()
    pull(member, 0, 65)
    one = lasting(running, "slow_handler")
    told = numbers(one)
    assert (told["in_flight"] >= 64, told["clients"], "work_left" in told) == (True, 2, told["rate"] > 0)
    running.commit("CG", "Orders", 0, 91)
    assert states(running)["slow_handler"] == "clear"


def test_a_handler_that_keeps_up_is_not_slow(running, monkeypatch):
    monkeypatch.setattr(limits, "KEEPS_UP_S", 15.0)
    healthy(running)
    member = running.join("c1", "CG")
    running.put("Orders", *[b"work"] * 70)
    for offset in (1, 33, 65):
        pull(member, 0, offset)
    assert states(running)["slow_handler"] == "clear"


def test_retries_storm(running):
    healthy(running)
    retries = [b"again"] * 50
    running.put("%RETRY%CG", b"first")
    running.sample()
    running.put("%RETRY%CG", *retries)
    running.sample()
    one = found(running, "retries_storming")
    told = numbers(one)
    assert (told["retry_rate"] >= 1, told["retries_ready"], told["share"] > 20) == (True, 51, True)
    assert one.level == "act"


def test_a_few_retries_are_no_storm(running, monkeypatch):
    """Retries below a fifth of the consumed messages are none."""
    monkeypatch.setattr(limits, "STORM_RATE", 0.0)
    healthy(running)
    running.put("%RETRY%CG", b"first")
    running.put("Orders", *[b"x"] * 40)
    running.commit("CG", "Orders", 0, 41)
    running.put("%RETRY%CG", b"second")
    running.sample()
    assert states(running)["retries_storming"] == "clear"


def test_dead_letters_come(running):
    healthy(running)
    running.put("%DLQ%CG", b"old")
    one = found_after_a_sample(running, "dead_letters_growing")
    assert (numbers(one)["new"], numbers(one)["dead_letters"]) == (1, 1)
    running.restart()
    running.sample()
    running.sample()
    assert states(running)["dead_letters_growing"] == "clear"  # they are there, but no new ones came
    running.put("%DLQ%CG", b"new", b"newer")
    one = found_after_a_sample(running, "dead_letters_growing")
    assert (numbers(one)["new"], numbers(one)["dead_letters"]) == (2, 3)


def found_after_a_sample(running: RunningEngine, kind: str) -> Any:
    running.sample()
    return found(running, kind)


def test_fewer_consumers_than_queues_while_the_backlog_grows(running):
    healthy(running)
    running.put("Orders", *[b"x"] * 50)
    running.sample()
    one = found(running, "fewer_consumers")
    told = numbers(one)
    assert (told["clients"], told["queues"], told["lag"], one.level) == (1, 4, 50, "watch")
    assert told["in_rate"] > told["rate"]
    for number in range(3):
        running.join(f"more-{number}", "CG")
    assert states(running)["fewer_consumers"] == "clear"


@pytest.mark.parametrize("in_order", [True, False])
def test_no_more_consumers_are_advised_for_a_message_that_is_held_in_order(running, monkeypatch, in_order):
    """Before it counts as stuck, too; without a lock, another message of the queue may well go on."""
    monkeypatch.setattr(limits, "KEEPS_UP_S", 0.0)
    healthy(running)
    member = running.join("c2", "CG")
    if in_order:
        lock(member, "c2", 3)
    running.put("Orders", *[b"x"] * 50, queue=3)
    pull(member, 3, 1)
    running.sample()
    assert states(running)["queue_stuck"] == "clear"
    assert states(running)["fewer_consumers"] == ("clear" if in_order else "found")


def test_more_consumers_than_queues(running):
    healthy(running)
    for number in range(5):
        running.join(f"more-{number}", "CG")
    one = found(running, "idle_consumers")
    assert numbers(one) == {"clients": 6, "queues": 4, "idle": 2}
    assert str(one.sentence) == (
        "Orders has fewer queues (4) than the group has consumers (6), so 2 of them have none."
    )


@pytest.mark.parametrize(("clients", "state"), [(1, "clear"), (2, "clear"), (3, "found"), (4, "clear"), (5, "clear")])
def test_queues_that_cannot_be_shared_out_evenly(running, clients, state):
    healthy(running)
    for number in range(clients - 1):
        running.join(f"more-{number}", "CG")
    assert states(running)["uneven_share"] == "clear"  # nothing waits
    running.put("Orders", b"x")
    assert states(running)["uneven_share"] == state
    if state == "found":
        told = numbers(found(running, "uneven_share"))
        assert (told["most"], told["least"], told["lag"]) == (2, 1, 1)


def test_the_worst_comes_first(running):
    healthy(running)
    for number in range(5):
        running.join(f"more-{number}", "CG")
    running.window.group_commands.edit("CG", consume_enable=False)
    findings = running.window.diagnosis.of("CG").findings
    assert [finding.level for finding in findings] == sorted(finding.level for finding in findings)
    assert findings[0].kind == "consumption_off"


def test_hundreds_of_queues_take_no_long_time(running):
    running.window.topic_commands.create("Wide", read_queues=200, write_queues=200)
    running.join("c1", "CG", topic="Wide")
    for queue in range(200):
        running.put("Wide", b"x", queue=queue)
        running.commit("CG", "Wide", queue, 0)
    report = running.window.diagnosis.of("CG")
    assert {look.kind for look in report.looked} == set(diagnosis.KINDS)


def test_an_expression_that_lets_nothing_through(running):
    for number in range(3):
        running.put("Orders", b"x", queue=number, properties=f"price\x01{number}\x02")
    running.join("c1", "CG", tags="price > 5", expressionType="SQL92")
    one = found(running, "expression")
    assert (one.level, numbers(one)) == ("watch", {"looked_at": 3})
    assert str(one.sentence) == ("Its expression for Orders let none of the last 3 messages through.")
    running.put("Orders", b"x", properties="price\x017\x02")
    assert states(running)["expression"] == "clear"


def test_a_diagnosis_reads_no_bodies(running, monkeypatch):
    running.window.group_commands.create("CG")
    for _ in range(5):
        running.put("Orders", b"x" * 300_000, properties="price\x011\x02")
    running.commit("CG", "Orders", 0, 0)
    running.join("c1", "CG", tags="price > 5", expressionType="SQL92")
    lasting(running, "nobody_pulls")
    read = []
    log = running.engine.broker.store.log
    of_log = log.read
    monkeypatch.setattr(log, "read", lambda at, size: (read.append(size), of_log(at, size))[1])
    report = running.window.diagnosis.of("CG")
    assert {"expression", "nobody_pulls"} <= {one.kind for one in report.findings}
    assert len(read) > 5
    assert sum(read) < 300_000


def test_an_expression_that_is_refused(running):
    running.put("Orders", b"x")
    running.join("c1", "CG", tags="price >", expressionType="SQL92")
    one = found(running, "expression")
    assert one.level == "act"
    assert str(one.sentence).startswith(
        "The filter of its clients on Orders is refused, and so are their pulls: Expected"
    )


def test_expressions_that_differ_are_told_apart_as_they_are_written(running):
    """In an expression, `||` does not separate tags."""
    running.put("Orders", b"x", properties="price\x017\x02")
    running.join("c1", "CG", tags="price > 5 OR a = 'x||y'", expressionType="SQL92")
    running.join("c2", "CG", tags="price > 5 OR a = 'y||x'", expressionType="SQL92")
    assert numbers(found(running, "subscriptions_differ")) == {"subscriptions": 2, "clients": 2}
