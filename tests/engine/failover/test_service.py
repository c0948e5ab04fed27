"""The thread `failover`, with a fake store, files and brokers: turns, acts, failures, wishes."""

from __future__ import annotations

import re
import time

import pytest

from appliance.engine.failover import service as services
from appliance.engine.failover.decision import Rules, Wish
from appliance.engine.failover.invariants import InvariantBroken
from appliance.engine.failover.leader_store import StoreUnavailable
from appliance.engine.failover.service import FailoverService
from appliance.engine.failover.set_state import SetState, decode_announcement, decode_state, encode
from tests.engine.failover.fakes import FakeBrokers, FakeFiles, FakeStore
from tests.support.memory_store import MemoryCluster, MemoryStore
from tests.support.waiting import wait_for

ROOT = "/rocketbox/set"


class Member:
    def __init__(self, store: FakeStore, network: dict, uuid: str, **rules) -> None:
        self.settings: dict[str, str] = rules.pop("settings", {})
        self.files = FakeFiles(uuid)
        self.brokers = FakeBrokers(network, self.files)
        self.store, self.rules = store, Rules("set", uuid, **{"elect_after": 0.8, "beat_interval": 0.2, **rules})
        self.begin()

    def begin(self) -> None:
        uuid = self.files.uuid
        self.service = FailoverService(
            lambda: self.store, ROOT, self.files, self.brokers, self.rules, f"{uuid}:1", f"{uuid}:2", "1.0",
            settings=lambda: self.settings,
        )  # fmt: skip
        self.service.start()

    @property
    def status(self):
        return self.service.status

    def leads(self, isr: int = 1) -> bool:
        state = self.status.state
        return self.status.role == "leader" and state is not None and len(state.isr) == isr


@pytest.fixture
def store():
    return FakeStore()


@pytest.fixture
def members(store):
    """Make the next member of one set."""
    network: dict[str, FakeBrokers] = {}
    made: list[Member] = []

    def make(**rules) -> Member:
        made.append(Member(store, network, f"uuid{len(made)}", bootstrap=not made, **rules))
        return made[-1]

    yield make
    assert all(member.service.alive or member.service.stopped for member in made), "nothing ends the thread"
    for member in made:
        assert member.service.stop()


def state_of(store: FakeStore) -> SetState:
    return decode_state(store.keys[f"{ROOT}/state"][0])


def test_a_store_that_fails_from_the_start_is_told_of_with_its_reason(store, members, caplog):
    caplog.set_level("INFO")
    store.down = True
    member = members()
    wait_for(lambda: "failover: the leader store fails: the store is down" in caplog.text, "the log says why")
    store.down = False
    wait_for(member.leads, "it leads")
    assert "failover: the leader store answers" in caplog.text
    assert caplog.text.count("the leader store fails") == 1


def test_a_store_that_takes_no_writes_does_not_pass_for_one_that_answers(store, members, monkeypatch, caplog):
    caplog.set_level("INFO")
    leader = members()
    wait_for(leader.leads, "the first leads")
    follower = members(elect_after=3600.0)
    wait_for(lambda: leader.leads(2), "the second is in sync")

    def full(*args):
        raise StoreUnavailable("database space exceeded")

    with monkeypatch.context() as patch:
        patch.setattr(store, "swap", full)
        patch.setattr(store, "put", full)
        wait_for(lambda: leader.status.why == "the leader store takes no writes", "the leader says so")
        follower.service._announced_at -= 3600
        wait_for(lambda: not follower.status.store_ok, "the follower knows it")
        for _ in range(3):
            read_at = follower.status.read_at
            wait_for(lambda at=read_at: follower.status.read_at > at, "it reads on")
            for member in (leader, follower):
                assert not member.status.store_ok
                assert member.status.store_why == "database space exceeded"
        assert "failover: the leader store fails: database space exceeded" in caplog.text
        assert not re.search("does not answer|the leader store answers", caplog.text)
    follower.service._announced_at -= 3600
    for member in (leader, follower):
        wait_for(lambda member=member: member.status.store_ok, "it takes them again")
    assert caplog.text.count("failover: the leader store answers") == 2


