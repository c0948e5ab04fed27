"""What brokers learn of a client."""

import json

import pytest

from appliance.client.core.client_core import ClientCore
from appliance.client.core.directory import Directory
from appliance.client.core.pull_group import PullGroup
from appliance.client.core.requests import Member, Subscription
from appliance.client.core.steps import CallFailed
from appliance.client.wire import RequestCode
from appliance.engine.broker.heartbeat import MAX_BODY_BYTES
from tests.support.client_steps import Driver, SetClock, answer, route


class Left:
    """A group that says whether it has left."""

    def __init__(self, name, is_closed):
        self.name, self.is_closed, self.is_joining = name, is_closed, False

    def member(self):
        return Member(self.name)


class Cluster:
    """A name server and a broker that keeps the groups which heartbeats name. busy: heartbeats that it has no time
    for."""

    def __init__(self):
        self.groups, self.producers, self.bytes, self.busy, self.codes = [], [], [], 0, []

    def __call__(self, call):
        request = call.request
        self.codes.append(request.code)
        match request.code:
            case RequestCode.GET_ROUTEINFO_BY_TOPIC:
                return answer(body=route("a"))
            case RequestCode.GET_CONSUMER_LIST_BY_GROUP:
                is_known = request.ext_fields["consumerGroup"] in self.groups
                return answer(body=json.dumps({"consumerIdList": ["me"] if is_known else []}).encode())
            case RequestCode.HEART_BEAT:
                self.bytes.append(len(request.body))
                if self.busy:
                    self.busy -= 1
                    return answer(2, remark="busy")
                if len(request.body) > MAX_BODY_BYTES:
                    return answer(1, remark="too long")
                said = json.loads(request.body)
                self.groups += [one["groupName"] for one in said["consumerDataSet"]]
                self.producers += [one["groupName"] for one in said["producerDataSet"]]
                return answer()
        raise AssertionError(request.code)


def core_of(cluster):
    clock = SetClock()
    directory = Directory(["ns:9876"], clock, 3.0)
    core = ClientCore(directory, clock, "me", 3.0, note=lambda text: core.notes.append(text))
    core.notes = []
    return core, Driver(cluster, clock)


def start(core, driver, count):
    """Start so many consumers one after the other, each of a group of its own."""
    for number in range(count):
        group = PullGroup(f"g{number}", core.surroundings, begin="first", wake=lambda: None, cache=10)
        group.subscriptions["T"] = Subscription("T")
        driver.run(core.join(group, group.start(), None))
        assert len(group.held) == 4, "a member when its start has ended"


def test_a_heartbeat_names_no_group_that_has_left():
    clock, told = SetClock(), []
    directory = Directory(["ns:9876"], clock, 3.0)
    core = ClientCore(directory, clock, "me", 3.0, note=lambda text: None)
    core.groups |= {name: Left(name, name == "left") for name in ("left", "stays")}
    driver = Driver(lambda call: told.append(json.loads(call.request.body)) or answer(), clock)
    driver.run(core.beat("a:10911"))
    assert [one["groupName"] for one in told[0]["consumerDataSet"]] == ["stays"]


def test_the_starts_of_many_consumers_ask_and_send_in_proportion_to_their_number():
    asked, sent = [], []
    for count in (20, 200):
        cluster = Cluster()
        start(*core_of(cluster), count)
        assert sorted(cluster.groups) == sorted(f"g{number}" for number in range(count)), "each was named, and once"
        asked.append(len(cluster.codes))
        sent.append(sum(cluster.bytes))
    assert asked[1] <= 10 * asked[0]
    assert sent[1] < 11 * sent[0], "names of more digits are a little longer"


def test_a_heartbeat_of_very_many_groups_is_sent_in_parts_that_brokers_read():
    cluster = Cluster()
    core, driver = core_of(cluster)
    groups = [f"group-{number:04}" for number in range(1999)]
    producers = [f"producer-{number:04}" for number in range(1000)]
    core.groups |= {name: Left(name, False) for name in groups}
    core.producers |= set(producers)
    driver.run(core.beat("a:10911"))
    assert (sorted(cluster.groups), sorted(cluster.producers)) == (groups, producers)
    assert not core.notes
    assert 1 < len(cluster.bytes) < 8


