"""Requests are those of Java's clients, except for the language: this client makes recorded ones again."""

import json
from datetime import datetime

import pytest

from appliance.client.core import requests
from appliance.client.core.requests import HalfPlace, Member, Subscription
from appliance.client.message import Message, MessageQueue
from appliance.client.options import ProducerOptions
from appliance.client.packing import envelope_of, properties_of
from appliance.engine.protocol.command import decode_frame, encode_command
from appliance.engine.protocol.properties import decode_properties, encode_properties
from tests.support.golden import GOLDEN, frames

#: Properties that this client writes, too.
OURS = set("UNIQ_KEY WAIT KEYS TAGS TRAN_MSG PGROUP TIMER_DELAY_MS TIMER_DELIVER_MS".split())
#: Java marks requests of lite consumers with this field.
_NOT_OURS = "ReqT"


@pytest.fixture(scope="module")
def recorded():
    """Code -> the recorded requests of that code from clients of 5.3.3."""
    found = {}
    for name in ("pull-lite", "producer", "transaction", "timer-recall"):
        for line, frame in frames(GOLDEN / "wire" / "5.3.3" / f"{name}.jsonl.gz"):
            if line["dir"] == "request" and line["from"] == "client" and line["codec"] in (0, "JSON"):
                found.setdefault(line["code"], []).append(decode_frame(frame))
    return found


def again(theirs):
    """Return the request that this client makes for the purpose of a recorded one."""
    ext = theirs.ext_fields
    queue = MessageQueue(ext.get("topic", ""), ext.get("bname", ""), int(ext.get("queueId", 0)))
    match theirs.code:
        case 105:
            return requests.route_of(ext["topic"])
        case 320:
            place = MessageQueue(ext["b"], ext["n"], int(ext["e"]))
            return requests.send(ext["a"], place, theirs.body, ext["i"], int(ext["f"]), int(ext["g"]), 320)
        case 310:
            properties = dict(pair.split("\x01") for pair in ext["i"].split("\x02") if pair)
            delay, at = (int(properties.get(name, 0)) / 1000 for name in ("TIMER_DELAY_MS", "TIMER_DELIVER_MS"))
            message = Message(
                ext["b"], b"", properties.get("TAGS"), properties.get("KEYS", "").split(),
                delay=delay or None, at=datetime.fromtimestamp(at) if at else None,
            )  # fmt: skip
            text = encode_properties(properties_of(message, properties["UNIQ_KEY"], properties.get("PGROUP")))
            place = MessageQueue(ext["b"], ext["n"], int(ext["e"]))
            return requests.send(ext["a"], place, theirs.body, text, int(ext["f"]), int(ext["g"]))
        case 37:
            half = HalfPlace(ext["msgId"], ext["transactionId"], ext["tranStateTableOffset"], ext["commitLogOffset"])
            checked = ext["fromTransactionCheck"] == "true"
            decision = int(ext["commitOrRollback"])
            return requests.end_transaction(
                ext["producerGroup"], ext["bname"], ext["topic"], half, decision, theirs.remark, checked=checked
            )
        case 370:
            return requests.recall(ext["producerGroup"], queue, ext["recallHandle"])
        case 14:
            return requests.committed_offset(ext["consumerGroup"], queue)
        case 15:
            return requests.commit(ext["consumerGroup"], queue, int(ext["commitOffset"]))
        case 29:
            return requests.offset_at(queue, int(ext["timestamp"]))
        case 30:
            return requests.max_offset(queue)
        case 31:
            return requests.min_offset(queue)
        case 35:
            return requests.unregister(
                ext["clientID"], producer=ext.get("producerGroup"), consumer=ext.get("consumerGroup")
            )
        case 38:
            return requests.members(ext["consumerGroup"])
        case 361:
            place, wait_ms = int(ext["queueOffset"]), int(ext["suspendTimeoutMillis"])
            return requests.pull(
                ext["consumerGroup"], queue, place, int(ext["maxMsgNums"]), wait_ms,
                requests.Subscription(ext["topic"], ext["subscription"]), broker_version=479,
            )  # fmt: skip


