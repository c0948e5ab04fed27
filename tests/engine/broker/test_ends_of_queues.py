"""Ends of emptied queues for a member that joins empty: used only for queues of which it has no messages."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

from appliance.engine.broker.slave_sync import SlaveSync
from appliance.engine.broker.topic_places import TopicPlacesProcessor, decode_ends
from appliance.engine.clock import Clock
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.store.retention.deleted_topics import Begin, Deletion


class FakeStore:
    """The store of a copy: deletions that it was given, and queues that exist."""

    def __init__(self) -> None:
        self.there: set[tuple[str, int]] = set()
        self.taken: list[Deletion] = []
        self.paths = SimpleNamespace(root=Path("/nowhere"))
        self.disk = None
        self.published = 0
        self.log = SimpleNamespace(written=0, min_offset=100)
        self.queues = SimpleNamespace(begin_of=lambda topic, queue_id: 0)

    def find_queue(self, topic: str, queue_id: int) -> object:
        return (topic, queue_id) if (topic, queue_id) in self.there else None

    def take_deletions(self, deletions: list[Deletion]) -> None:
        self.taken += deletions

    def begin_queues(self, topics: list[str]) -> None:
        pass


def test_a_queue_whose_messages_came_with_the_log_keeps_them_though_another_of_its_topic_has_none():
    """Queue 0 of T ran empty at 10; queue 1 has messages up to 8, which arrive after the answer with its end."""
    store = FakeStore()
    sync = SlaveSync(lambda: "", lambda: None, None, None, None, lambda job: job(), store, Clock())  # type: ignore[arg-type]
    told = json.dumps({"end": 1000, "ends": {"T": {"0": 10, "1": 8}}}).encode()
    sync._invoke = lambda address, request: RemotingCommand.response(0, body=told)  # type: ignore[method-assign]
    assert not sync._take_ends("leader", ["T"])
    store.published = store.log.written = 1000
    store.there.add(("T", 1))
    assert sync._take_ends("leader", ["T"])
    assert store.taken == [Deletion("T", 0, {0: Begin(10, 1000)})]


def test_ends_that_are_told_lie_before_the_end_of_the_log_that_is_told_with_them():
    """A message comes while the leader reads the ends."""
    log = SimpleNamespace(written=1000)

    def of_topic(name: str) -> list[SimpleNamespace]:
        log.written += 100
        return [SimpleNamespace(queue_id=0, max_offset=11)]

    store = SimpleNamespace(log=log, published=1000, queues=SimpleNamespace(of_topic=of_topic))
    processor = TopicPlacesProcessor(store, lambda: 0, lambda: b"{}")  # type: ignore[arg-type]
    answer = processor.handle(RemotingCommand(1, body=b'["T"]'), None)  # type: ignore[arg-type]
    assert decode_ends(bytes(answer.body)) == (1100, {"T": {0: 11}})
