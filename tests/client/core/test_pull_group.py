"""A pull consumer against a scripted cluster: delivered messages, committed offsets, and all answers of a broker."""

import json

import pytest

from appliance.client.core.directory import Directory
from appliance.client.core.group import Surroundings
from appliance.client.core.pull_group import PullGroup
from appliance.client.core.requests import Subscription
from appliance.client.core.steps import CallFailed
from appliance.client.errors import BadAnswer, NotPermitted
from appliance.client.message import MessageQueue
from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.record import MAGIC_V1, Record, encode_record
from tests.support.client_steps import Driver, SetClock, answer, route

QUEUE = MessageQueue("T", "a", 0)
HOST = ("127.0.0.1", 10911)


def record(offset):
    fields = Record(
        0, MAGIC_V1, 0, 0, 0, offset, offset * 100, 0, 1, HOST, 1, HOST, 0, 0, b"%d" % offset, "T", "TAGS\x01t"
    )  # fmt: skip
    return encode_record(fields, encode_host(*HOST), encode_host(*HOST))


class Broker:
    """One queue with `stored` messages; `offset` is committed. pulls: answers that come before the right ones."""

    def __init__(self, stored=3, offset=None, pulls=()):
        self.stored = stored
        self.offset = offset
        self.pulls = list(pulls)
        self.members = ["me"]
        self.commits = []

    def __call__(self, call):
        ext = call.request.ext_fields
        match call.request.code:
            case 105:
                return answer(body=route("a", queues=1)) if ext["topic"] == "T" else answer(17)
            case 38:
                return answer(body=json.dumps({"consumerIdList": self.members}).encode())
            case 14:
                return answer(22) if self.offset is None else answer(offset=self.offset)
            case 15:
                self.offset = int(ext["commitOffset"])
                self.commits.append(self.offset)
                return answer()
            case 30:
                return answer(offset=self.stored)
            case 31:
                return answer(offset=0)
            case 11:
                return self.pull(int(ext["queueOffset"]))
        return answer()

    def pull(self, at):
        if self.pulls:
            return self.pulls.pop(0)
        ends = {"minOffset": 0, "maxOffset": self.stored, "suggestWhichBrokerId": 0}
        if at >= self.stored:
            return CallFailed("closed", "the test has seen enough")
        body = b"".join(record(offset) for offset in range(at, self.stored))
        return answer(body=body, nextBeginOffset=self.stored, **ends)


class Group:
    def __init__(self, broker, begin="first", tags="*"):
        self.broker = broker
        self.clock = SetClock()
        self.driver = Driver(broker, self.clock)
        self.notes = []
        directory = Directory(["ns:9876"], self.clock, 3.0)
        self.beats = 0
        client = Surroundings("me", directory, self.clock, 3.0, self._beat, self.notes.append)
        self.core = PullGroup("g", client, begin=begin, wake=lambda: None, cache=10)
        self.core.subscriptions["T"] = Subscription("T", tags)
        self.driver.run(self.core.start())

    def _beat(self, address, group):
        self.beats += 1
        return
        yield

    def fetch(self, steps=40):
        """Run the queue's fetch loop for at most `steps` steps."""
        held = self.core.held[QUEUE]
        loop = self.core._fetch(held, held.epoch)
        outcome = None
        for _ in range(steps):
            try:
                effect = loop.send(outcome)
            except StopIteration:
                return
            outcome = self.driver._do(effect)
            if isinstance(outcome, CallFailed) and outcome.kind == "closed":
                return

    def offsets(self, most=10):
        return [message.queue_offset for message in self.core.take(most)]

    def commit(self):
        return self.driver.run(self.core.commit())


def test_only_what_was_passed_is_committed():
    broker = Broker()
    group = Group(broker)
    group.fetch()
    assert group.offsets(2) == [0, 1]
    group.commit()
    assert broker.commits == [0]  # where the group begins, which was not stored yet
    assert group.offsets(1) == [2]
    group.commit()
    assert broker.commits == [0, 2]
    group.core.pass_given()
    group.commit()
    group.commit()
    assert broker.commits == [0, 2, 3]