def as_javas(ours, theirs):
    """Return the frame of a request of this client, as if Java had made it at the place of another."""
    ours.language, ours.opaque, ours.flag = theirs.language, theirs.opaque, theirs.flag
    return encode_command(ours)


def in_any_order(fields):
    """Return the fields with sorted properties, since Java writes properties in the order of a hash map."""
    return {name: sorted(value.split("\x02")) if name == "i" else value for name, value in fields.items()}


def is_javas(theirs):
    """True unless the recorder made it by hand, or gave it properties of its own."""
    ext = theirs.ext_fields
    if theirs.code == 310:
        pairs = dict(pair.split("\x01") for pair in ext["i"].split("\x02") if pair)
        return pairs.get("WAIT") == "true" and {"UNIQ_KEY"} <= pairs.keys() <= OURS
    return "queueId" not in ext or "bname" in ext


@pytest.mark.parametrize("code", [14, 15, 29, 30, 31, 35, 37, 38, 105, 310, 320, 361, 370])
def test_a_recorded_request_is_made_again(recorded, code):
    compared = 0
    for theirs in recorded[code]:
        theirs.ext_fields.pop(_NOT_OURS, None)
        if not is_javas(theirs):
            continue
        ours = again(theirs)
        assert in_any_order(ours.ext_fields) == in_any_order(theirs.ext_fields)
        assert (ours.code, ours.version, ours.language) == (theirs.code, 479, "PYTHON")
        assert (ours.bare, ours.remark) == (theirs.bare, theirs.remark)
        compared += 1
    assert compared


def test_the_fields_of_a_send_and_a_pull_stand_in_javas_order(recorded):
    """The broker's fast path recognizes these headers by their beginning."""
    for code in (310, 361):
        theirs = recorded[code][0]
        theirs.ext_fields.pop(_NOT_OURS, None)
        assert list(again(theirs).ext_fields) == list(theirs.ext_fields)


def test_a_heartbeat_says_what_javas_says(recorded):
    theirs = next(
        one for one in recorded[34] if b'"consumeType":"CONSUME_ACTIVELY"' in one.body and b"LiteTopic" in one.body
    )
    said = json.loads(theirs.body)
    (consumer,) = said["consumerDataSet"]
    (subscription,) = consumer["subscriptionDataSet"]
    ours = requests.heartbeat(
        said["clientID"],
        [one["groupName"] for one in said["producerDataSet"]],
        [Member(consumer["groupName"], (Subscription(subscription["topic"], "*", subscription["subVersion"]),))],
    )
    assert json.loads(ours.body) == said
    theirs.ext_fields.pop(_NOT_OURS, None)
    assert (ours.ext_fields, ours.bare) == (theirs.ext_fields, theirs.bare)


@pytest.fixture(scope="module")
def pushed():
    """The same as `recorded`, from push consumers."""
    found = {}
    for name in ("push-concurrent", "push-broadcasting", "push-orderly", "push-sql92", "push-from-where", "retry-dlq"):
        for line, frame in frames(GOLDEN / "wire" / "5.3.3" / f"{name}.jsonl.gz"):
            if line["dir"] == "request" and line["from"] == "client" and line["codec"] in (0, "JSON"):
                command = decode_frame(frame)
                assert encode_command(command) == frame, "it is compared as a frame"
                found.setdefault(line["code"], []).append(command)
    return found


def subscription_of(data):
    if data["expressionType"] == "SQL92":
        return Subscription(data["topic"], "*", data["subVersion"], data["subString"])
    return Subscription(data["topic"], data["subString"], data["subVersion"])


