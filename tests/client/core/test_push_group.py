"""A push consumer against a scripted cluster: what is committed, sent back, locked and forgotten."""

import contextlib
import json

import pytest

from appliance.client.core import requests
from appliance.client.core.directory import Directory
from appliance.client.core.group import Surroundings
from appliance.client.core.handling import DEAD, DONE, Outcome, outcome_of
from appliance.client.core.ordered_group import OrderedGroup
from appliance.client.core.push_group import Handling, PushGroup
from appliance.client.core.requests import Subscription
from appliance.client.core.steps import Call, CallFailed, Sleep, Together
from appliance.client.errors import RequestRefused, Retry, Suspend
from appliance.client.message import MessageQueue
from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.record import MAGIC_V1, Record, encode_record
from tests.support.client_steps import Driver, SetClock, answer, route

QUEUE = MessageQueue("T", "a", 0)
RETRY = "%RETRY%g"
HOST = ("127.0.0.1", 10911)
AWAY = CallFailed("connect", "nobody listens", sent=False)


def record(offset):
    fields = Record(
        0, MAGIC_V1, 0, 0, 0, offset, offset * 100, 0, 1, HOST, 1, HOST, 0, 0, b"%d" % offset, "T", "UNIQ_KEY\x01u"
    )  # fmt: skip
    return encode_record(fields, encode_host(*HOST), encode_host(*HOST))


class Broker:
    """One queue with `stored` messages. answers: by code, what comes before the right answers."""

    def __init__(self, stored=4, members=("me",), queues=1):
        self.stored = stored
        self.queues = queues
        self.members = list(members)
        self.answers = {}
        self.asked = []
        self.owner = None
        #: What the group subscribes to, as 203 tells it: tags by topic.
        self.subscribed = {}

    def __call__(self, call):
        ext, code = call.request.ext_fields, call.request.code
        self.asked.append((code, call.request))
        if self.answers.get(code):
            return self.answers[code].pop(0)
        match code:
            case 105:
                return answer(body=route("a", queues=self.queues)) if ext["topic"] in ("T", RETRY) else answer(17)
            case 38:
                return answer(body=json.dumps({"consumerIdList": self.members}).encode())
            case 203:
                table = {topic: {"topic": topic, "subString": tags} for topic, tags in self.subscribed.items()}
                ids = [{"clientId": one} for one in self.members]
                return answer(body=json.dumps({"connectionSet": ids, "subscriptionTable": table}).encode())
            case 14 | 31:
                return answer(offset=0)
            case 41:
                asked = json.loads(call.request.body)
                free = self.owner in (None, asked["clientId"])
                return answer(body=json.dumps({"lockOKMQSet": asked["mqSet"] if free else []}).encode())
            case 11:
                at = int(ext["queueOffset"])
                ends = {"minOffset": 0, "maxOffset": self.stored, "suggestWhichBrokerId": 0}
                if ext["topic"] != "T" or at >= self.stored:
                    return CallFailed("closed", "the test has seen enough")
                body = b"".join(record(offset) for offset in range(at, self.stored))
                return answer(body=body, nextBeginOffset=self.stored, **ends)
        return answer()

    def codes(self):
        return [code for code, _ in self.asked]

    def fields(self, code):
        return [request.ext_fields for one, request in self.asked if one == code]

    def commits(self):
        return [int(fields["commitOffset"]) for fields in self.fields(15)]


def no_beat(address, group):
    yield from ()


class File:
    def __init__(self):
        self.offsets = {}

    def read(self, queue):
        return self.offsets.get(queue)

    def save(self, offsets):
        self.offsets |= offsets