def test_members_whose_settings_contradict_are_told_of_once(members, caplog):
    first = members(settings={"brokerRole": "SYNC_MASTER", "flushDiskType": "SYNC_FLUSH", "brokerName": "b"})
    wait_for(first.leads, "the first leads")
    second = members(settings={"brokerRole": "ASYNC_MASTER", "flushDiskType": "SYNC_FLUSH", "brokerName": "b"})
    told = "member=uuid0:1 uuid=uuid0 has other settings than this one, and would lead by them: brokerRole=SYNC_MASTER "
    wait_for(lambda: told in caplog.text, "the second says so")
    assert "(here ASYNC_MASTER)" in caplog.text
    assert "flushDiskType" not in caplog.text
    for _ in range(3):
        second.service._tell_contradictions()
    assert caplog.text.count(told) == 1


def two(members, **rules) -> tuple[Member, Member]:
    first = members(**rules)
    wait_for(first.leads, "the first leads")
    second = members(**rules)
    wait_for(lambda: first.leads(2), "the second is in sync")
    return first, second


def test_a_slow_member_is_left_out_named_and_announced(store, members, monkeypatch, caplog):
    first, second = two(members)
    quick = first.brokers.members
    late = [True]

    def reports():
        return [one._replace(took_s=1.2, late_s=20.0) if late[0] else one for one in quick()]

    monkeypatch.setattr(first.brokers, "members", reports)
    wait_for(lambda: first.leads(1), "it is left out")
    assert first.status.slow == {"uuid1": 1200}
    assert "member=uuid1 peer=" in caplog.text
    assert "takes 1200 ms to acknowledge" in caplog.text
    wait_for(lambda: first.brokers.awaited == frozenset(), "it is not waited for")
    wait_for(lambda: second.status.announced["uuid0"].slow == {"uuid1": 1200}, "the others know")
    assert second.status.stream.leader == "uuid0", "it goes on copying"


def test_a_store_that_runs_out_of_room_is_told_of_once(store, members, monkeypatch, caplog):
    caplog.set_level("INFO")
    store.shortage = lambda: "the database has 85% of its quota"
    member = members()
    wait_for(lambda: member.status.shortage, "it is known")
    assert member.status.store_ok
    for said, times in (("leader store: the database has 85% of its quota", 1), ("it has room again", 0)):
        member.service._room_at -= 3600
        member.service._look_for_room()
        assert caplog.text.count(said) == times
    store.shortage = lambda: ""
    member.service._room_at -= 3600
    member.service._look_for_room()
    assert "it has room again" in caplog.text


def test_a_set_begins_and_grows(store, members):
    first, second = two(members, elect_after=60.0)  # however late one of the threads is
    assert first.brokers.awaited == {"uuid1"} == first.status.awaited
    assert state_of(store).leader.uuid == "uuid0"
    wait_for(lambda: second.status.role == "in-sync", "the second knows it")
    assert (first.files.slot, second.files.slot) == (1, 2)
    wait_for(lambda: set(first.status.announced) == {"uuid0", "uuid1"}, "members announce themselves")
    said = decode_announcement(store.keys[f"{ROOT}/member/uuid1"][0])
    assert (said.addr, said.ha, said.slot) == ("uuid1:1", "uuid1:2", 2)
    beat = state_of(store).beat
    wait_for(lambda: state_of(store).beat > beat + 2, "it beats")
    assert first.status.store_ok
    assert first.status.won == 1
    assert [entry.epoch for entry in first.files.epochs] == [1] == [first.files.seen]


def test_the_second_leads_when_the_first_is_gone(store, members):
    first, second = two(members)
    first.service.stop()
    first.brokers.running = False
    wait_for(lambda: second.leads(1), "the second leads")
    assert state_of(store).epoch == 2
    assert second.brokers.done.index("close_stream") < second.brokers.done.index("lead")
    # Back again, it follows.
    first.brokers.running, first.brokers.role = True, "fenced"
    first.begin()
    wait_for(lambda: second.leads(2), "the first is in sync again")
    assert first.files.seen == 2


def test_a_switch(store, members):
    first, second = two(members)
    answer = first.service.ask(Wish("switch", "uuid1"), 60.0)
    assert answer is not None
    assert answer.done, answer.why
    wait_for(lambda: second.leads(2), "the second leads, the first follows")
    assert "drain" in first.brokers.done
    assert first.brokers.done[-1] == "relay_to"
    refused = first.service.ask(Wish("switch", "uuid1"), 60.0)
    assert refused is not None
    assert not refused.done or state_of(store).leader.uuid == "uuid1"


