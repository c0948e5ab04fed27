"""Answers to clients and administrators about a queue whose files are being rebuilt: the truth, or nothing yet."""

import shutil

import pytest

from appliance.engine.protocol.codes import RequestCode, ResponseCode
from appliance.engine.store.queues.queue_repair import QueueRepair
from tests.support.engine import Peer, pull_fields, records, send_fields, start_engine
from tests.support.waiting import wait_for

UNIQ = "UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBA0000\x02"
COUNT = 30


class Broken:
    """An engine that was started without its queue files, and whose repair waits until `mend`."""

    def __init__(self, directory, monkeypatch):
        engine = start_engine(directory)
        peer = Peer(engine.broker_address)
        for i in range(COUNT):
            assert peer.ask(310, send_fields("T", 0, UNIQ), b"%d" % i).code == 0
        peer.close()
        engine.stop()
        shutil.rmtree(directory / "store" / "consumequeue")
        self._held = True
        real = QueueRepair.step
        monkeypatch.setattr(QueueRepair, "step", lambda repair, *args: True if self._held else real(repair, *args))
        self.engine = start_engine(directory)
        self.store = self.engine.broker.store
        self.queue = self.store.find_queue("T", 0)
        self.peer = Peer(self.engine.broker_address)

    def mend(self):
        self._held = False
        wait_for(
            lambda: not (self.store._flush_queues.repair.pending or self.queue.broken), "the queue is still broken"
        )


@pytest.fixture
def broken(tmp_path, monkeypatch):
    broken = Broken(tmp_path, monkeypatch)
    yield broken
    broken.mend()
    broken.peer.close()
    broken.engine.stop()


def ask_offset(peer):
    return peer.ask(14, {"consumerGroup": "NewGroup", "topic": "T", "queueId": 0})


def test_a_new_group_is_not_told_that_it_has_no_offset_while_the_queue_is_built_anew(broken):
    """A consumer that starts from the last offset would take that for "none" and skip all that waited."""
    assert broken.queue.max_offset == COUNT
    with pytest.raises(ConnectionError):
        ask_offset(broken.peer)
    assert broken.queue.broken, "the first to ask found out"
    again = Peer(broken.engine.broker_address)
    with pytest.raises(ConnectionError):
        ask_offset(again)
    broken.mend()
    later = Peer(broken.engine.broker_address)
    answer = ask_offset(later)
    assert (answer.code, answer.ext_fields["offset"]) == (0, "0")
    bodies = [r.body for r in records(later.ask(11, pull_fields("T", 0, 0)).body)]
    assert bodies == [b"%d" % i for i in range(COUNT)]
    for one in (again, later):
        one.close()


def test_an_offset_that_was_committed_is_told_meanwhile(broken):
    broken.engine.broker.offsets.commit("NewGroup", "T", 0, 7)
    assert ask_offset(broken.peer).ext_fields == {"offset": "7"}


QUESTIONS = {
    "29": (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": "T", "queueId": 0, "timestamp": 1}),
    "29 upper": (
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        {"topic": "T", "queueId": 0, "timestamp": 1 << 50, "boundaryType": "UPPER"},
    ),
    "32": (RequestCode.GET_EARLIEST_MSG_STORETIME, {"topic": "T", "queueId": 0}),
    "222": (
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        {"topic": "T", "group": "G", "timestamp": 1, "isForce": "true"},
    ),
    "202": (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"}),
    "208": (RequestCode.GET_CONSUME_STATS, {"topic": "T", "consumerGroup": "G"}),
    "303": (RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "T", "group": "G"}),
    "321": (RequestCode.QUERY_CONSUME_QUEUE, {"topic": "T", "queueId": 0, "index": 0, "count": 5}),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_depends_on_the_missing_entries_is_refused_and_never_guessed(broken, question):
    broken.engine.broker.groups.find("G")
    broken.engine.broker.offsets.commit("G", "T", 0, 5)
    code, fields = QUESTIONS[question]
    answer = broken.peer.ask(code, fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "the files of T-0 are being rebuilt, try again later"
    assert broken.engine.broker.offsets.get("G", "T", 0) == 5, "nothing was reset"
    broken.mend()
    assert broken.peer.ask(code, fields).code == 0


def test_what_is_known_without_the_files_is_told(broken):
    fields = {"topic": "T", "queueId": 0}
    assert broken.peer.ask(RequestCode.GET_MAX_OFFSET, fields).ext_fields == {"offset": str(COUNT)}
    assert broken.peer.ask(RequestCode.GET_MIN_OFFSET, fields).ext_fields == {"offset": "0"}


def test_pulls_are_answered_with_the_offset_they_came_with(broken):
    for offset in (0, 7, COUNT - 1):
        answer = broken.peer.ask(11, pull_fields("T", 0, offset))
        assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, str(offset))


def test_a_reset_to_the_end_or_to_an_offset_needs_no_entries(broken):
    broken.engine.broker.groups.find("G")
    ask = {"topic": "T", "group": "G", "timestamp": -1}
    answer = broken.peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ask | {"queueId": 0, "offset": 3})
    assert answer.code == 0
    assert b":3}" in answer.body
    assert broken.peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ask).code == 0


def test_times_are_right_once_it_is_whole(broken):
    broken.mend()
    stored = [r.store_time_ms for r in records(broken.peer.ask(11, pull_fields("T", 0, 0)).body)]
    fields = {"topic": "T", "queueId": 0}
    earliest = broken.peer.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, fields)
    assert earliest.ext_fields == {"timestamp": str(stored[0])}
    for time_ms in {stored[0], stored[-1], stored[-1] + 1}:
        found = broken.peer.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields | {"timestamp": time_ms})
        expected = next((i for i, at in enumerate(stored) if at >= time_ms), COUNT)
        assert found.ext_fields == {"offset": str(expected)}