class Group:
    def __init__(self, broker, make=PushGroup, offsets=None, begin="first", **bounds):
        self.clock = SetClock()
        self.broker = broker
        self.driver = Driver(broker, self.clock)
        self.notes, self.tickets = [], []
        directory = Directory(["ns:9876"], self.clock, 3.0)
        self.news = []
        directory.tell = self.news.append
        client = Surroundings("me", directory, self.clock, 3.0, no_beat, self.notes.append)
        self.core = make(
            "g", client, begin=begin, wake=lambda: None, handling=Handling(10, 1000, 1, 16, 900.0)._replace(**bounds),
            offsets=offsets, dispatch=self.tickets.append,
        )  # fmt: skip
        self.core.subscriptions["T"] = Subscription("T")
        self.driver.run(self.core.start())

    @property
    def held(self):
        return self.core.held[QUEUE]

    def fetch(self, steps=40):
        """Run the queue's loop until the cluster has nothing new, the cache is full, or it went so many steps."""
        self.held.is_pulling = True
        loop = self.core._fetch(self.held, self.held.epoch)
        outcome = None
        for _ in range(steps):
            try:
                effect = loop.send(outcome)
            except StopIteration:
                return
            outcome = self.driver._do(effect)
            if isinstance(outcome, CallFailed) and outcome.kind == "closed":
                self.held.is_pulling = False
                return

    def begin(self, count=1):
        found = [self.core.begin_batch(self.held) for _ in range(count)]
        return found if count > 1 else found[0]

    def finish(self, batch, outcome=DONE):
        if outcome is not DONE or isinstance(self.core, OrderedGroup):
            self.driver.run(self.core.finish(batch, outcome))
        elif (left := self.core.has_done(batch)) is not None:
            self.driver.run(left)

    def commit(self):
        self.driver.run(self.core.commit())
        return self.broker.commits()[-1:]


@pytest.fixture
def fetched():
    group = Group(Broker())
    group.fetch()
    return group


def test_the_first_message_that_is_not_done_is_committed(fetched):
    batches = fetched.begin(3)
    fetched.finish(batches[2])
    fetched.finish(batches[1])
    assert fetched.commit() == []  # it begins at 0, which is where the group stands
    fetched.finish(batches[0])
    assert fetched.commit() == [3]
    fetched.finish(fetched.begin())
    assert fetched.commit() == [4]


def test_a_ticket_is_out_while_messages_wait(fetched):
    assert len(fetched.tickets) == 1
    fetched.begin(4)
    assert len(fetched.tickets) == 4  # each that was begun left another, until none waited
    assert fetched.begin() is None


def test_a_queue_with_much_to_do_has_one_ticket_like_others(fetched):
    for stored in (6, 8):
        fetched.broker.stored = stored
        fetched.fetch()
    assert len(fetched.tickets) == 1
    fetched.begin()
    assert len(fetched.tickets) == 2  # the next, in place of the first


def test_a_batch_holds_what_its_option_says():
    group = Group(Broker(), batch=3)
    group.fetch()
    assert [[one.queue_offset for one in batch.messages] for batch in group.begin(2)] == [[0, 1, 2], [3]]


def test_what_failed_is_sent_back_before_it_is_passed(fetched):
    batch = fetched.begin()
    fetched.finish(batch, Outcome(batch.messages, 5))
    (back,) = fetched.broker.fields(36)
    assert back == {
        "maxReconsumeTimes": "16", "offset": "0", "bname": "a", "delayLevel": "5", "originTopic": "T",
        "originMsgId": "u", "unitMode": "false", "group": "g",
    }  # fmt: skip
    assert fetched.commit() == [1]


def test_what_was_cancelled_is_sent_back_and_at_the_end_or_of_a_broadcast_not_done():
    groups = Group(Broker()), Group(Broker()), Group(Broker(), offsets=File())
    for group in groups:
        group.fetch()
        batch = group.begin()
        if group is groups[1]:
            group.core.stop()
        group.finish(batch, None)
    assert [len(group.broker.fields(36)) for group in groups] == [1, 0, 0]
    assert [group.held.passed for group in groups] == [1, 0, 0]
    assert [group.core.active for group in groups] == [0, 0, 0]


def test_each_message_of_a_batch_that_failed_is_sent_back():
    group = Group(Broker(), batch=3)
    group.fetch()
    batch = group.begin()
    group.finish(batch, Outcome(batch.messages[1:]))
    assert [fields["offset"] for fields in group.broker.fields(36)] == ["100", "200"]
    assert group.held.passed == 3


