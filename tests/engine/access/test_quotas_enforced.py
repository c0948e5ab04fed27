"""A broker that holds users to their quotas, asked by frames, on both twins and all ports."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest
from msgspec.structs import replace

from appliance.engine.access.book import of_known
from appliance.engine.access.quotas import Quotas
from appliance.engine.protocol.codes import RequestCode as CODE
from appliance.engine.protocol.command import RemotingCommand
from tests.engine.access.test_enforced import ANN, BOB, Site, pull, send, start
from tests.support.engine import Peer, pull_fields, records, send_fields
from tests.support.waiting import wait_for

__all__ = ["start"]

KIB = b"x" * 1024


@pytest.fixture
def site(start) -> Site:
    return start()


def set_quotas(site: Site, user: tuple[str, str], **quotas: int | None) -> None:
    access = site.running.engine._access
    assert access is not None
    access.book.change(user[0], of_known(user[0], lambda one: replace(one, quotas=Quotas(**quotas))))
    settle(site)


def settle(site: Site) -> None:
    """Wait until the loop has taken over what was changed."""
    taken = threading.Event()
    site.running.engine.loop.call_soon(taken.set)
    assert taken.wait(60)


def counts(site: Site, user: tuple[str, str] = ANN) -> dict[str, int]:
    access = site.running.engine._access
    assert access is not None
    assert access.brake is not None
    return access.brake.limited.of(user[0])


def long_pull(peer: Peer, topic: str, offset: int, suspend_ms: int) -> Any:
    fields = pull_fields(topic, 0, offset, consumerGroup="g", sysFlag=6, suspendTimeoutMillis=suspend_ms)
    return peer.ask(CODE.PULL_MESSAGE, fields)


def send_body(number: int) -> dict[str, Any]:
    return send_fields("T", i=f"KEYS\x01{number}\x02")


def gather(peer: Peer, opaques: list[int]) -> dict[int, RemotingCommand]:
    """Return the answers to requests, by opaque."""
    found: dict[int, RemotingCommand] = {}
    while not found.keys() >= set(opaques):
        answer = peer.receive()
        found[answer.opaque] = answer
    return found


def test_sends_over_the_quota_are_delayed_then_refused_and_others_are_not_touched(site):
    ann = site.make(ANN, "Topic:T Pub")
    bob = site.make(BOB, "Topic:T Pub")
    set_quotas(site, ANN, send_bytes=4096)
    assert send(ann, "T", KIB * 12).code == 0  # larger than the quota, and paid for afterwards
    begun = time.monotonic()
    refused = send(ann, "T", KIB)
    assert (refused.code, "4096 bytes of sends a second" in refused.remark) == (2, True), refused
    assert [send(bob, "T", KIB).code for _ in range(50)] == [0] * 50
    if time.monotonic() - begun < 0.5:
        assert send(ann, "T", KIB).code == 2
    set_quotas(site, ANN, send_bytes=100_000)  # at once, and without what was owed
    sent = [ann.send(CODE.SEND_MESSAGE_V2, send_body(number), KIB) for number in range(130)]
    answers = gather(ann, sent)
    done = [number for number, opaque in enumerate(sent) if answers[opaque].code == 0]
    offsets = [int(answers[sent[number]].ext_fields["queueOffset"]) for number in done]
    assert offsets == sorted(offsets)  # one connection's sends to one queue are stored in the order of their frames
    assert counts(site)["sends_delayed"] > 20
    assert {answer.code for answer in answers.values()} <= {0, 2}


@pytest.mark.parametrize("port", ["broker", "vip"])
@pytest.mark.parametrize("codec", [0, 1])
def test_no_port_and_no_codec_goes_around_the_quota(site, port, codec):
    site.make(ANN, "Topic:T Pub")
    set_quotas(site, ANN, send_bytes=2000)
    host, _, number = site.address.rpartition(":")
    ann = site.peer(ANN, site.address if port == "broker" else f"{host}:{int(number) - 2}")
    fields = send_body(0)
    codes = [ann.ask(CODE.SEND_MESSAGE_V2, fields, KIB * 4, codec=codec).code for _ in range(3)]
    assert codes == [0, 2, 2]


def test_a_pull_over_the_quota_is_held_for_as_long_as_it_asked_and_is_never_refused(site):
    ann = site.make(ANN, "Topic:T Pub,Sub", "Group:g Sub")
    assert send(ann, "T", KIB * 100).code == send(ann, "T", b"second").code == 0
    set_quotas(site, ANN, pull_bytes=40_000)
    assert len(records(long_pull(ann, "T", 0, 1000).body)) == 2  # 2.5 seconds' worth; one was saved up
    begun = time.monotonic()
    nothing = long_pull(ann, "T", 0, 600)
    held = time.monotonic() - begun
    assert (nothing.code, nothing.body, nothing.ext_fields["nextBeginOffset"]) == (20, b"", "0"), nothing
    assert held > 0.3
    at_once = pull(ann, "g", "T")  # without leave to hold it
    assert (at_once.code, at_once.ext_fields["nextBeginOffset"]) == (20, "0")
    assert len(records(long_pull(ann, "T", 1, 30_000).body)) == 1
    assert counts(site)["pulls_held"] >= 3
    set_quotas(site, ANN, pull_bytes=1)
    assert [long_pull(ann, "T", 1, 0).code for _ in range(2)] == [0, 20]
    opaque = ann.send(
        CODE.PULL_MESSAGE, pull_fields("T", 0, 1, consumerGroup="g", sysFlag=6, suspendTimeoutMillis=60_000)
    )
    wait_for(lambda: site.running.engine.broker.pull.long_polling.count, "the pull that is held")
    set_quotas(site, ANN)  # at once, for held pulls as well
    assert len(records(gather(ann, [opaque])[opaque].body)) == 1


def test_a_message_does_not_wake_a_pull_of_a_user_over_the_quota(site):
    ann = site.make(ANN, "Topic:T Pub,Sub", "Group:g Sub")
    other = site.peer(ANN)
    assert send(ann, "T", KIB * 100).code == 0
    set_quotas(site, ANN, pull_bytes=50_000)
    polling = site.running.engine.broker.pull.long_polling
    waits = other.send(
        CODE.PULL_MESSAGE, pull_fields("T", 0, 1, consumerGroup="g", sysFlag=6, suspendTimeoutMillis=60_000)
    )
    wait_for(lambda: polling.count == 1, "the pull at its queue")
    assert len(records(pull(ann, "g", "T").body)) == 1  # two seconds' worth, of which one was saved up
    begun = time.monotonic()
    assert send(ann, "T", b"more").code == 0
    found = gather(other, [waits])[waits]
    assert [record.body for record in records(found.body)] == [b"more"]
    assert time.monotonic() - begun > 0.3  # it waited for what the others took
    assert polling.count == 0


def test_connections_over_the_quota_are_refused_and_closed(site):
    ann = site.make(ANN, "Topic:T Pub")
    assert send(ann, "T").code == 0
    set_quotas(site, ANN, connections=2)
    second, third = site.peer(ANN), site.peer(ANN)
    assert send(second, "T").code == 0
    refused = send(third, "T")
    assert (refused.code, "2 connections" in refused.remark) == (2, True)
    assert third.is_closed()
    assert [send(peer, "T").code for peer in (ann, second)] == [0, 0]
    set_quotas(site, ANN, connections=1)
    assert second.is_closed()
    assert send(ann, "T").code == 0
    ann.close()
    fourth = site.peer(ANN)
    wait_for(lambda: send(site.peer(ANN), "T").code == 0, "room for another connection")
    del fourth


def test_defaults_count_for_users_without_quotas_and_may_be_changed_while_it_runs(start):
    site = start(user_requests_per_second=2)
    ann = site.make(ANN, "Topic:T Pub")
    sent = [ann.send(CODE.SEND_MESSAGE_V2, send_body(0), b"x") for _ in range(9)]
    codes = [answer.code for answer in gather(ann, sent).values()]
    assert sorted(codes) == [0, 0, 0, 0, 0, 2, 2, 2, 2]  # two saved up, one owed, two in the next second
    set_quotas(site, ANN, requests=0)
    assert {send(ann, "T").code for _ in range(50)} == {0}
    set_quotas(site, ANN)
    site.running.engine.options.change({"userRequestsPerSecond": "0"}, None, False, "a test")
    settle(site)
    assert {send(ann, "T").code for _ in range(20)} == {0}


def test_report_mode_holds_nothing_back_and_counts_what_would_be(start):
    site = start(access_control="report")
    ann = site.make(ANN)
    set_quotas(site, ANN, send_bytes=1024, pull_bytes=1024, connections=1)
    begun = time.monotonic()
    assert {send(ann, "T", KIB * 4).code for _ in range(20)} == {0}
    assert [len(records(long_pull(ann, "T", offset, 20_000).body)) > 0 for offset in range(3)] == [True] * 3
    assert {send(other, "T").code for other in (site.peer(ANN), site.peer(ANN))} == {0}
    assert send(ann, "T").code == 0
    if time.monotonic() - begun < 3:  # else some of the debt is paid
        assert counts(site)["sends_refused"] >= 19
        assert counts(site)["pulls_held"] == 2
    assert counts(site)["connections_refused"] == 2
    users = site.running.window.users
    assert users.one(ANN[0]).limited.lately
    assert (users.at_quota(), users.quota_count("sends_refused"), users.quota_count("users_at_quota")) == ([], 0, 0)


def test_report_mode_counts_other_requests_too(start):
    site = start(access_control="report", user_requests_per_second=1)
    ann = site.make(ANN)
    begun = time.monotonic()
    asked = [ann.ask(CODE.GET_MAX_OFFSET, {"topic": "T", "queueId": 0}).code for _ in range(20)]
    assert 2 not in asked
    if time.monotonic() - begun < 3:
        found = counts(site)
        assert found["requests_refused"] + found["requests_delayed"] >= 15
        assert found["requests_refused"] > 0 < found["requests_delayed"]


def beat(peer: Peer, expression: str, version: int) -> None:
    """Have the group g want what an expression says of T."""
    data = {"topic": "T", "subString": expression, "subVersion": version, "expressionType": "SQL92"}
    consumer = {"groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [data]}  # fmt: skip
    body = json.dumps({"clientID": "c@1", "consumerDataSet": [consumer], "producerDataSet": []}).encode()
    assert peer.ask(CODE.HEART_BEAT, {}, body).code == 0


def test_a_new_expression_answers_what_the_old_one_held(site):
    ann = site.make(ANN, "Topic:T Pub,Sub", "Group:g Sub")
    waits = site.peer(ANN)
    polling = site.running.engine.broker.pull.long_polling
    assert send(ann, "T", KIB * 100, i="colour\x01red\x02").code == 0

    def held_pull(offset: int, version: int) -> int:
        fields = pull_fields("T", 0, offset, consumerGroup="g", sysFlag=2, suspendTimeoutMillis=60_000)
        opaque = waits.send(CODE.PULL_MESSAGE, {**fields, "subscription": "", "subVersion": version})
        wait_for(lambda: polling.count == 1, "the pull that is held")
        return opaque

    beat(ann, "colour = 'blue'", 1)
    set_quotas(site, ANN, pull_bytes=60_000)
    at_queue = held_pull(1, 1)
    beat(ann, "colour = 'red'", 2)
    assert gather(waits, [at_queue])[at_queue].ext_fields["nextBeginOffset"] == "1"
    set_quotas(site, ANN, pull_bytes=1)
    assert len(records(pull(ann, "g", "T").body)) == 1
    at_quota = held_pull(0, 2)
    beat(ann, "colour = 'blue'", 3)
    set_quotas(site, ANN, pull_bytes=60_000)
    # Not served by the expression that it came with, which would step over what the new one wants.
    assert gather(waits, [at_quota])[at_quota].ext_fields["nextBeginOffset"] == "0"


def test_pulls_held_at_their_queues_are_answered_at_a_stop_as_those_of_others_are(site):
    ann = site.make(ANN, "Topic:T Pub,Sub", "Group:g Sub")
    assert send(ann, "T").code == 0
    set_quotas(site, ANN, pull_bytes=60_000)
    fields = pull_fields("T", 0, 1, consumerGroup="g", sysFlag=6, suspendTimeoutMillis=60_000)
    opaque = ann.send(CODE.PULL_MESSAGE, fields)
    polling = site.running.engine.broker.pull.long_polling
    wait_for(lambda: polling.count == 1, "the pull that is held")
    site.running.engine.loop.call_soon(polling.release_all)
    assert gather(ann, [opaque])[opaque].code == 19  # PULL_NOT_FOUND