def test_the_parts_of_a_heartbeat_name_no_group_that_leaves_meanwhile():
    cluster = Cluster()
    core, driver = core_of(cluster)
    names = [f"group-{number:04}" for number in range(1500)]
    core.groups |= {name: Left(name, False) for name in names}
    parts = []

    def leaves_behind_the_first(call):
        parts.append(call)
        core.groups[names[-1]].is_closed = True
        return cluster(call)

    driver._cluster = leaves_behind_the_first
    driver.run(core.beat("a:10911"))
    assert len(parts) > 1
    assert cluster.groups == names[:-1]


def test_a_heartbeat_names_no_producer_that_leaves_between_its_parts_or_while_the_broker_is_busy():
    cluster = Cluster()
    cluster.busy = 1
    core, driver = core_of(cluster)
    names = [f"{'n' * 200}-{number:04}" for number in range(1000)]
    core.producers |= set(names)
    requests = []

    def leave_behind(call):
        requests.append(call)
        core.producers -= {names[0], names[-1]}
        return cluster(call)

    driver._cluster = leave_behind
    driver.run(core.beat("a:10911"))
    assert len(requests) > 2
    assert cluster.producers == names[1:-1]


def test_a_heartbeat_of_parts_ends_with_the_connection():
    core, driver = core_of(lambda call: CallFailed("lost", "it is gone"))
    core.groups |= {name: Left(name, False) for name in (f"group-{number:04}" for number in range(1500))}
    driver.run(core.beat("a:10911"))
    assert len(driver.calls) == 1, "a new connection begins with a heartbeat of its own"


@pytest.mark.parametrize(("busy", "notes"), [(3, 0), (1000, 1)])
def test_a_heartbeat_that_a_broker_has_no_time_for_is_sent_again(busy, notes):
    cluster = Cluster()
    cluster.busy = busy
    core, driver = core_of(cluster)
    core.groups["g"] = Left("g", False)
    driver.run(core.beat("a:10911"))
    assert (cluster.groups, len(core.notes)) == ([] if notes else ["g"], notes)
    assert sum(driver.slept) < 3.0
    assert max(driver.slept) <= 0.5


def test_routes_that_come_or_stay_move_no_group():
    """A topic that is looked up while all of them are read again is no change: its consumer has just begun."""
    cluster = Cluster()
    core, driver = core_of(cluster)
    start(core, driver, 3)
    refreshing = core.directory.refresh()
    effect = next(refreshing)
    core.directory._routes["new"] = core.directory.known("T")
    with pytest.raises(StopIteration) as end:
        refreshing.send(driver._do(effect))
    assert end.value.value == set()


def test_a_changed_route_moves_the_groups_that_read_its_topic_alone():
    cluster = Cluster()
    core, driver = core_of(cluster)
    start(core, driver, 2)
    core.groups["g1"].subscriptions = {"U": Subscription("U")}
    moved = []
    for name, group in core.groups.items():
        group.rebalance = lambda name=name: moved.append(name) or iter(())
    driver._cluster = lambda call: answer(body=route("a", queues=8))
    keeping = core._keep_routes()
    outcome = None
    for _ in range(3):  # it sleeps, reads, and starts what has to be
        outcome = driver._do(keeping.send(outcome))
    keeping.close()
    assert moved == ["g0"]


def test_heartbeats_and_routes_are_asked_for_side_by_side_and_one_that_fails_keeps_no_other():
    clock, asked = SetClock(), []
    directory = Directory(["ns:9876"], clock, 3.0)

    def cluster(call):
        topic = call.request.ext_fields.get("topic")
        asked.append(call.address if topic is None else topic)
        if call.request.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return CallFailed("timeout", "no answer in time") if call.address == "a:10911" else answer()
        return CallFailed("timeout", "no answer in time") if is_away and topic == "T1" else answer(body=routes[topic])

    core, driver = ClientCore(directory, clock, "me", 3.0, note=lambda text: None), Driver(cluster, clock)
    core.producers.add("p")
    is_away, routes = False, {"T1": route("a"), "T2": route("b"), "T3": route("c")}
    for topic in routes:
        driver.run(directory.look_up(topic, clock.now + 3.0))
    asked.clear()
    (together,) = list(core.beat_all())
    assert len(together.procedures) == 3
    driver._do(together)
    assert asked == ["a:10911", "b:10911", "c:10911"]
    is_away, routes["T3"] = True, route("c", queues=8)
    assert driver.run(directory.refresh()) == {"T3"}
    assert len(directory.known("T1").read_queues("T1")) == 4