def test_a_broker_that_does_not_take_it_back_gets_it_as_a_new_message(fetched):
    batch = fetched.begin()
    fetched.broker.answers[36] = [answer(1, remark="look message by offset failed")]
    fetched.finish(batch, Outcome(batch.messages))
    (sent,) = fetched.broker.fields(310)
    assert (sent["b"], sent["j"], sent["l"]) == (RETRY, "1", "16")
    assert {"RETRY_TOPIC\x01T", "DELAY\x013"} <= set(sent["i"].split("\x02"))
    assert fetched.commit() == [1]


def test_what_no_broker_takes_back_is_not_passed_and_tried_again(fetched):
    batch = fetched.begin()
    fetched.broker.answers |= {36: [AWAY, AWAY], 310: [AWAY, AWAY]}
    steps = fetched.core.finish(batch, Outcome(batch.messages))
    outcome, slept = None, 0
    while True:
        try:
            effect = steps.send(outcome)
        except StopIteration:
            break
        outcome = fetched.driver._do(effect)
        if len(fetched.driver.slept) > slept:
            slept = len(fetched.driver.slept)
            assert fetched.held.passed == 0
    assert (slept, fetched.held.passed) == (2, 1)
    assert len(fetched.broker.fields(36)) == 3


def test_what_becomes_of_a_message_does_not_count_when_its_queue_has_another_member(fetched):
    first, second = fetched.begin(2)
    fetched.finish(first)
    fetched.broker.members = ["another", "me"]
    fetched.driver.run(fetched.core.rebalance())
    assert fetched.broker.commits() == [1]
    fetched.finish(second, Outcome(second.messages))
    assert 36 not in fetched.broker.codes()
    assert fetched.core._bytes == 0


def test_offsets_that_somebody_set_are_gone_on_from(fetched):
    batch = fetched.begin()
    fetched.broker.answers[11] = [answer(21, nextBeginOffset=2, minOffset=0, maxOffset=4)]
    fetched.fetch(3)
    fetched.finish(batch, Outcome(batch.messages))
    assert 36 not in fetched.broker.codes()
    assert fetched.held.passed == 2
    assert fetched.commit() == [2]
    fetched.fetch()
    assert [one.queue_offset for one in fetched.held.messages] == [2, 3]


def test_queues_that_are_given_up_leave_room_for_the_others():
    group = Group(Broker(), cache_bytes=4)
    group.fetch()
    retries = next(held for held in group.core.held.values() if held.queue.topic == RETRY)
    retries.is_pulling = False  # its loop has ended: there was no room
    started = len(group.driver.started)
    group.broker.members = ["another", "me"]
    group.core.subscriptions.pop(RETRY)  # that queue stays
    group.driver.run(group.core.rebalance())
    assert list(group.core.held.values()) == [retries]
    assert len(group.driver.started) == started + 1
    assert retries.is_pulling


@pytest.mark.parametrize("full", [{"cache": 4}, {"cache_bytes": 4}])
def test_a_full_cache_is_not_filled_further_until_a_message_is_done(full):
    group = Group(Broker(), **full)
    group.fetch()
    pulls = group.broker.codes().count(11)
    group.fetch()
    assert group.broker.codes().count(11) == pulls
    started = len(group.driver.started)
    group.finish(group.begin())
    assert len(group.driver.started) == started + 1  # its loop


def test_one_message_that_takes_long_stops_the_queue_after_a_while():
    group = Group(Broker(stored=3000), cache=5000, cache_bytes=1 << 20)
    group.fetch()
    stuck, *others = group.begin(3000)
    for batch in others:
        group.finish(batch)
    assert not group.core._has_room(group.held)
    group.finish(stuck)
    assert group.core._has_room(group.held)


def test_a_stop_leaves_what_no_handler_has(fetched):
    batch = fetched.begin()
    fetched.core.stop()
    assert fetched.begin() is None
    assert fetched.held.passed == 0
    fetched.finish(batch)
    assert fetched.driver.run(fetched.core.leave(True)) == 0
    assert fetched.broker.commits() == [1]
    assert fetched.broker.codes()[-1] == 35
    assert fetched.core._bytes == 0