def test_what_did_not_reach_the_user_is_given_again_and_not_committed():
    group = Group(Broker())
    group.fetch()
    assert group.offsets(1) == [0]
    group.core.taken = []
    assert group.offsets(1) == [1]
    group.core.take_back()
    group.commit()
    assert group.broker.commits == [1]
    assert group.offsets() == [1, 2]
    group.driver.run(group.core.seek(QUEUE, 1))
    group.core.take_back()
    group.fetch()
    assert group.offsets() == [1, 2]


def test_a_loop_that_a_signal_ends_as_it_begins_is_begun_again():
    core = Group(Broker()).core
    held = core.held[QUEUE]
    held.is_pulling = False
    resuming = core._resume(held)
    begun = next(resuming).procedure
    assert held.is_pulling
    resuming.close()
    assert not held.is_pulling
    assert core.may_resume
    assert list(begun) == [], "if it was begun, it pulls nothing beside the next one"


@pytest.mark.parametrize(("begin", "committed", "first"), [("first", None, 0), ("last", None, 3), ("last", 1, 1)])
def test_a_queue_begins_at_its_offset_or_where_it_was_told(begin, committed, first):
    group = Group(Broker(offset=committed), begin)
    group.fetch()
    assert group.core.held[QUEUE].passed == first
    assert group.offsets() == list(range(first, 3))


@pytest.mark.parametrize("failed", [answer(1, remark="failed"), CallFailed("timeout", "no answer in time")])
def test_an_error_of_the_offset_is_not_taken_for_a_new_group(failed):
    """The client of 4.9 would jump to the end then, and skip messages."""
    broker = Broker(offset=1)
    answers = [failed]
    group = Group(lambda call: answers.pop() if call.request.code == 14 and answers else broker(call), "last")
    group.fetch()
    assert group.offsets() == [1, 2]


def test_what_is_filtered_out_is_committed_and_not_given():
    broker = Broker()
    group = Group(broker, tags="another")
    group.fetch()
    assert group.offsets() == []
    group.commit()
    assert broker.commits == [3]


def test_an_offset_that_is_gone_is_said_and_left():
    moved = answer(21, nextBeginOffset=2, minOffset=2, maxOffset=3)
    group = Group(Broker(offset=0, pulls=[moved]))
    group.fetch()
    assert group.offsets() == [2]
    assert any("has no offset 0" in note for note in group.notes)


@pytest.mark.parametrize("code", [24, 25, 26])
def test_a_broker_that_forgot_the_group_hears_a_heartbeat(code):
    group = Group(Broker(pulls=[answer(code, remark="not exist")]))
    beats = group.beats
    group.fetch()
    assert group.beats == beats + 1
    assert group.offsets() == [0, 1, 2]


@pytest.mark.parametrize(
    "strange",
    [
        answer(0, b"\0\0\0\x50nonsense", nextBeginOffset=9, minOffset=0, maxOffset=9),
        answer(0, b"", minOffset=0, maxOffset=9),
        answer(0, b"", nextBeginOffset="-5", minOffset=0, maxOffset=9),
        answer(0, b"", nextBeginOffset=0, minOffset=0, maxOffset=9),
        answer(0, record(1) + record(1 << 40) + record(2), nextBeginOffset=3, minOffset=0, maxOffset=9),
    ],
)
def test_a_strange_answer_moves_nothing_and_is_asked_again_after_a_rest(strange):
    group = Group(Broker(offset=1, pulls=[strange]))
    group.fetch()
    assert isinstance(group.core._trouble, BadAnswer) or group.offsets() == [1, 2]
    assert max(group.driver.slept) >= 0.5


def test_a_broker_that_answers_nothing_at_once_is_not_asked_without_end():
    nothing = answer(19, nextBeginOffset=0, minOffset=0, maxOffset=0)
    group = Group(Broker(pulls=[nothing] * 5))
    group.fetch()
    assert group.driver.slept.count(pytest.approx(0.1)) == 5