def test_a_switch_to_nobody_is_refused(members):
    first = members()
    wait_for(first.leads, "the first leads")
    answer = first.service.ask(Wish("switch", "uuid7"), 60.0)
    assert answer is not None
    assert not answer.done
    assert "not in sync" in answer.why


def test_who_stops_resigns(store, members):
    first, second = two(members)
    answer = first.service.ask(Wish("resign"), 60.0)
    assert answer is not None
    assert answer.done
    assert first.brokers.role == "fenced"
    wait_for(lambda: second.leads(1), "the second leads")
    wait_for(lambda: not first.service.alive, "the thread ends")
    assert "resigned" in state_of(store).elections[-1].why


def test_a_wish_that_nobody_can_fulfil_is_withdrawn(store, members):
    first, _second = two(members)
    store.down = True
    wait_for(lambda: "takes no writes" in first.status.why, "a beat is unknown")
    assert first.service.ask(Wish("resign"), 0.3) is None
    store.down = False
    beat = state_of(store).beat
    wait_for(lambda: state_of(store).beat > beat + 3, "it beats on")
    assert "drain" not in first.brokers.done
    assert first.leads(2)


def test_who_was_half_drained_resigns_although_the_wish_was_withdrawn(members):
    first, second = two(members)
    drain = first.brokers.drain

    def half(deadline_s: float) -> bool:
        first.brokers.drain = drain
        first.service._wish = None  # as one that asks for a moment withdraws it
        first.service._answered.set()
        raise OSError("drain failed")

    first.brokers.drain = half
    assert first.service.ask(Wish("resign"), 60.0) is None
    wait_for(lambda: "lead" in second.brokers.done or first.brokers.done.count("lead") > 1, "another epoch begins")


@pytest.mark.parametrize("act", ["close_stream", "lead"])
def test_an_act_that_fails_is_done_later(members, act):
    network: dict[str, FakeBrokers] = {}
    member = Member(FakeStore(), network, "uuid0", bootstrap=False)
    member.brokers.fails[act] = 3
    member.service.stop()
    member.rules = member.rules._replace(bootstrap=True)
    member.begin()
    try:
        wait_for(member.leads, "it leads at last")
        assert [entry.epoch for entry in member.files.epochs] == [1]
        assert member.brokers.fails[act] == 0
    finally:
        assert member.service.alive
        member.service.stop()


def test_a_follow_that_fails_is_tried_again(members):
    first = members()
    wait_for(first.leads, "the first leads")
    second = members()
    second.brokers.fails["follow"] = 2
    wait_for(lambda: first.leads(2), "the second is in sync")


@pytest.mark.parametrize("error", [RuntimeError("of its own kind"), MemoryError()])
def test_a_store_that_fails_oddly_ends_nothing(store, members, error):
    first, _second = two(members, elect_after=60.0)
    beat = state_of(store).beat
    store.broken = error
    wait_for(lambda: store.broken is None, "it was met")
    wait_for(lambda: first.leads(2) and state_of(store).beat > beat + 2, "it beats on")
    assert state_of(store).epoch == 1


def test_an_answer_that_was_lost_is_no_other_election(store, members):
    store.lose = 4
    first = members(elect_after=60.0)
    wait_for(first.leads, "it leads")
    wait_for(lambda: store.lose == 0, "answers were lost, of the slot and of the key")
    beat = state_of(store).beat
    wait_for(lambda: state_of(store).beat > beat + 1, "it beats")
    assert state_of(store).epoch == 1
    assert first.files.slot == 1


def test_a_refused_decision_fences_and_ends_nothing(store, members, monkeypatch):
    first, _second = two(members)
    real, refused = services.decide, []

    def decide(memory, now, sight, rules):
        if rules.uuid == "uuid0" and not refused:
            refused.append(memory)
            raise InvariantBroken("I2: planted")
        return real(memory, now, sight, rules)

    monkeypatch.setattr(services, "decide", decide)
    wait_for(lambda: "fence" in first.brokers.done, "it is fenced")
    wait_for(lambda: any(entry.epoch == 2 for entry in first.files.epochs), "its next epoch is another one")


def test_a_key_that_is_not_understood_freezes(store, members):
    store.write(f"{ROOT}/state", b"not json")
    first = members()
    wait_for(lambda: first.status.role == "frozen", "it waits for the operator")
    assert "not this set's" in first.status.why