def test_a_handler_that_does_not_end_gives_its_message_back(fetched):
    batch = fetched.begin()
    watch = fetched.core._watch()
    outcome = None
    while not any("does not end" in note for note in fetched.notes):
        outcome = fetched.driver._do(watch.send(outcome))
    assert sum(fetched.driver.slept) == pytest.approx(900.0, abs=90.0)
    fetched.finish(batch, Outcome(batch.messages))  # too late: it is on its way back
    assert fetched.held.passed == 0
    fetched.driver.run(fetched.driver.started[-1])
    assert [fields["delayLevel"] for fields in fetched.broker.fields(36)] == ["3"]
    assert fetched.held.passed == 1


def test_a_handler_that_takes_long_is_said_once_with_its_stack(fetched):
    batch, done = fetched.begin(2)
    batch.thread = 17
    fetched.core.stack_of = "in thread {}".format
    fetched.finish(done)
    watch = fetched.core._watch()
    outcome = None
    while sum(fetched.driver.slept) < 200:
        outcome = fetched.driver._do(watch.send(outcome))
        if sum(fetched.driver.slept) < 60:
            assert fetched.notes == []
    (said,) = fetched.notes
    assert "has not ended after 60 s" in said
    assert said.endswith("in thread 17")


def test_where_a_group_begins_is_news():
    group = Group(Broker(), begin="last")
    del group.news[:]
    group.broker.answers |= {14: [answer(22)], 30: [answer(offset=4)]}
    assert group.driver.run(group.core._begin_of(group.held)) == 4
    assert group.news == ["group g has no offset in T/a/0 yet, and begins at 4"]


def test_when_all_queues_are_full_of_bytes_the_one_that_makes_room_starts_all():
    group = Group(Broker(queues=2), cache_bytes=4)
    group.fetch()
    other = next(held for held in group.core.held.values() if held.queue.queue_id == 1)
    other.is_pulling = False  # its loop has ended: there was no room
    group.finish(group.begin())
    assert other.is_pulling
    assert group.held.is_pulling


def test_messages_that_come_again_are_not_skipped_by_a_group_that_begins_at_the_end():
    group = Group(Broker(), begin="last")
    retries = next(held for held in group.core.held.values() if held.queue.topic == RETRY)
    group.broker.answers[14] = [answer(22)]
    assert group.driver.run(group.core._begin_of(retries)) == 0
    assert group.broker.codes()[-1] == 31


def test_a_condition_that_the_broker_refuses_ends_the_start():
    broker = Broker()
    broker.answers[46] = [answer(1, remark="does not support SQL92")]
    group = Group(broker)
    group.core.subscriptions["T"] = Subscription("T", sql="a > 1")
    with pytest.raises(RequestRefused, match="SQL92"):
        group.driver.run(group.core.start())


def test_a_broadcasting_consumer_has_all_queues_and_keeps_its_offsets():
    file = File()
    group = Group(Broker(members=[]), offsets=file)
    group.fetch()
    batch = group.begin()
    group.finish(batch, Outcome(batch.messages))
    group.driver.run(group.core.commit())
    assert file.offsets == {QUEUE: 1}
    assert not {36, 14, 15} & set(group.broker.codes())
    assert RETRY not in group.core.subscriptions


# --- in order


@pytest.fixture
def ordered():
    group = Group(Broker(), OrderedGroup, most_retries=2)
    group.fetch()
    return group


def test_one_batch_of_a_queue_is_handled_at_a_time(ordered):
    first = ordered.begin()
    assert ordered.begin() is None
    ordered.finish(first)
    assert ordered.begin().messages[0].queue_offset == 1


def test_what_failed_comes_again_after_a_rest_and_then_is_a_dead_letter(ordered):
    attempts = []
    for _ in range(2):
        batch = ordered.begin()
        attempts.append((batch.messages[0].queue_offset, batch.messages[0].attempt))
        ordered.finish(batch, outcome_of(Suspend(2.0), batch.messages))
        assert ordered.begin() is None
        tickets = len(ordered.tickets)
        ordered.driver.run(ordered.driver.started[-1])
        assert ordered.driver.slept[-1] == pytest.approx(2.0)
        assert len(ordered.tickets) == tickets + 1
    assert attempts == [(0, 1), (0, 2)]
    batch = ordered.begin()
    ordered.finish(batch, outcome_of(ValueError(), batch.messages))
    assert [fields["delayLevel"] for fields in ordered.broker.fields(36)] == ["-1"]
    assert ordered.begin().messages[0].queue_offset == 1