def test_a_refusal_that_only_somebody_can_mend_is_raised_once():
    group = Group(Broker(pulls=[answer(16, remark="perm")]))
    held = group.core.held[QUEUE]
    loop = group.core._fetch(held, 0)
    outcome = None
    while group.core._trouble is None:
        outcome = group.driver._do(loop.send(outcome))
    assert isinstance(group.core.take_trouble(), NotPermitted)
    assert group.core.take_trouble() is None


def test_members_that_a_restarted_broker_forgot_keep_their_queues():
    broker = Broker()
    group = Group(broker)
    broker.members = []
    group.driver.run(group.core.rebalance())
    assert list(group.core.held) == [QUEUE]
    broker.members = ["another", "me"]
    group.driver.run(group.core.rebalance())
    assert not group.core.held


def test_a_queue_that_is_given_up_is_committed_first():
    broker = Broker()
    group = Group(broker)
    group.fetch()
    assert group.offsets() == [0, 1, 2]
    group.core.pass_given()
    broker.members = ["another", "me"]
    group.driver.run(group.core.rebalance())
    assert broker.commits == [3]


def test_seek_drops_what_was_fetched():
    broker = Broker()
    group = Group(broker)
    group.fetch()
    group.offsets(2)
    group.driver.run(group.core.seek(QUEUE, 1))
    group.fetch()
    assert group.offsets() == [1, 2]
    with pytest.raises(KeyError):
        group.driver.run(group.core.seek(MessageQueue("T", "a", 9), 0))


def test_all_queues_go_to_an_end_or_stay():
    broker = Broker()
    group = Group(broker)
    group.fetch()
    group.offsets(2)
    group.driver.run(group.core.seek_all([QUEUE], "min"))
    group.fetch()
    assert group.offsets() == [0, 1, 2]
    with pytest.raises(KeyError):
        group.driver.run(group.core.seek_all([QUEUE, MessageQueue("T", "a", 9)], "min"))
    assert group.offsets() == []


def test_a_queue_that_rests_keeps_what_was_fetched():
    broker = Broker()
    group = Group(broker)
    group.fetch()
    assert group.offsets(1) == [0]
    group.core.pause([QUEUE])
    assert group.offsets() == []
    group.driver.run(group.core.unpause([QUEUE]))
    assert group.offsets() == [1, 2]


def test_a_later_seek_is_not_undone_by_the_answers_of_an_earlier_one():
    broker = Broker()
    group = Group(broker)
    group.fetch()
    earlier = group.core.seek_all([QUEUE], "max")
    (asking,) = next(earlier).procedures
    group.driver.run(group.core.seek(QUEUE, 1))
    with pytest.raises(StopIteration):
        earlier.send([group.driver.run(asking)])
    group.fetch()
    assert group.offsets() == [1, 2]


def test_a_seek_is_not_undone_by_a_commit_that_was_on_its_way():
    broker = Broker(offset=0)
    group = Group(broker)
    group.fetch()
    group.offsets()
    group.core.pass_given()
    (late,) = next(group.core.commit()).procedures
    call = next(late)
    group.driver.run(group.core.seek(QUEUE, 0))  # what was committed before
    leaving = group.core.leave(True)
    (last,) = next(leaving).procedures
    next(last)  # waits for its turn
    with pytest.raises(StopIteration):
        late.send(broker(call))
    group.driver.run(last)
    assert broker.commits == [3, 0]


def test_a_commit_without_an_answer_is_written_again():
    broker = Broker(offset=0)
    group = Group(lambda call: (broker(call), CallFailed("timeout", "no answer in time"))[call.request.code == 15])
    group.fetch()
    group.offsets()
    group.core.pass_given()
    group.commit()
    group.driver.run(group.core.seek(QUEUE, 0))
    group.commit()
    assert broker.commits == [3, 0]


def test_all_queues_are_those_of_that_moment():
    group = Group(Broker())
    group.fetch()
    group.core.pause(None)
    assert group.core.paused() == [QUEUE]
    group.driver.run(group.core.unpause(None))
    assert group.core.paused() == []
    group.driver.run(group.core.seek_all(None, "max"))
    assert group.core.held[QUEUE].passed == 3