def test_another_store_freezes_who_follows(store, members):
    first, second = two(members)
    wait_for(lambda: second.status.announced, "it knows its store")
    store.name = "two"
    wait_for(lambda: second.status.role == "frozen", "another cluster is not believed")
    assert first.status.role == "leader"


def test_a_wiped_store_is_adopted(store, members):
    first, second = two(members)
    with store.changed:
        del store.keys[f"{ROOT}/state"]
    wait_for(lambda: second.status.role == "frozen", "the follower freezes")
    wait_for(lambda: "adopt" in first.status.why, "the leader says what is to do")
    assert first.brokers.role == "leader"
    answer = first.service.ask(Wish("adopt"), 60.0)
    assert answer is not None
    assert answer.done, answer.why
    wait_for(lambda: first.leads(2), "both are back")
    assert state_of(store).epoch == 2


def test_a_higher_epoch_met_in_a_handshake_ends_a_reign(members):
    first = members()
    wait_for(first.leads, "it leads")
    first.service.met_epoch(7)
    wait_for(lambda: first.brokers.role == "fenced", "nothing is published any more")
    assert first.files.seen == 7
    wait_for(lambda: first.status.role == "frozen", "its key is older than what it met")


def test_an_asynchronous_leader_may_release_up_to_its_deadline(store, members):
    first = members(synchronous=False)
    wait_for(first.leads, "it leads")
    assert first.service.release_until == float("inf"), "nobody else may be elected"
    second = members(synchronous=False)
    wait_for(lambda: first.leads(2), "the second is in sync")
    until = first.service.release_until
    assert until < time.clock_gettime(time.CLOCK_BOOTTIME) + 0.8
    wait_for(lambda: first.service.release_until > time.clock_gettime(time.CLOCK_BOOTTIME), "it may release now")
    assert second.service.release_until < until
    store.down = True
    wait_for(lambda: first.brokers.role == "fenced", "past it, it is silent")
    assert first.service.release_until < time.clock_gettime(time.CLOCK_BOOTTIME)
    store.down = False
    wait_for(lambda: first.leads(2) or second.leads(2), "one leads again")


def test_keys_of_hostile_members_are_passed_over(store, members):
    store.write(f"{ROOT}/member/odd", b"{")
    for number in range(400):
        store.write(f"{ROOT}/member/x{number}", encode(state_like(number)))
    first = members()
    wait_for(lambda: first.status.announced, "it reads the others")
    assert len(first.status.announced) <= 128


def state_like(number: int):
    from appliance.engine.failover.set_state import Announcement

    return Announcement(uuid=f"x{number}", slot=1, addr="", ha="", version="", role="follower", seen=0, log_end=0)


def test_an_old_copy_of_a_members_directory_joins_as_a_new_member_and_does_not_lead(store, members, caplog):
    """It is in sync by the key, with a log as long as what was acknowledged; what it has of topics is old."""
    first, second = two(members)
    copied = second.files.turn
    wait_for(lambda: second.files.turn > copied, "it to go on", seconds=30)
    for member in (second, first):
        member.service.request_stop()
        assert member.service.stop()
    announced, second.files.turn = second.files.turn, copied
    assert second.files.uuid in state_of(store).isr
    second.begin()
    wait_for(lambda: second.status.uuid == "uuid1-new" and second.files.slot, "it to see that it is old")
    assert f"it was left at turn {copied}, and turn {announced} was announced" in caplog.text
    begun = second.status.read_at
    wait_for(lambda: second.status.read_at > begun + 3 * second.rules.elect_after, "the first one's lead to be over")
    assert (second.brokers.role, state_of(store).leader.uuid) == ("follower", "uuid0")
    first.begin()
    wait_for(lambda: first.status.role == "leader", "the first one leads it")


def test_a_member_that_comes_back_with_its_own_directory_is_the_one_that_left(store, members):
    first, second = two(members)
    second.service.request_stop()
    assert second.service.stop()
    second.begin()
    wait_for(lambda: first.leads(2) and second.status.role == "in-sync", "it is in sync again")
    assert second.files.uuid == "uuid1"


