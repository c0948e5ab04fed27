"""Transactions as recorded between Java producers of both versions and Apache's brokers, repeated here: the same sends
and decisions in, the same answers, checks and records out. One difference is on purpose: a half message that is checked
stays where it is, so its offsets stay those of its send."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.engine.protocol.command import RemotingCommand, decode_frame, encode_command
from appliance.engine.protocol.message_id import decode_offset_id
from appliance.engine.protocol.properties import decode_properties
from appliance.engine.protocol.record import Record, decode_record
from tests.support.engine import Peer, pull_fields, records, send_fields, start_engine
from tests.support.golden import GOLDEN, VERSIONS, frames, store_manifest
from tests.support.waiting import wait_for

SEND, PULL, HEART_BEAT, END, CHECK = 310, 11, 34, 37, 39
HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARDED_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
#: Properties that 5.3.3 adds to each message and 4.9.8 does not.
ADDED = {"MSG_REGION", "TRACE_ON", "__transactionId__"}
#: A half that Apache puts back says "false", as its own append waits for nothing.
OF_THE_PUT_BACK = {"WAIT"}


class Recorded:
    """Requests and answers of the producer and the broker of one recording, in order."""

    def __init__(self, version: str) -> None:
        self.sends: list[tuple[RemotingCommand, RemotingCommand]] = []
        self.heart_beat: RemotingCommand | None = None
        #: The first decisions, then the answers to checks, by the physical offset that they name.
        self.ends: dict[str, RemotingCommand] = {}
        self.checks: list[RemotingCommand] = []
        self.delivered: dict[str, Record] = {}
        asked: dict[tuple[str, int], RemotingCommand] = {}
        for line, frame in frames(GOLDEN / "wire" / version / "transaction.jsonl.gz"):
            command, key = decode_frame(frame), (line["conn"], line["opaque"])
            if line["dir"] == "response":
                request = asked.get(key)
                if request is not None and request.code == SEND:
                    self.sends.append((request, command))
                elif request is not None and request.code == PULL and command.code == 0:
                    self.delivered |= {record.body.decode(): record for record in records(command.body)}
            elif command.code == END:
                self.ends[command.ext_fields["commitLogOffset"]] = command
            elif command.code == CHECK:
                self.checks.append(command)
            elif line["from"] == "client":
                asked[key] = command
                if command.code == HEART_BEAT and b"PG_Tx" in command.body:
                    self.heart_beat = command


@pytest.fixture
def engine(tmp_path) -> Iterator[Any]:
    """An engine with short rounds and three checks, as recorded."""
    broker = {
        "transaction_time_out_ms": 300, "transaction_check_interval_ms": 200, "transaction_check_max": 3,
    }  # fmt: skip
    running = start_engine(tmp_path, broker=broker)
    yield running
    running.stop()


@pytest.fixture
def peer(engine) -> Iterator[Peer]:
    found = Peer(engine.broker_address)
    yield found
    found.close()


def properties_of(record: Record) -> dict[str, str]:
    return decode_properties(record.properties)


def stored(peer: Peer, topic: str, queue: int = 0) -> list[Record]:
    answer = peer.ask(PULL, pull_fields(topic, queue, 0))
    return records(answer.body) if answer.code == 0 else []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_producer_and_its_broker_say_what_was_recorded(version: str, engine: Any) -> None:
    recorded = Recorded(version)
    assert len(recorded.sends) == 6
    assert len(recorded.checks) == 6
    assert recorded.heart_beat is not None
    producer = Peer(engine.broker_address)
    assert producer.ask(HEART_BEAT, {}, recorded.heart_beat.body).code == 0
    places: dict[str, str] = {}  # physical offsets: Apache's to RocketBox's
    halves: dict[str, str] = {}  # unique key to the place of the half here
    early: list[RemotingCommand] = []  # questions that came between, on a busy machine
    for request, theirs in recorded.sends:
        producer.send_bytes(encode_command(request))
        while not (ours := producer.receive()).is_response:
            early.append(ours)
        assert (ours.code, ours.remark) == (theirs.code, theirs.remark)
        added = {"transactionId"} if version == "4.9.8" else set()
        assert ours.ext_fields.keys() == theirs.ext_fields.keys() | added
        same = ("queueId", "TRACE_ON", "MSG_REGION", "queueOffset")
        assert [ours.ext_fields[name] for name in same] == [theirs.ext_fields[name] for name in same]
        key = decode_properties(request.ext_fields["i"])["UNIQ_KEY"]
        assert ours.ext_fields["transactionId"] == key
        their_place, our_place = (str(decode_offset_id(one.ext_fields["msgId"])[2]) for one in (theirs, ours))
        places[their_place] = halves[key] = our_place
        end = recorded.ends[their_place]
        _say(producer, end, our_place, end.ext_fields["tranStateTableOffset"])
    expected = {(check.ext_fields["msgId"], _times(check)): check for check in recorded.checks}
    while expected:
        ours = early.pop(0) if early else producer.receive()
        theirs = expected.pop((ours.ext_fields["msgId"], _times(ours)))
        _same_question(theirs, ours, version)
        assert ours.ext_fields["commitLogOffset"] == halves[ours.ext_fields["msgId"]]
        answer = recorded.ends[theirs.ext_fields["commitLogOffset"]]
        _say(producer, answer, ours.ext_fields["commitLogOffset"], ours.ext_fields["tranStateTableOffset"])
    wait_for(lambda: len(stored(producer, DISCARDED_TOPIC)) == 1, "what nobody decided was set aside")
    delivered = {record.body.decode(): record for queue in range(4) for record in stored(producer, "TxTopic", queue)}
    assert delivered.keys() == recorded.delivered.keys()
    for body, theirs in recorded.delivered.items():
        _same_delivered(theirs, delivered[body], version)
        assert str(delivered[body].prepared_transaction_offset) == halves[properties_of(theirs)["UNIQ_KEY"]]
    listed = [one for record in stored(producer, OP_TOPIC) for one in record.body.decode().split(",") if one]
    assert sorted(listed) == ["0", "1", "2", "3", "4", "5"]
    producer.close()


def _say(producer: Peer, end: RemotingCommand, physical: str, offset: str) -> None:
    """Send the recorded producer's decision about RocketBox's half message."""
    fields = end.ext_fields | {"commitLogOffset": physical, "tranStateTableOffset": offset}
    said = RemotingCommand(end.code, opaque=end.opaque, flag=end.flag, ext_fields=fields, remark=end.remark)
    producer.send_bytes(encode_command(said))


def _times(check: RemotingCommand) -> str:
    return properties_of(decode_record(check.body))["TRANSACTION_CHECK_TIMES"]


def _same_question(theirs: RemotingCommand, ours: RemotingCommand, version: str) -> None:
    """Check that two questions are the same but for places and times."""
    assert (ours.code, ours.flag, ours.remark) == (theirs.code, theirs.flag, theirs.remark)
    expected, found = dict(theirs.ext_fields), dict(ours.ext_fields)
    if version == "4.9.8":
        assert found.keys() - expected.keys() == {"bname", "topic"}
    else:
        assert found.keys() == expected.keys()
        assert (found["bname"], found["topic"]) == (expected["bname"], expected["topic"])
    assert (found["msgId"], found["transactionId"]) == (expected["msgId"], expected["transactionId"])
    assert decode_offset_id(found["offsetMsgId"])[2] == int(found["commitLogOffset"])
    record, half = decode_record(theirs.body), decode_record(ours.body)
    assert (half.physical_offset, half.queue_offset) == (
        int(found["commitLogOffset"]),
        int(found["tranStateTableOffset"]),
    )
    _same_content(record, half, version, OF_THE_PUT_BACK)
    assert half.size == len(ours.body)


def _same_content(theirs: Record, ours: Record, version: str, ignored: set[str]) -> None:
    assert (ours.topic, ours.queue_id) == (theirs.topic, theirs.queue_id)
    assert (ours.body, ours.body_crc) == (theirs.body, theirs.body_crc)
    assert (ours.flag, ours.sys_flag, ours.reconsume_times) == (theirs.flag, theirs.sys_flag, theirs.reconsume_times)
    assert ours.born_time_ms == theirs.born_time_ms
    expected, found = properties_of(theirs), properties_of(ours)
    added = ADDED if version == "4.9.8" else set()
    assert found.keys() - expected.keys() <= added | ignored
    assert {name: found[name] for name in expected if name not in ignored} == {
        name: value for name, value in expected.items() if name not in ignored
    }


def _same_delivered(theirs: Record, ours: Record, version: str) -> None:
    """Check that two delivered messages are the same but for the check count: Apache puts halves back with it."""
    _same_content(
        theirs._replace(properties=_without(theirs.properties, "TRANSACTION_CHECK_TIMES")),
        ours._replace(properties=_without(ours.properties, "TRANSACTION_CHECK_TIMES")),
        version,
        set(),
    )
    assert ours.sys_flag == 8


def _without(text: str, name: str) -> str:
    found = decode_properties(text)
    found.pop(name, None)
    return "".join(f"{key}\x01{value}\x02" for key, value in found.items())


@pytest.mark.parametrize("version", VERSIONS)
def test_its_records_are_those_of_a_recorded_store(version: str, engine: Any, peer: Peer) -> None:
    """Compares halves, committed copies and op messages field by field, and the messages set aside."""
    messages = store_manifest(version, "mixed")["messages"]
    halves = [one for one in messages if one["topic"] == HALF_TOPIC][:6]  # the later ones are halves put back
    committed = {one["keys"]: one for one in messages if one["topic"] == "StoreTx"}
    ops = [one for one in messages if one["topic"] == OP_TOPIC]
    assert peer.ask(HEART_BEAT, {}, _beat("PG_StoreTx")).code == 0
    bodies = {one["keys"]: _body(one) for one in halves}
    ended = b""
    for half in halves:
        added = {"MSG_REGION", "TRACE_ON", "CLUSTER", "__transactionId__", "REAL_TOPIC", "REAL_QID"}
        text = "".join(f"{k}\x01{v}\x02" for k, v in half["properties"].items() if k not in added)
        fields = send_fields("StoreTx", int(half["properties"]["REAL_QID"]), text)
        fields |= {"a": "PG_StoreTx", "g": str(half["bornTimestamp"]), "f": "4"}
        answer = peer.ask(SEND, fields, bodies[half["keys"]])
        assert answer.code == 0, answer
        decision = {"tx0": 8, "tx3": 8, "tx1": 12, "tx4": 12}.get(half["keys"])
        if decision:
            end = {
                "producerGroup": "PG_StoreTx", "tranStateTableOffset": answer.ext_fields["queueOffset"],
                "commitLogOffset": str(decode_offset_id(answer.ext_fields["msgId"])[2]),
                "commitOrRollback": str(decision), "fromTransactionCheck": "false", "msgId": half["uniqKey"],
            }  # fmt: skip
            ended += encode_command(RemotingCommand(END, opaque=1, flag=2, ext_fields=end))
    peer.send_bytes(ended)
    wait_for(lambda: stored(peer, "StoreTx", 3) and stored(peer, "StoreTx", 2), "both were committed")
    ours = stored(peer, HALF_TOPIC)
    assert len(ours) == 6
    for theirs, half in zip(halves, ours, strict=True):
        _same_as_listed(theirs, half, version)
    by_key = {properties_of(record)["KEYS"]: record for queue in (2, 3) for record in stored(peer, "StoreTx", queue)}
    assert by_key.keys() == committed.keys()
    for key, theirs in committed.items():
        _same_as_listed(theirs, by_key[key], version)
        assert by_key[key].prepared_transaction_offset == next(
            half.physical_offset for half in ours if properties_of(half)["KEYS"] == key
        )
    listed = wait_for(lambda: found if len(found := _listed(peer)) >= 4 else None, "all are listed as decided")
    first = stored(peer, OP_TOPIC)[0]
    assert sorted(listed[:4]) == [0, 1, 3, 4]
    if version == "5.3.3":  # 4.9.8 writes one each, without the comma; RocketBox one for a tick
        assert hashlib.sha256(b"".join(b"%d," % offset for offset in listed[:4])).hexdigest() == ops[0]["bodySha256"]
        assert first.size - len(first.body) == ops[0]["size"] - ops[0]["bodyLength"]
    assert properties_of(first) == ops[0]["properties"]
    assert (first.sys_flag, first.flag, first.prepared_transaction_offset) == (0, 0, 0)
    assert first.born_host == first.store_host
    set_aside = wait_for(lambda: found if len(found := stored(peer, DISCARDED_TOPIC)) == 2 else None, "two set aside")
    theirs_aside = {one["keys"]: one for one in messages if one["topic"] == DISCARDED_TOPIC}
    assert {properties_of(record)["KEYS"] for record in set_aside} == {"tx2", "tx5"}
    for record in set_aside:
        if theirs_aside:  # the recording of 5.3.3 ends earlier
            _same_as_listed(theirs_aside[properties_of(record)["KEYS"]], record, version, place=False)


def _listed(peer: Peer) -> list[int]:
    """Return the offsets of decided halves in order; an op message of one may lack the comma, as in 4.9."""
    return [int(one) for record in stored(peer, OP_TOPIC) for one in record.body.split(b",") if one]


def _beat(group: str) -> bytes:
    return json.dumps({"clientID": "c", "consumerDataSet": [], "producerDataSet": [{"groupName": group}]}).encode()


def _body(listed: dict[str, Any]) -> bytes:
    """Return the body, checked against the manifest, which has only its digest."""
    body = f"transaction {listed['keys'][2:]}".encode()
    assert hashlib.sha256(body).hexdigest() == listed["bodySha256"]
    return body


def _same_as_listed(theirs: dict[str, Any], ours: Record, version: str, place: bool = True) -> None:
    assert (ours.topic, ours.queue_id) == (theirs["topic"], theirs["queueId"])
    if place:
        assert ours.queue_offset == theirs["queueOffset"]
    assert (ours.sys_flag, ours.flag, ours.reconsume_times) == (
        theirs["sysFlag"],
        theirs["flag"],
        theirs["reconsumeTimes"],
    )
    assert (ours.body_crc, len(ours.body)) == (theirs["bodyCrc"], theirs["bodyLength"])
    assert ours.born_time_ms == theirs["bornTimestamp"]
    found, expected = properties_of(ours), theirs["properties"]
    added = ADDED if version == "4.9.8" else set()
    assert found.keys() - expected.keys() <= added
    assert {name: found[name] for name in expected} == expected
    if version == "5.3.3" and place:
        assert ours.size == theirs["size"]