def of_together(effect):
    assert isinstance(effect, Together)
    return effect.procedures


def test_the_first_commit_of_a_topic_is_alone():
    """Apache's brokers make the table of a group in a topic with its first commit, and of several at once only one."""
    group = Group(Broker(queues=4))
    for held in group.core.held.values():
        held.position = 5

    def begun(commits):
        return [one.send(None) for one in commits]

    commits = of_together(group.core.commit().send(None))
    effects = begun(commits)
    asked = [one.request.ext_fields["topic"] for one in effects if isinstance(one, Call)]
    assert sorted(asked) == [RETRY, "T"]
    assert len(effects) == 8
    for steps, effect in zip(commits, effects, strict=True):
        if isinstance(effect, Call):
            with pytest.raises(StopIteration):
                steps.send(answer())
    rest = begun([steps for steps, effect in zip(commits, effects, strict=True) if isinstance(effect, Sleep)])
    assert all(isinstance(one, Call) for one in rest), "they are side by side from then on"


def test_a_commit_waits_for_the_one_before_it_and_writes_what_is_passed_then():
    """Brokers that answer side by side could take the older offset last."""
    group = Group(Broker())
    group.driver.run(group.core._commit_one(group.held, 0))
    group.held.position = 1
    before, last = group.core._commit_passed(group.held), group.core._commit_passed(group.held)
    assert before.send(None).request.ext_fields["commitOffset"] == "1"
    group.held.position = 2
    assert isinstance(last.send(None), Sleep)
    group.held.position = 3
    with pytest.raises(StopIteration):
        before.send(answer())
    assert last.send(None).request.ext_fields["commitOffset"] == "3"


def test_a_queue_that_was_given_up_meanwhile_is_not_committed_once_more():
    group = Group(Broker())
    group.driver.run(group.core._commit_one(group.held, 0))
    group.held.position = 1
    before, last = group.core._commit_one(group.held, 1), group.core._commit_passed(group.held)
    before.send(None)
    assert isinstance(last.send(None), Sleep)
    group.held.dropped = True
    for steps, outcome in ((before, answer()), (last, None)):
        with pytest.raises(StopIteration):
            steps.send(outcome)


def going_on(steps, effect):
    with contextlib.suppress(StopIteration):
        while True:
            effect = steps.send((yield effect))


@pytest.mark.parametrize("make", [PushGroup, OrderedGroup])
def test_a_consumer_that_leaves_in_a_reset_begins_there_next_time(make):
    group = Group(Broker(), make=make)
    group.fetch()
    batch = group.begin()
    reset = group.core.reset("T", {QUEUE: 1})
    assert isinstance(reset.send(None), Sleep)
    group.core.stop()
    group.finish(batch)
    leaving = group.core.leave(True)
    first = leaving.send(None)
    group.driver.run(reset)
    assert group.broker.commits() == [], "another member may have the queue by now"
    group.driver.run(going_on(leaving, first))
    assert group.broker.commits() == [1]
    if make is OrderedGroup:
        unlocked = [json.loads(request.body)["mqSet"] for code, request in group.broker.asked if code == 42]
        assert {"brokerName": "a", "queueId": 0, "topic": "T"} in unlocked[0]


def test_the_last_of_two_resets_counts():
    group = Group(Broker())
    group.fetch()
    batch = group.begin()
    first = group.core.reset("T", {QUEUE: 1})
    first.send(None)
    group.driver.run(group.core.reset("T", {QUEUE: 2}))
    assert group.broker.commits() == []
    group.finish(batch)
    group.driver.run(first)
    assert group.broker.commits() == [2]
    assert not group.core._resetting
    assert QUEUE in group.core.held


def test_a_dead_letter_that_no_broker_takes_keeps_its_place(ordered):
    ordered.broker.answers |= {36: [AWAY], 310: [AWAY]}
    batch = ordered.begin()
    ordered.finish(batch, Outcome(batch.messages, DEAD))
    assert ordered.held.passed == 0
    ordered.clock.now += 1.0
    assert ordered.begin().messages == batch.messages