def test_heartbeats_of_push_consumers_say_what_javas_say(pushed):
    compared = set()
    for theirs in pushed[34]:
        said = json.loads(theirs.body)
        if not said["consumerDataSet"]:
            continue
        members = [
            Member(
                one["groupName"],
                tuple(map(subscription_of, one["subscriptionDataSet"])),
                is_push=one["consumeType"] == "CONSUME_PASSIVELY",
                broadcasts=one["messageModel"] == "BROADCASTING",
                begins=one["consumeFromWhere"],
            )
            for one in said["consumerDataSet"]
        ]
        ours = requests.heartbeat(said["clientID"], [one["groupName"] for one in said["producerDataSet"]], members)
        assert json.loads(ours.body) == said
        compared |= {(member.broadcasts, one.kind, member.begins) for member in members for one in member.subscriptions}
    assert {(True, "TAG", "CONSUME_FROM_FIRST_OFFSET"), (False, "SQL92", "CONSUME_FROM_FIRST_OFFSET")} <= compared


@pytest.mark.parametrize("code", [11, 36, 41, 42, 46])
def test_a_recorded_request_of_a_push_consumer_is_made_again(pushed, code):
    made_by_java = [one for one in pushed[code] if "subscription" not in one.ext_fields]
    assert made_by_java
    for theirs in made_by_java:
        ext, body = theirs.ext_fields, json.loads(theirs.body or b"{}")
        queue = MessageQueue(ext.get("topic", ""), ext.get("bname", ""), int(ext.get("queueId", 0)))
        match code:
            case 11:
                ext |= {"sysFlag": "2", "commitOffset": "0"}  # this client commits by requests of their own
                kind = Subscription(
                    queue.topic, "*", int(ext["subVersion"]), "a" if "SQL" in ext["expressionType"] else None
                )
                ours = requests.push_pull(ext["consumerGroup"], queue, int(ext["queueOffset"]), 15000, kind)
            case 36:
                ours = requests.send_back(
                    ext["group"], queue, ext["originTopic"], int(ext["offset"]), ext["originMsgId"],
                    int(ext["delayLevel"]), int(ext["maxReconsumeTimes"]),
                )  # fmt: skip
            case 46:
                ours = requests.check_filter(body["clientId"], body["group"], subscription_of(body["subscriptionData"]))
            case 41 | 42:
                make = requests.lock if code == 41 else requests.unlock
                queues = [MessageQueue(one["topic"], one["brokerName"], one["queueId"]) for one in body["mqSet"]]
                ours = make(body["consumerGroup"], body["clientId"], queues)
        assert as_javas(ours, theirs) == encode_command(theirs)


def test_recorded_replies_are_made_again():
    made = 0
    for line, frame in frames(GOLDEN / "wire" / "5.3.3" / "request-reply.jsonl.gz"):
        if line["code"] != 325 or line["dir"] != "request":
            continue
        theirs = decode_frame(frame)
        assert encode_command(theirs) == frame
        ext, properties = theirs.ext_fields, decode_properties(theirs.ext_fields["i"])
        own = {name: properties[name] for name in properties if name != "UNIQ_KEY"}
        envelope = envelope_of(
            ext["a"], Message(ext["b"], theirs.body), properties["UNIQ_KEY"], None, ProducerOptions(), own=own, code=325
        )
        place = MessageQueue(ext["b"], ext["n"], int(ext["e"]))
        ours = requests.send(
            ext["a"], place, envelope.body, envelope.properties, envelope.sys_flag, int(ext["g"]), envelope.code
        )
        for one in (ours, theirs):  # Java's are in the order of a hash map
            one.ext_fields["i"] = "\x02".join(sorted(one.ext_fields["i"].split("\x02")))
        assert as_javas(ours, theirs) == encode_command(theirs)
        made += "CORRELATION_ID" in properties
    assert made


def test_an_old_broker_is_asked_by_the_code_that_it_knows():
    queue = MessageQueue("T", "b", 0)
    wanted = requests.Subscription(queue.topic)
    codes = [requests.pull("g", queue, 0, 1, 0, wanted, broker_version=version).code for version in (0, 409, 413, 479)]
    assert codes == [11, 11, 361, 361]


def test_tags_have_javas_hash_codes():
    request = requests.heartbeat("c", [], [Member("g", (Subscription("T", "TagA || TagB", 7),))])
    data = json.loads(request.body)["consumerDataSet"][0]["subscriptionDataSet"][0]
    assert (data["tagsSet"], data["codeSet"]) == (["TagA", "TagB"], [2598919, 2598920])