def test_a_store_that_was_replaced_is_adopted_by_members_that_run():
    """An opened store never accepts its replacement, so a member that adopts the set opens the store anew."""
    cluster = MemoryCluster()
    network: dict[str, FakeBrokers] = {}
    first = Member(MemoryStore(cluster), network, "uuid0", bootstrap=True)
    made = [first]
    try:
        wait_for(first.leads, "the first leads")
        second = Member(MemoryStore(cluster), network, "uuid1")
        made.append(second)
        wait_for(lambda: first.leads(2), "the second is in sync")
        cluster.wipe()
        for member in made:
            member.store = MemoryStore(cluster)  # for the next opening
        wait_for(lambda: second.status.role == "frozen" and second.status.astray, "the second freezes")
        wait_for(lambda: first.status.astray, "the first knows")
        assert first.brokers.role == "leader", "both hold all: nothing is lost by going on"
        answer = first.service.ask(Wish("adopt"), 60.0)
        assert answer is not None
        assert answer.done, answer.why
        wait_for(first.leads, "the first leads in the new store")
        assert second.status.role == "frozen", "nobody asked the second"
        answer = second.service.ask(Wish("adopt"), 60.0)
        assert answer is not None
        assert answer.done, answer.why
        wait_for(lambda: first.leads(2), "both are back")
        assert decode_state(cluster.keys[f"{ROOT}/state"][0]).epoch == 2
        assert not first.status.astray
        assert not second.status.astray
    finally:
        for member in made:
            assert member.service.stop()


def test_a_leader_adopts_before_it_has_seen_that_the_store_was_replaced():
    """Else it says that it leads, and whoever adopts next leads beside it."""
    cluster = MemoryCluster()
    only = Member(MemoryStore(cluster), {}, "uuid0", bootstrap=True)
    try:
        wait_for(only.leads, "it leads")
        only.store = MemoryStore(cluster)  # for the next opening
        cluster.wipe()
        answer = only.service.ask(Wish("adopt"), 60.0)
        assert answer is not None
        assert answer.done, answer.why
        assert decode_state(cluster.keys[f"{ROOT}/state"][0]).epoch == 2
    finally:
        assert only.service.stop()


def test_who_is_left_alone_with_a_replaced_store_adopts_it():
    cluster = MemoryCluster()
    network: dict[str, FakeBrokers] = {}
    first, second = Member(MemoryStore(cluster), network, "uuid0", bootstrap=True), None
    try:
        wait_for(first.leads, "the first leads")
        second = Member(MemoryStore(cluster), network, "uuid1")
        wait_for(lambda: first.leads(2), "the second is in sync")
        first.service.stop()
        cluster.wipe()
        second.store = MemoryStore(cluster)
        first.brokers.running = False  # its ports refuse: the second asks the new store for the old key
        wait_for(lambda: second.status.astray, "the second knows")
        answer = second.service.ask(Wish("adopt"), 60.0)
        assert answer is not None
        assert answer.done, answer.why
        wait_for(second.leads, "the second leads")
    finally:
        for member in (first, second):
            if member is not None:
                assert member.service.stop()


def test_another_sets_store_costs_nothing():
    """Two sets of one name, each in its own store; a member of one is started with the other's haStore."""
    stores = FakeStore(), FakeStore()
    networks: tuple[dict[str, FakeBrokers], ...] = ({}, {})
    leaders = [Member(stores[at], networks[at], f"leader{at}", bootstrap=True) for at in (0, 1)]
    lost = None
    try:
        for leader in leaders:
            wait_for(leader.leads, "it leads")
        lost = Member(stores[0], networks[0], "lost")
        wait_for(lambda: leaders[0].leads(2), "it is in sync in its set")
        lost.service.stop()
        lost.brokers.done.clear()
        lost.brokers.role, lost.brokers.leader = "fenced", None
        lost.store, lost.brokers.network = stores[1], networks[1]
        networks[1]["lost"] = lost.brokers
        lost.begin()
        wait_for(lambda: lost.status.role == "frozen", "it freezes")
        assert "another set" in lost.status.why
        assert lost.brokers.done == []
        lost.service.stop()
        lost.store, lost.brokers.network = stores[0], networks[0]
        lost.begin()
        wait_for(lambda: leaders[0].leads(2), "it is back in its own")
    finally:
        for member in (*leaders, lost):
            if member is not None:
                assert member.service.stop()


def alone_with_more(store, members):
    """The first member has gone on without the second; returns the key from when both were in sync, too."""
    first, second = two(members)
    before = store.keys[f"{ROOT}/state"][0]
    second.service.stop()
    second.brokers.running = False
    wait_for(lambda: first.leads(1), "the first goes on alone")
    first.brokers.log.extend(["acknowledged by it alone"] * 10)
    first.service.stop()
    first.brokers.running, first.brokers.role = False, "fenced"
    assert first.files.known.may == {"uuid0"}
    return first, second, before