def test_a_queue_that_another_member_has_locked_is_taken_later():
    broker = Broker()
    broker.owner = "another"
    group = Group(broker, OrderedGroup)
    assert not group.core.held
    assert not group.core._is_complete
    broker.owner = None
    group.driver.run(group.core.rebalance())
    assert QUEUE in group.core.held


def test_a_broker_that_does_not_lock_does_not_keep_other_queues_away():
    broker = Broker(queues=2)
    broker.answers[41] = [AWAY]
    group = Group(broker, OrderedGroup)
    assert MessageQueue("T", "a", 1) in group.core.held
    assert QUEUE not in group.core.held
    assert not group.core._is_complete
    group.driver.run(group.core.rebalance())
    assert QUEUE in group.core.held


def beside(subscribed):
    """A member of T with all tags beside two others, and what it does by itself from then on."""
    found = Broker(members=["you", "me", "they"], queues=3)
    found.subscribed = subscribed
    group = Group(found)
    (keeping,) = [one for one in group.driver.started if one.__name__ == "_keep_balanced"]
    return group, keeping


def pass_time(group, keeping, seconds):
    until = group.clock.now + seconds
    outcome = None
    while group.clock.now < until:
        outcome = group.driver._do(keeping.send(outcome))


def test_members_with_other_subscriptions_are_a_warning_at_the_start_and_no_second_one():
    group, keeping = beside({"T": "a || b", RETRY: "*", "U": "*"})
    asked = group.broker.codes()
    assert asked[asked.index(38) + 1] == 203, "before brokers keep what this member says"
    (warning,) = group.notes
    assert "T with 'a || b' there and '*' here, U with '*' there and nothing here." in warning
    assert "The others are they, you" in warning
    pass_time(group, keeping, 130.0)
    assert group.broker.codes().count(203) == 4
    assert group.notes == [warning]
    group.broker.subscribed = {"T": "*"}
    pass_time(group, keeping, 40.0)
    assert f"{RETRY} with nothing there and '*' here" in group.notes[1]


def test_members_with_the_same_subscriptions_are_no_news():
    group, keeping = beside({"T": "*", RETRY: "*"})
    pass_time(group, keeping, 130.0)
    assert group.broker.codes().count(203) == 4
    assert not group.notes


def test_the_only_member_compares_with_nobody():
    group = Group(Broker())
    (keeping,) = [one for one in group.driver.started if one.__name__ == "_keep_balanced"]
    pass_time(group, keeping, 100.0)
    assert 203 not in group.broker.codes()
    group.broker.members.append("they")
    group.broker.subscribed = {"T": "a", RETRY: "*"}
    group.driver.run(group.core.rebalance())
    pass_time(group, keeping, 2.0)
    assert len(group.notes) == 1


ODD = (
    b"", b"[]", b"{}", b'{"connectionSet":null,"subscriptionTable":{}}', b'{"connectionSet":[{"clientId":1}],'
    b'"subscriptionTable":{}}', b'{"connectionSet":[{"clientId":"they"}],"subscriptionTable":{"T":[]}}',
    b'{"connectionSet":[{"clientId":"they"}],"subscriptionTable":{"T":{"subString":1}}}',
)  # fmt: skip


@pytest.mark.parametrize("refusal", [answer(1), answer(3), answer(16), *(answer(body=body) for body in ODD)])
def test_a_broker_that_does_not_tell_what_others_subscribe_to_is_asked_once(refusal):
    group, keeping = beside({"T": "*", RETRY: "*"})
    group.broker.answers[203] = [refusal]
    group.broker.subscribed = {"T": "a"}
    pass_time(group, keeping, 130.0)
    assert group.broker.codes().count(203) == 2
    assert not group.notes


@pytest.mark.parametrize("passing", [answer(2), answer(206), AWAY])
def test_a_broker_that_cannot_tell_it_now_is_asked_again(passing):
    group, keeping = beside({"T": "*", RETRY: "*"})
    group.broker.answers[203] = [passing]
    group.broker.subscribed = {"T": "a", RETRY: "*"}
    pass_time(group, keeping, 90.0)
    assert group.broker.codes().count(203) == 3
    assert len(group.notes) == 1


