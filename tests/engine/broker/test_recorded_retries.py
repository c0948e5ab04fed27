"""Retries, dead letters and ordered consumption as recorded between Java consumers of both versions and Apache's
brokers, repeated here: the same frames in, the same codes and the same messages out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appliance.engine.protocol.command import RemotingCommand, decode_frame, encode_command
from appliance.engine.protocol.message_id import decode_offset_id
from appliance.engine.protocol.names import SCHEDULE_TOPIC
from appliance.engine.protocol.properties import decode_properties, find_property
from appliance.engine.protocol.record import Record
from tests.support.engine import Peer, pull_fields, records, start_engine
from tests.support.golden import GOLDEN, VERSIONS, frames
from tests.support.waiting import wait_for

SEND, SEND_BACK, PULL = 310, 36, 11
#: Requests that are repeated; the rest is clients looking around.
ASKED = {SEND, SEND_BACK, 34, 35, 41, 42}
#: Properties that 5.3.3 adds to each message and 4.9.8 does not, and one that 4.9.8 leaves out of the text.
ADDED = {"MSG_REGION", "TRACE_ON", "WAIT"}


class Again:
    """One recorded conversation with a broker, repeated with RocketBox.

    ours: recorded physical offset -> place of the same message here.
    """

    def __init__(self, engine: Any, version: str, name: str) -> None:
        self._engine = engine
        self._version = version
        self._path = GOLDEN / "wire" / version / f"{name}.jsonl.gz"
        self._peers: dict[str, Peer] = {}
        self.ours: dict[int, int] = {}
        self.asked: list[int] = []
        #: Queue offsets of sends, (Apache's, RocketBox's). Two that were under way at once may have changed places.
        self.offsets: list[tuple[str, str]] = []
        self.seen: list[tuple[Record, Record]] = []

    def exchanges(self) -> list[tuple[str, RemotingCommand, RemotingCommand | None]]:
        """Return the clients' (connection, request, answer or None if one-way): pulls in the order of their answers,
        all others in the order of the requests. A consumer may have a message before its producer has the answer."""
        waiting: dict[tuple[str, int], tuple[int, RemotingCommand]] = {}
        found: list[tuple[int, str, RemotingCommand, RemotingCommand | None]] = []
        for number, (line, frame) in enumerate(frames(self._path)):
            if "namesrv" in (line["from"], line["to"]):
                continue
            command, conn = decode_frame(frame), line["conn"]
            if line["dir"] == "request" and line["from"] == "client":
                waiting[conn, line["opaque"]] = number, command
                if command.is_oneway:
                    found.append((number, conn, command, None))
            elif line["dir"] == "response" and line["to"] == "client" and (conn, line["opaque"]) in waiting:
                asked_at, request = waiting.pop((conn, line["opaque"]))
                found.append((number if request.code == PULL else asked_at, conn, request, command))
        found.sort(key=lambda one: one[0])
        return [one[1:] for one in found]

    def run(self) -> None:
        for conn, request, theirs in self.exchanges():
            if request.code in ASKED:
                self._ask(conn, request, theirs)
            elif request.code == PULL and theirs is not None and theirs.code == 0:
                for record in records(theirs.body):
                    self._look_for(record)
        theirs_ours = zip(*self.offsets, strict=True)
        assert len({tuple(sorted(offsets)) for offsets in theirs_ours}) == 1
        for peer in self._peers.values():
            peer.close()

    def _ask(self, conn: str, request: RemotingCommand, theirs: RemotingCommand | None) -> None:
        peer = self._peers.get(conn)
        if peer is None:
            peer = self._peers[conn] = Peer(self._engine.broker_address)
        if request.code == SEND_BACK:
            request.ext_fields["offset"] = str(self.ours[int(request.ext_fields["offset"])])
        self.asked.append(request.code)
        peer.send_bytes(encode_command(request))
        if theirs is None:
            assert peer.ask(38, {"consumerGroup": "Nobody"}).code == 1  # all earlier requests are done
            return
        while not (ours := peer.receive()).is_response or ours.opaque != request.opaque:
            pass  # notices of changed consumers
        assert (ours.code, ours.remark) == (theirs.code, theirs.remark), request
        if request.code == SEND:
            names = {"queueId", "TRACE_ON", "MSG_REGION"}
            assert {n: ours.ext_fields[n] for n in names} == {n: theirs.ext_fields[n] for n in names}
            self.offsets.append((theirs.ext_fields["queueOffset"], ours.ext_fields["queueOffset"]))
            places = [decode_offset_id(answer.ext_fields["msgId"])[2] for answer in (theirs, ours)]
            self.ours[places[0]] = places[1]
        elif request.code == SEND_BACK:
            assert ours.ext_fields == {}
        elif request.code == 41:
            locked = [json.loads(answer.body)["lockOKMQSet"] for answer in (theirs, ours)]
            assert sorted(map(str, locked[0])) == sorted(map(str, locked[1]))

    def _look_for(self, theirs: Record) -> None:
        """Check that the recorded message of Apache's consumer is here, in the same queue. Two sent back at once may
        have changed places."""
        if "looks" not in self._peers:
            self._peers["looks"] = Peer(self._engine.broker_address)
        fields = pull_fields(theirs.topic, theirs.queue_id, 0)

        def found() -> list[Record]:
            answer = self._peers["looks"].ask(PULL, fields)
            all_found = records(answer.body) if answer.code == 0 else []
            return [ours for ours in all_found if _which(ours) == _which(theirs)]

        (ours,) = wait_for(found, f"{theirs.topic} at {theirs.queue_offset}")
        self.ours[theirs.physical_offset] = ours.physical_offset
        self.seen.append((theirs, ours))

    def same(self, theirs: Record, ours: Record) -> None:
        assert (ours.topic, ours.queue_id) == (theirs.topic, theirs.queue_id)
        assert (ours.body, ours.flag, ours.sys_flag) == (theirs.body, theirs.flag, theirs.sys_flag)
        assert (ours.reconsume_times, ours.born_time_ms) == (theirs.reconsume_times, theirs.born_time_ms)
        assert ours.store_time_ms >= ours.born_time_ms
        expected, found = decode_properties(theirs.properties), decode_properties(ours.properties)
        if theirs.topic.startswith("%RETRY%"):
            assert expected.pop("DELAY") > "0", "Apache's still has the level that it waited at"
        origin = expected.get("ORIGIN_MESSAGE_ID", "")
        if origin and origin != expected.get("UNIQ_KEY"):  # an offset id, which differs between brokers
            port = int(self._engine.broker_address.rpartition(":")[2])
            where = self.ours[decode_offset_id(origin)[2]]
            assert decode_offset_id(found.pop("ORIGIN_MESSAGE_ID")) == ("127.0.0.1", port, where)
            del expected["ORIGIN_MESSAGE_ID"]
        if self._version == "4.9.8":
            assert expected.keys() <= found.keys() <= expected.keys() | ADDED
            found = {name: value for name, value in found.items() if name in expected}
        assert found == expected


def _which(record: Record) -> tuple[str | None, int]:
    return find_property(record.properties, "UNIQ_KEY"), record.reconsume_times


@pytest.fixture
def engine(tmp_path):
    """An engine whose 18 levels have the usual numbers but no delay."""
    running = start_engine(tmp_path, store={"message_delay_level": " ".join(["0s"] * 18)})
    yield running
    running.stop()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_goes_through_two_retries_to_the_dead_letters(engine, version):
    again = Again(engine, version, "retry-dlq")
    again.run()
    assert again.asked.count(SEND_BACK) == 6
    topics = [theirs.topic for theirs, _ in again.seen]
    assert (topics.count("%RETRY%CG_Retry"), topics.count("%DLQ%CG_Retry")) == (4, 2)
    for theirs, ours in again.seen:
        again.same(theirs, ours)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_broker_chooses_the_level_and_an_ordered_consumer_gives_up(engine, version, peer):
    again = Again(engine, version, "retry-default-level")
    again.run()
    for theirs, ours in again.seen:
        again.same(theirs, ours)
    assert [ours.topic for _, ours in again.seen].count("%RETRY%CG_Retry0") == 2
    assert [engine.broker.store.max_offset(SCHEDULE_TOPIC, level - 1) for level in (1, 2, 3, 4)] == [0, 0, 2, 0]
    answer = peer.ask(PULL, pull_fields("%DLQ%CG_RetryOrd", 0, 0))
    dead = [decode_properties(record.properties) for record in records(answer.body)]
    assert sorted(one["KEYS"] for one in dead) == ["k0", "k1"]
    # Apache writes -1 here, and 0 into the dead letters of 36.
    assert {(one["RETRY_TOPIC"], one["DELAY"]) for one in dead} == {("Retry0Topic", "-1")}
    assert {record.reconsume_times for record in records(answer.body)} == {1 if version == "4.9.8" else 2}


@pytest.mark.parametrize("version", VERSIONS)
def test_queues_are_locked_and_given_back_as_recorded(engine, version):
    again = Again(engine, version, "push-orderly")
    again.run()
    assert {41, 42} <= set(again.asked)
    for theirs, ours in again.seen:
        again.same(theirs, ours)