def test_a_key_that_was_put_back_lets_nobody_cut_off_what_one_acknowledged_alone(store, members):
    """The store is restored to a copy of the same epoch, and the member that was behind is started first."""
    first, second, before = alone_with_more(store, members)
    store.write(f"{ROOT}/state", before)
    second.brokers.running, second.brokers.role = True, "fenced"
    second.begin()
    wait_for(lambda: second.leads(1), "the second leads: nothing tells it otherwise")
    first.brokers.running = True
    done = len(first.brokers.done)
    first.begin()
    wait_for(lambda: first.status.role == "frozen", "the first asks a person")
    assert "the leader store was restored" in first.status.why
    assert not {"cut", "set_aside", "follow"} & set(first.brokers.done[done:])
    answer = first.service.ask(Wish("adopt"), 60.0)
    wait_for(lambda: first.leads(), "it leads as the person says")
    assert answer is None or answer.done
    assert state_of(store).elections[-1].lost_bound >= 0
    wait_for(lambda: first.leads(2), "the second follows it, and is asked nothing")


def test_an_older_state_of_the_key_is_known_by_who_saw_the_newer_one(store, members):
    first, _, before = alone_with_more(store, members)
    store.write(f"{ROOT}/state", before)
    first.brokers.running = True
    first.begin()
    wait_for(lambda: first.status.role == "frozen", "it asks a person")
    # Of the same epoch, or of an earlier one if the first was elected again meanwhile.
    assert re.search(r"an older state of epoch 1 than|knows epoch 1, this member has seen 2: was", first.status.why)
    answer = first.service.ask(Wish("adopt"), 60.0)
    wait_for(lambda: first.leads(), "it leads as the person says")
    assert answer is None or answer.done


def test_an_election_that_nobody_saw_the_end_of_is_none_by_a_key_that_was_put_back(store, members):
    """The key names the second as in sync, though its leader never had that answer: an awaited member may lead."""
    first, second = two(members)
    assert first.files.known.may == {"uuid0", "uuid1"}
    first.service.stop()
    first.brokers.running = False
    wait_for(lambda: second.leads(1), "the second leads")
    first.brokers.running, first.brokers.role = True, "fenced"
    first.begin()
    wait_for(lambda: second.leads(2), "the first follows, without an act")


def test_slots_that_a_store_lost_are_taken_again_before_a_newcomer_has_them(store, members, caplog):
    first, second = two(members)
    for slot in (1, 2):
        del store.keys[f"{ROOT}/slot/{slot}"]
    wait_for(lambda: {f"{ROOT}/slot/{slot}" for slot in (1, 2)} <= set(store.keys), "they are taken again")
    third = members()
    wait_for(lambda: third.files.slot, "the newcomer has one")
    assert [member.files.slot for member in (first, second, third)] == [1, 2, 3]
    # A member that came while the store did not have the others' slots.
    with store.changed:
        store.write(f"{ROOT}/slot/2", b"uuid2")
    wait_for(lambda: second.files.slot != 2, "the other one takes a free one")
    assert store.keys[f"{ROOT}/slot/{second.files.slot}"][0] == b"uuid1"
    assert "slot=2 is that of uuid=uuid2 by now" in caplog.text


def test_the_store_of_another_set_does_not_change_a_members_slot(store, members):
    first, second = two(members)
    second.service.stop()
    second.files.slot, second.files.set_id = first.files.slot, "another"  # it comes from another set, with that number
    second.begin()
    wait_for(lambda: second.status.role == "frozen", "it does not believe this store")
    wait_for(lambda: decode_announcement(store.keys[f"{ROOT}/member/uuid1"][0]).role == "frozen", "it has looked again")
    assert second.files.slot == first.files.slot


def test_a_store_that_was_exchanged_does_not_change_a_members_slot(store, members):
    _first, second = two(members)
    wait_for(lambda: second.status.role == "in-sync", "it believes its store")
    with store.changed:
        store.write(f"{ROOT}/slot/2", b"another")
        store.name = "two"
    wait_for(lambda: second.status.role == "frozen", "another cluster is not believed")
    assert second.files.slot == 2