def test_a_subscription_is_renewed_with_each_change_of_queues_once_others_are_compared_with():
    """Brokers keep the newest of each topic, of a member that has left, too."""
    broker = Broker(members=["me"], queues=2)
    group = Group(broker)
    group.clock.now += 60
    broker.members.append("they")
    broker.subscribed = {"T": "a", RETRY: "*"}
    asked = len(broker.asked)
    beats = []
    group.core._beat = lambda address, _: beats.append(len(broker.asked)) or no_beat(address, None)
    group.driver.run(group.core.rebalance())
    assert {one.version for one in group.core.member().subscriptions} == {group.clock.wall_ms()}
    assert beats
    assert broker.codes()[asked:].index(203) < beats[0] - asked
    assert group.core.subscriptions["T"].version == 0, "pulls ask for what does not change"


def test_queues_that_are_not_to_be_had_are_asked_for_again_soon():
    broker = Broker()
    broker.owner = "another"
    group = Group(broker, OrderedGroup)
    broker.owner = None
    keeping, outcome = group.core._keep_balanced(), None
    while len(group.core.held) < 2:
        outcome = group.driver._do(keeping.send(outcome))
    assert sum(group.driver.slept) == pytest.approx(1.0)
    slept = len(group.driver.slept)
    rebalances = broker.codes().count(38)
    while broker.codes().count(38) == rebalances:
        outcome = group.driver._do(keeping.send(outcome))
    assert sum(group.driver.slept[slept:]) == pytest.approx(20.0, abs=1.0)


def test_a_queue_is_unlocked_behind_the_handler_and_its_offset(ordered):
    batch = ordered.begin()
    ordered.broker.members = ["another", "me"]
    ordered.driver.run(ordered.core.rebalance())
    assert QUEUE not in ordered.core.held
    assert 42 not in [code for code, request in ordered.broker.asked if b'"topic":"T"' in request.body]
    ordered.broker.members = ["me"]
    ordered.driver.run(ordered.core.rebalance())
    assert QUEUE not in ordered.core.held  # until its handler is done
    ordered.finish(batch)
    assert ordered.broker.codes()[-2:] == [15, 42]
    assert ordered.broker.commits() == [1]
    assert ordered.core._bytes == 0


def test_the_end_of_a_handler_whose_queue_was_given_up_leaves_room_for_others():
    group = Group(Broker(), OrderedGroup, cache_bytes=1)
    group.fetch()
    batch = group.begin()
    group.core._drop_waiting(group.held)
    group.broker.members = ["another", "me"]
    group.core.subscriptions.pop(RETRY)  # that queue stays
    group.driver.run(group.core.rebalance())
    (retries,) = group.core.held.values()
    retries.is_pulling = False  # its loop has ended: there was no room
    group.core._is_stalled = True
    group.finish(batch, Outcome(batch.messages))
    assert retries.is_pulling


def test_without_a_fresh_lock_nothing_begins(ordered):
    ordered.clock.now += 31.0
    assert ordered.begin() is None
    ordered.broker.answers[41] = [AWAY]
    assert ordered.driver.run(ordered.core._renew()) is False
    assert ordered.begin() is None
    tickets = len(ordered.tickets)
    assert ordered.driver.run(ordered.core._renew()) is True
    assert len(ordered.tickets) == tickets + 1
    assert ordered.begin().messages[0].queue_offset == 0


def test_a_queue_whose_lock_is_lost_is_read_no_more(ordered):
    batch = ordered.begin()
    ordered.broker.owner = "another"
    ordered.driver.run(ordered.core._renew())
    assert not ordered.core.held
    ordered.finish(batch, Outcome(batch.messages, DEAD))
    assert not {15, 36} & set(ordered.broker.codes())


def test_a_queue_whose_lock_was_lost_is_taken_again_behind_its_handler(ordered):
    batch = ordered.begin()
    ordered.broker.owner = "another"
    ordered.driver.run(ordered.core._renew())
    ordered.broker.owner = None
    ordered.driver.run(ordered.core.rebalance())
    assert QUEUE not in ordered.core.held
    ordered.finish(batch)
    assert 15 not in ordered.broker.codes()
    ordered.driver.run(ordered.core.rebalance())
    assert QUEUE in ordered.core.held


