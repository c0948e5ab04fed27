"""A set of brokers as a member sees it, made by a test: there are no elections and no followers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from appliance.engine.errors import Conflict, InvalidInput
from appliance.engine.failover.quarantine import Cut, keep
from appliance.engine.store.log.raw_log import RawLog
from appliance.engine.window.changes import preview
from appliance.engine.window.replicas.snapshots import ElectionView, MemberView, QuarantineFile, SetView
from appliance.engine.window.sentences import say
from appliance.engine.window.snapshots import Change
from appliance.engine.window.window import Window
from tests.support.engine import RunningEngine
from tests.support.waiting import wait_for

HERE, OTHER, THIRD = "uuid-of-this-one", "uuid-of-the-other", "uuid-of-the-third"


def member(uuid: str, slot: int, **changed: Any) -> MemberView:
    made = MemberView(
        uuid=uuid, slot=slot, addr=f"10.0.0.{slot}:10911", ha_addr=f"10.0.0.{slot}:10912", version="0.1.0",
        role="follower", in_sync=True, is_leader=False, is_here=False, connected=True, log_end=123_456_000,
        lag_bytes=0, lag_ms=0, last_epoch=7, heard_at_ms=int(time.time() * 1000), log_begin=None, differs=(),
        slow_ms=None,
    )  # fmt: skip
    return replace(made, **changed)


def leading(**changed: Any) -> SetView:
    """A leader's view of three members: one follows, and one is gone for a minute."""
    now = int(time.time() * 1000)
    made = SetView(
        set="orders-set", store="etcd://10.0.1.1:2379,10.0.1.2:2379,10.0.1.3:2379", store_ok=True, store_why=None,
        store_warning=None,
        epoch=7, leader=HERE, leader_addr="10.0.0.1:10911", role="leader", role_why=None, uuid=HERE, slot=1,
        synchronous=True, min_in_sync=1, floor=123_450_000, confirm=123_456_000, fullest=HERE,
        members=(
            member(HERE, 1, role="leader", is_leader=True, is_here=True, connected=None),
            member(OTHER, 2, lag_bytes=40_960, lag_ms=12),
            member(THIRD, 3, in_sync=False, connected=False, lag_bytes=None, lag_ms=None, log_end=120_000_000,
                   heard_at_ms=now - 60_000),
        ),
        elections=(
            ElectionView(7, HERE, 123_000_000, now - 3_600_000, "the leader's ports refused", None),
            ElectionView(6, THIRD, 90_000_000, now - 86_400_000, "an operator adopted the set", 4096),
            ElectionView(5, "uuid-of-nobody-any-more", 0, now - 9 * 86_400_000, "the first", None),
        ),
        quarantine=(),
        settings={"haStore": "etcd://10.0.1.1:2379", "minInSyncReplicas": "1", "haOnPromote": ""},
    )  # fmt: skip
    return replace(made, **changed)


def following(**changed: Any) -> SetView:
    """The same set, seen from the second member."""
    members = tuple(
        replace(one, is_here=one.uuid == OTHER, connected=None, lag_bytes=None, lag_ms=None)
        for one in leading().members
    )
    return leading(**{"role": "follower", "uuid": OTHER, "slot": 2, "members": members} | changed)


def cut_file(**changed: Any) -> QuarantineFile:
    made = QuarantineFile(
        name="diverged-6-00000000000090000000-00000000000090004096.log", bytes=4096, epoch=6, from_offset=90_000_000,
        to_offset=90_004_096, at_ms=int(time.time() * 1000) - 120_000, records=3, topics=("Orders", "Payments"),
        reason="another leads epoch 7",
    )  # fmt: skip
    return replace(made, **changed)


class MadeSet:
    """seen: what is shown, which a test replaces. asked: (act, to or uuid, by) of each act that was really done."""

    def __init__(self, seen: SetView | None = None) -> None:
        self.seen = seen or leading()
        self.asked: list[tuple[str, str, str]] = []

    def view(self) -> SetView:
        return self.seen

    def switch(self, to: str = "", *, dry_run: bool = False, by: str = "") -> Change:
        if self.seen.role != "leader":
            raise Conflict(say("set_fenced"))
        change = preview(to, {"leader": self.seen.leader}, {"leader": to})
        return self._done("switch", to, change, dry_run, by)

    def adopt(self, uuid: str, confirm: str, *, dry_run: bool = False, by: str = "") -> Change:
        if confirm != self.seen.set:
            raise InvalidInput("confirm", say("set_no_leader", set=self.seen.set))
        change = preview(self.seen.set, {"leader": ""}, {"leader": uuid}, [say("set_one_copy")])
        return self._done("adopt", uuid, change, dry_run, by)

    def _done(self, act: str, about: str, change: Change, dry_run: bool, by: str) -> Change:
        if dry_run:
            return change
        self.asked.append((act, about, by))
        return replace(change, applied=True)


def cut_tail(running: RunningEngine, topic: str = "CutTail", count: int = 2, **sent: Any) -> str:
    """Send some messages, and keep a copy of their bytes as if they had been cut off; the file's name."""
    store = running.engine.broker.store
    wait_for(lambda: store.published == store.log.written, "what was sent before to be published")
    begin = store.log.written
    running.put(topic, *(f"cut {begin} {number}".encode() for number in range(count)), **sent)
    wait_for(lambda: store.published == store.log.written, "these to be published")
    facts = {"own_epochs": [[6, 0]], "leaders_epochs": [[7, 0]], "leader": THIRD, "reason": "another leads epoch 7"}
    cut = Cut(6, begin, store.log.written, store.log.segment_bytes)
    facts["cut_ms"] = int(time.time() * 1000)
    return keep(RawLog(store.log, store.disk), store.disk, store.paths.quarantine, cut, facts).name


@contextmanager
def member_of(window: Window, made: MadeSet) -> Iterator[MadeSet]:
    """A running engine becomes a member of the set, as far as its window is concerned."""
    parts = window._parts
    assert parts is not None
    window.take_set(made)
    parts.replication._set = made
    try:
        yield made
    finally:
        window._set = parts.replication._set = None
