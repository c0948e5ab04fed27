"""Messages that wait for others, against a scripted cluster."""

import contextlib
import gc
import itertools
import weakref

import pytest

from appliance.client.core.directory import Directory
from appliance.client.core.parcels import FULL_BYTES, Member, Parcels
from appliance.client.core.selection import Faults
from appliance.client.core.send_plan import Sending
from appliance.client.core.steps import CallFailed
from appliance.client.errors import NoRoute, Refused, SendError, StoredUnconfirmed
from tests.client.core.test_batches import members_of
from tests.support.client_steps import Driver, SetClock, answer, route

LINGER = 0.005


class Scene:
    """Parcels of a producer with one broker. answers: to sends, in order. became: by message, its result or error."""

    def __init__(self, *answers):
        self.clock = SetClock()
        self.driver = Driver(self.cluster, self.clock)
        self.answers = list(answers)
        self.sends = []
        self.begun = []
        self.became = {}
        #: (Topic, keys, number of those that failed) of each parcel.
        self.landed = []
        directory = Directory(["ns:9876"], self.clock, 3.0)
        keys = itertools.count()
        sending = Sending(directory, self.clock, Faults(), 0, 2, lambda address: iter(()))
        run = lambda procedure, done: self.begun.append((procedure, done))  # noqa: E731
        landed = lambda *landed: self.landed.append(landed)  # noqa: E731
        new_key = lambda: f"B{next(keys)}"  # noqa: E731
        post = lambda act: act() or True  # noqa: E731
        self.parcels = Parcels("g", sending, LINGER, run, post, new_key, landed, contextlib.nullcontext())

    def cluster(self, call):
        if call.address == "ns:9876":
            return answer(body=route("a"))
        self.sends.append(call.request)
        return self.answers.pop(0)

    def put(self, key, topic="T", body=b"x", shard=None, seconds=3.0):

        def done(result, error):
            assert key not in self.became
            self.became[key] = error or result

        member = Member(key, body, f"UNIQ_KEY\x01{key}\x02", done, key != "c")
        self.parcels.put(topic, shard, member, self.clock.now + seconds, [])
        self.parcels.begin()

    def go(self):
        """Run what was begun, the latest first: the one that waits comes after the one that was full."""
        while self.begun:
            procedure, done = self.begun.pop()
            try:
                result = self.driver.run(procedure)
            except BaseException as error:
                done(None, error)
            else:
                done(result, None)

    def bodies(self):
        return [(one.code, [body for body, _ in members_of(one.body)] if one.code == 320 else one.body)
                for one in self.sends]  # fmt: skip


def close_all(scene):
    scene.parcels.close_all()
    scene.parcels.begin()


def stored(offset=7, ids="A1,A2,A3", code=0):
    return answer(code, msgId=ids, queueId=1, queueOffset=offset, transactionId="B0")


def test_messages_of_a_topic_leave_together_after_their_time():
    scene = Scene(stored(), stored(3, "A9"))
    for key in "abc":
        scene.put(key, body=key.encode())
    scene.put("d", topic="U", body=b"d")
    scene.go()
    assert scene.driver.slept == pytest.approx([LINGER, LINGER])
    assert sorted(scene.bodies(), key=str) == [(310, b"d"), (320, [b"a", b"b", b"c"])]


def test_each_message_has_its_place():
    scene = Scene(stored())
    for key in "abc":
        scene.put(key)
    scene.go()
    assert {key: (one.message_id, one.offset_id, one.queue_offset) for key, one in scene.became.items()} == {
        "a": ("a", "A1", 7),
        "b": ("b", "A2", 8),
        "c": ("c", "A3", 9),
    }