def test_a_lock_that_was_lost_while_its_queue_ends_is_committed_by_its_owner(ordered):
    batch = ordered.begin()
    ordered.broker.members = ["another", "me"]
    ordered.driver.run(ordered.core.rebalance())
    ordered.broker.owner = "another"
    ordered.driver.run(ordered.core._renew())
    ordered.finish(batch)
    assert 15 not in [code for code, request in ordered.broker.asked if request.ext_fields.get("topic") == "T"]


def test_a_handler_that_goes_on_when_its_consumer_leaves_keeps_its_lock(ordered):
    def unlocked():
        return [b'"topic":"T"' in request.body for code, request in ordered.broker.asked if code == 42]

    batch = ordered.begin()
    ordered.core.stop()
    ordered.driver.run(ordered.core.leave(True))
    assert unlocked() == [False]
    ordered.finish(batch)
    assert unlocked() == [False, True]


def test_an_ordered_consumer_unlocks_what_it_has_when_it_leaves(ordered):
    ordered.core.stop()
    ordered.driver.run(ordered.core.leave(True))
    assert ordered.broker.codes()[-2:] == [42, 35]


# --- what exceptions say


@pytest.mark.parametrize(
    ("error", "level", "rest"),
    [
        (ValueError("x"), 0, 1.0),
        (Retry(), 0, 1.0),
        (Retry(level=7), 7, 1.0),
        (Retry(after=60), 5, 30.0),
        (Retry(after=61), 6, 30.0),
        (Retry(after=1e9), 18, 30.0),
        (Suspend(0), 0, 0.01),
        (Suspend(5), 0, 5.0),
    ],
)
def test_an_exception_says_when_the_message_comes_again(error, level, rest):
    outcome = outcome_of(error, ["a", "b"])
    assert (outcome.failed, outcome.level, outcome.rest_s) == (["a", "b"], level, rest)


def test_a_part_of_a_batch_may_come_again():
    assert outcome_of(Retry(messages=["b"]), ["a", "b"]).failed == ["b"]


def test_locks_are_read_with_care():
    from appliance.client.core.rebalance import read_locked
    from appliance.client.errors import BadAnswer

    body = requests.lock("g", "me", [QUEUE]).body.replace(b"mqSet", b"lockOKMQSet")
    assert read_locked(body) == {QUEUE}
    for wrong in (b"", b"[]", b'{"lockOKMQSet":[1]}', b'{"lockOKMQSet":[{"topic":"T"}]}'):
        with pytest.raises(BadAnswer):
            read_locked(wrong)


def test_a_broker_that_is_away_is_asked_again_at_once_and_then_less_and_less_often():
    broker = Broker()
    group = Group(broker)
    broker.answers[11] = [AWAY] * 12
    group.driver.slept.clear()
    group.fetch()
    pauses = [0.01 * 2**step for step in range(7)] + [1.0] * 5
    assert len(group.driver.slept) >= len(pauses)
    for slept, most in zip(group.driver.slept, pauses, strict=False):
        assert most / 2 <= slept <= most
    assert group.held.position == 4


def test_the_next_pull_goes_out_before_the_messages_of_the_last_are_handled():
    group = Group(Broker())
    group.fetch()
    assert [fields["queueOffset"] for fields in group.broker.fields(11) if fields["topic"] == "T"][:2] == ["0", "4"]
    assert len(group.held.messages) == 4


def test_offsets_that_have_not_moved_are_committed_once_a_minute(fetched):
    for batch in fetched.begin(4):
        fetched.finish(batch)
    loop, outcome, rounds = fetched.core.keep_committed(5.0), None, []
    while len(rounds) <= 24:
        effect = loop.send(outcome)
        if isinstance(effect, Sleep):
            rounds.append(fetched.broker.commits().count(4))
        outcome = fetched.driver._do(effect)
    assert [number for number in range(1, 25) if rounds[number] > rounds[number - 1]] == [1, 12, 24]