def test_a_full_parcel_does_not_wait():
    scene = Scene(stored(), stored(9))
    half = bytes(FULL_BYTES // 2 - 100)
    for key in "abc":
        scene.put(key, body=half)
    assert len(scene.begun) == 3, "the first waits, is full, and the next waits"
    scene.go()
    assert [len(bodies) for _, bodies in scene.bodies()] == [len(half), 2]
    assert set(scene.became) == set("abc")


def test_shards_do_not_travel_together():
    scene = Scene(stored(), stored())
    scene.put("a", shard=1)
    scene.put("b", shard=2)
    scene.put("c", shard=1)
    scene.go()
    assert sorted(code for code, _ in scene.bodies()) == [310, 320]


def test_a_flush_does_not_wait():
    scene = Scene(stored())
    scene.put("a")
    scene.put("b")
    close_all(scene)
    scene.go()
    assert set(scene.became) == {"a", "b"}
    assert len(scene.sends) == 1
    close_all(scene)
    assert not scene.begun, "no parcel is open"


def test_a_message_that_the_broker_does_not_take_is_alone_in_that():
    scene = Scene(answer(13, remark="too long"), stored(1, "A1"), answer(13, remark="too long"), stored(2, "A2"))
    for key in "abc":
        scene.put(key)
    scene.go()
    assert [scene.became[key].queue_offset for key in "ac"] == [1, 2]
    assert isinstance(scene.became["b"], Refused)
    assert scene.became["b"].message_id == "b"
    [(topic, members, failed)] = scene.landed
    assert (topic, [one.key for one in members], failed) == ("T", ["a", "b"], 1), "what is counted by itself is not"


def test_what_may_be_stored_is_not_sent_again_one_by_one():
    scene = Scene(CallFailed("lost", "it broke"), *[answer(13, remark="too long")] * 2)
    scene.put("a")
    scene.put("b")
    scene.go()
    assert [(one.maybe_stored, one.message_id) for one in scene.became.values()] == [(True, "a"), (True, "b")]
    assert [failed for _, _, failed in scene.landed] == [2]
    assert len(scene.sends) == 2


def test_each_error_is_of_its_own_message():
    scene = Scene(stored(code=12))
    scene.put("a")
    scene.put("b")
    scene.go()
    assert all(isinstance(one, StoredUnconfirmed) for one in scene.became.values())
    assert [(one.message_id, one.result.message_id, one.result.queue_offset) for one in scene.became.values()] == [
        ("a", "a", 7),
        ("b", "b", 8),
    ]


def test_messages_of_a_client_that_closes_have_its_error():
    scene = Scene()
    scene.put("a")
    procedure, done = scene.begun.pop()
    procedure.send(None)
    with pytest.raises(SendError, match="closed"):
        procedure.throw(SendError("closed"))
    done(None, SendError("closed"))
    assert str(scene.became["a"]) == "closed"
    close_all(scene)
    assert not scene.begun, "no parcel is open"


def test_a_signal_as_the_time_of_a_parcel_comes_that_has_gone_is_told_to_its_thread_alone():
    scene = Scene(stored())
    scene.put("a")
    waits, ended = scene.begun.pop()
    next(waits)
    close_all(scene)
    with pytest.raises(KeyboardInterrupt):
        waits.throw(KeyboardInterrupt)
    ended(None, KeyboardInterrupt())
    assert not scene.became, "it is on its way"
    scene.go()
    assert scene.became["a"].queue_offset == 7


def test_a_message_with_less_time_takes_none_from_others():
    scene = Scene(stored(), stored())
    scene.put("a")
    scene.put("b", seconds=LINGER)
    scene.go()
    assert [code for code, _ in scene.bodies()] == [310, 310]
    assert sorted(scene.driver.slept) == pytest.approx([LINGER / 2, LINGER]), "and half of it is for the broker"


def test_parcels_leave_in_order_though_another_thread_begins_the_first():
    scene = Scene(*[stored()] * 3)
    run, others = scene.parcels._run, [lambda: scene.put("c", shard=1, body=b"c"), lambda: close_all(scene)]

    def late(procedure, done):
        """Other threads put further messages, and flush, before this one begins the first parcel."""
        if procedure.__name__ == "_send" and others:
            others.pop(0)()
            others.pop(0)()
        run(procedure, done)

    scene.parcels._run = late
    scene.put("a", shard=1, body=b"a")
    scene.put("b", shard=1, body=bytes(FULL_BYTES - 10))
    for procedure, _ in scene.begun:
        if procedure.__name__ == "_send":
            scene.driver.run(procedure)
    assert [len(body) for _, body in scene.bodies()] == [1, FULL_BYTES - 10, 1]


def test_a_route_that_goes_while_messages_are_sent_one_by_one_is_the_error_of_the_rest_only():
    scene = Scene(answer(13, remark="too long"), stored(1, "A1"))
    send = scene.parcels._sending.send

    def sending(envelope, deadline):
        if envelope.message_id == "b":
            raise NoRoute("gone")
        return (yield from send(envelope, deadline))

    scene.parcels._sending.send = sending
    scene.put("a")
    scene.put("b")
    scene.go()
    assert scene.became["a"].queue_offset == 1
    assert isinstance(scene.became["b"], NoRoute)


def test_a_parcel_whose_time_has_come_leaves_in_its_turn():
    scene = Scene(stored(ids="A1,A2"))
    scene.put("a")
    scene.put("b")
    [(waits, _)] = scene.begun
    scene.begun.clear()
    scene.parcels._is_beginning = True  # by a thread that sends an earlier one
    scene.driver.run(waits)
    assert scene.begun == []
    scene.parcels._is_beginning = False
    scene.parcels.begin()
    scene.go()
    assert [scene.became[key].queue_offset for key in "ab"] == [7, 8]


def test_a_parcel_that_has_gone_keeps_no_messages_while_its_time_passes():
    scene = Scene(stored())

    def done(result, error):
        pass

    gone = weakref.ref(done)
    scene.parcels.put("T", None, Member("a", b"x", "", done, True), scene.clock.now + 3.0, [])
    scene.parcels.begin()
    [(waits, _)] = waiting = scene.begun[:]
    assert next(waits)
    scene.begun.clear()
    close_all(scene)
    scene.go()
    scene.landed.clear()
    del done
    gc.collect()
    assert waiting
    assert gone() is None
