"""Ends of emptied queues for a member that joins empty: used only for queues of which it has no messages."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from appliance.engine.broker.offsets import ConsumerOffsetManager
from appliance.engine.broker.promotion import _begin_queues
from appliance.engine.broker.slave_side import _TablesOfMaster
from appliance.engine.broker.slave_sync import SlaveSync
from appliance.engine.broker.topic_places import TopicPlaces, TopicPlacesProcessor, decode_ends, decode_places
from appliance.engine.clock import Clock
from appliance.engine.errors import ConnectError
from appliance.engine.protocol.codes import RequestCode
from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.store.retention.deleted_topics import Begin, Deletion
from appliance.engine.store.retention.leaders_needs import LeadersNeeds
from tests.crash.test_found import a_life
from tests.support.clock import FakeClock

#: Nothing that a copy of deletions and settled messages reads.
NO_TABLES: Any = SimpleNamespace(topics=None, groups=None, offsets=None)
INLINE: Any = SimpleNamespace(clock=Clock(), call_soon=lambda call: call())

#: Of delayed messages that were handled early.
NOTHING = lambda content, at: (content, at, b"")  # noqa: E731


class FakeStore:
    """The store of a copy: deletions that it was given, and queues that exist."""

    def __init__(self) -> None:
        self.there: set[tuple[str, int]] = set()
        self.taken: list[Deletion] = []
        self.paths = SimpleNamespace(root=Path("/nowhere"), own=Path("/nowhere"))
        self.disk = None
        self.published = 0
        self.log = SimpleNamespace(written=0, min_offset=100)
        self.cleaner = SimpleNamespace(leaders_needs=LeadersNeeds())
        self.queues = SimpleNamespace(
            begin_of=lambda topic, queue_id: 0, is_unused=lambda topic, queue_id: (topic, queue_id) not in self.there
        )

    def take_deletions(self, deletions: list[Deletion]) -> None:
        self.taken += deletions

    def begin_queues(self, topics: list[str]) -> None:
        pass


def test_a_queue_whose_messages_came_with_the_log_keeps_them_though_another_of_its_topic_has_none():
    """Queue 0 of T ran empty at 10; queue 1 has messages up to 8, which arrive after the answer with its end."""
    store = FakeStore()
    sync = SlaveSync(lambda: "", lambda: None, NO_TABLES, INLINE, store)  # type: ignore[arg-type]
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
    processor = TopicPlacesProcessor(store, lambda: 0, lambda: b"{}", NOTHING)  # type: ignore[arg-type]
    answer = processor.handle(RemotingCommand(1, body=b'["T"]'), None)  # type: ignore[arg-type]
    assert decode_ends(bytes(answer.body)) == (1100, {"T": {0: 11}})


def test_a_slave_that_knows_notes_of_an_earlier_start_gets_all_of_this_one() -> None:
    """The master was started again, and deleted as many topics as before until the slave asked."""

    def asked(deleted: list[str], seen: int) -> TopicPlaces:
        notes = SimpleNamespace(changed=deleted, load_all=lambda: (dict.fromkeys(deleted, 1000), {}), load_late=dict)
        files = SimpleNamespace(deleted_topics=notes, has_purged=lambda: False)
        store = SimpleNamespace(log=SimpleNamespace(min_offset=0), files=files)
        processor = TopicPlacesProcessor(store, lambda: 0, lambda: b"{}", NOTHING)  # type: ignore[arg-type]
        request = RemotingCommand(1, ext_fields={"seen": str(seen)})
        return decode_places(bytes(processor.handle(request, None).body))  # type: ignore[arg-type]

    before = asked(["A"], -1)
    again = asked(["B", "C"], before.seen)
    assert [deletion.topic for deletion in again.deletions] == ["B", "C"]


def test_a_slave_that_is_always_a_little_behind_deletes_files_all_the_same() -> None:
    """Its master's log goes on with each answer. Its disk would run full."""
    store: Any = FakeStore()
    store.log.durable = 0
    needs = store.cleaner.leaders_needs
    assert needs.keep(100) is not None
    sync = SlaveSync(lambda: "", lambda: None, NO_TABLES, INLINE, store)
    sync._comes_to = lambda end, position: position() >= end  # type: ignore[method-assign]

    def invoke(address: str, request: RemotingCommand) -> RemotingCommand:
        assert request.ext_fields["leaving"] == "100"
        head = {"changes": 0, "seen": 1, "begin": 0, "deleted": {}, "free": 100, "end": store.log.durable + 50}
        return RemotingCommand.response(0, body=json.dumps(head | {"topics": {}}).encode())

    sync._invoke = invoke  # type: ignore[method-assign]
    store.files = SimpleNamespace(deleted_topics=SimpleNamespace(load_all=lambda: ({}, {}), load_late=dict))
    for _ in range(2):
        assert needs.keep(100) is not None
        with pytest.raises(AttributeError):  # there are no tables
            sync._take_topics("master")
        store.log.durable += 50
    assert needs.keep(100) is None


def test_a_slave_purges_what_its_master_has_purged_once_its_log_has_it() -> None:
    files = SimpleNamespace(
        deleted_topics=SimpleNamespace(changed=[], load_all=lambda: ({}, {}), load_late=dict),
        purged_queues=SimpleNamespace(state=(77, {"T": {0: 500}})),
        has_purged=lambda: True,
    )
    master = SimpleNamespace(log=SimpleNamespace(min_offset=0), files=files)
    processor = TopicPlacesProcessor(master, lambda: 0, lambda: b"{}", NOTHING)  # type: ignore[arg-type]

    def told(known: int) -> Any:
        request = RemotingCommand(1, ext_fields={"seen": "-1", "purged": str(known)})
        return decode_places(bytes(processor.handle(request, None).body)).purged  # type: ignore[arg-type]

    assert told(-1) == (77, {"T": {0: 500}})
    assert told(77) is None
    purged: list[Any] = []
    store = SimpleNamespace(
        published=499, cleaner=SimpleNamespace(purge=purged.append), paths=FakeStore().paths, disk=None
    )
    sync = SlaveSync(lambda: "", lambda: None, NO_TABLES, INLINE, store)  # type: ignore[arg-type]
    sync._comes_to = lambda end, position: position() >= end  # type: ignore[method-assign]
    assert not sync._take_purged(told(sync._purged))
    assert purged == []
    store.published = 500
    assert sync._take_purged(told(sync._purged))
    assert purged == [{"T": {0: 500}}]
    assert sync._purged == 77
    assert sync._take_purged(told(sync._purged))
    assert len(purged) == 1


def a_store_with(created: str) -> Any:
    """Return the store of a member that has no message of T-0, whose log begins later. created: why T-0 exists."""
    life = a_life()
    life.store.log.begin_at(1 << 20)
    queues = life.store.queues
    if created == "behind a deleted topic":
        queues.take_begins({"T": {0: Begin(3, 0)}})
    if created != "not":
        queues.get_or_create("T", 0)
    return life.store


@pytest.mark.parametrize("created", ["not", "by a reader", "behind a deleted topic"])
def test_a_queue_without_an_entry_goes_on_where_the_leader_says(created: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = a_store_with(created)
    monkeypatch.setattr(type(store), "take_deletions", lambda self, told: [self._take_deletion(one) for one in told])
    sync = SlaveSync(lambda: "", lambda: None, NO_TABLES, INLINE, store)  # type: ignore[arg-type]
    told = json.dumps({"end": 0, "ends": {"T": {"0": 10}}}).encode()
    sync._invoke = lambda address, request: RemotingCommand.response(0, body=told)  # type: ignore[method-assign]
    assert sync._take_ends("leader", ["T"])
    assert store.offset_range("T", 0) == (10, 10)


@pytest.mark.parametrize("created", ["not", "by a reader", "behind a deleted topic"])
def test_a_queue_without_an_entry_goes_on_where_its_readers_are(created: str, tmp_path: Path) -> None:
    store = a_store_with(created)
    offsets = ConsumerOffsetManager(tmp_path / "consumerOffset.json", 5000, FakeClock())
    offsets.commit("readers", "T", 0, 10)
    offsets.commit("slow", "T", 0, 2)
    _begin_queues(store, {"T": True}, offsets)  # type: ignore[arg-type]
    assert store.offset_range("T", 0) == (10, 10)


def test_an_answer_that_came_when_the_stream_had_ended_does_not_count():
    """Another process may listen at the master's address by then."""
    masters = ["127.0.0.1:1", ""]
    sync = SlaveSync(lambda: masters[0], lambda: None, NO_TABLES, INLINE, FakeStore())  # type: ignore[arg-type]

    def answer(request: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        return RemotingCommand.response(0)

    sync._client = SimpleNamespace(address="127.0.0.1:1", invoke_sync=answer)  # type: ignore[assignment]
    assert sync._ask("127.0.0.1:1", 21) == b""
    del masters[0]
    with pytest.raises(ConnectError):
        sync._ask("127.0.0.1:1", 21)


def noting_slave() -> tuple[Any, list[int]]:
    """Return a plain slave's copying, and the ends of the log that its notes say the topics here cover."""
    noted: list[int] = []
    tables: Any = SimpleNamespace(topics=SimpleNamespace(data_version=1), groups=None, offsets=None)
    sync: Any = _TablesOfMaster(lambda: "", lambda: None, tables, INLINE, FakeStore())  # type: ignore[arg-type]
    sync._comes_to = lambda end, position: position() >= end
    sync.followed = SimpleNamespace(covers=lambda end, topics: noted.append(end))
    return sync, noted


def test_topics_of_which_a_deletion_has_to_wait_do_not_cover_the_log():
    """Were they noted to, a promotion would count topics as deleted that were made since the last copy."""
    sync, noted = noting_slave()
    store: Any = sync._store
    store.files = SimpleNamespace(deleted_topics=SimpleNamespace(load_all=lambda: ({}, {}), load_late=dict))
    store.files.has_purged = lambda: False
    store.queues.of_topic = lambda topic: [SimpleNamespace(queue_id=0, max_offset=1, next_offset=5)]
    places = {"changes": 1, "seen": 1, "begin": 0, "deleted": {"T": [900, {"0": [3, 900]}]}, "topics": {}}
    body = json.dumps(places).encode()
    sync._invoke = lambda address, request: RemotingCommand.response(0, body=body)
    sync.steps = lambda: (sync._take_topics,)
    sync.work("master")
    assert store.taken == []
    assert noted == []
    assert sync.failure.startswith("topics: ")


def test_topics_cover_the_log_also_where_another_table_cannot_be_copied():
    """The master's file of schemas is damaged, say."""
    sync, noted = noting_slave()
    sync._take_table = lambda table, document: None
    sync._invoke = lambda address, request: RemotingCommand.response(int(request.code > 700000), body=b"{}")
    sync._store.log.written = 500
    sync.steps = lambda: (sync._take_topics, sync._take_offsets)
    sync.work("master")
    assert sync.failure.startswith("offsets: ")
    assert noted == [500]


@pytest.mark.parametrize("other", [b"", b"record?"])
def test_nothing_is_asked_of_a_process_that_does_not_have_the_last_record(other, monkeypatch):
    """An empty machine, or one with another log, listens at the master's address before the stream is seen to end."""
    monkeypatch.setattr("appliance.engine.broker.slave_sync.RIPE_S", 0.03)
    record = (14).to_bytes(4, "big") + b"the record"
    store: Any = FakeStore()
    store.last_record_offset = 500
    store.log.read = lambda offset, size: record[offset - 500 : offset - 500 + size]
    greeted: list[bytes] = []
    ties: Any = SimpleNamespace(
        greeting=lambda: lambda call, channel: greeted.append(channel),
        guard=SimpleNamespace(connect=None),
        copy_users=None,
    )
    sync = SlaveSync(lambda: "", lambda: None, NO_TABLES, INLINE, store, ties=ties)
    shown = [b"", record]

    def ask(request: RemotingCommand) -> RemotingCommand:
        assert request.ext_fields == {"offset": "500"}
        body = shown.pop(0)
        return RemotingCommand.response(0 if body else 1, body=body)

    sync._meet(ask, b"channel")  # it is shown a moment later
    assert greeted == [b"channel"]
    assert not shown
    with pytest.raises(ConnectError, match="500"):
        sync._meet(lambda request: RemotingCommand.response(0 if other else 1, body=other), b"")
    store.last_record_offset = -1
    sync._meet(ask, b"")


@pytest.mark.parametrize(
    ("end", "begin", "is_it"),
    [(300, b"record", True), (300, b"other!", False), (300, b"", False), (100, b"record", False), (0, b"", False)],
)
def test_a_master_that_shows_less_is_known_by_the_begin_of_its_newest_file(end, begin, is_it):
    """As far as it shows its log, which here has files of 200 bytes from 200 on."""
    store: Any = FakeStore()
    store.last_record_offset, store.log.min_offset = 500, 200
    store.log.segment_at = lambda offset: SimpleNamespace(start=offset // 200 * 200) if offset >= 200 else None
    store.log.read = lambda offset, size: ((10).to_bytes(4, "big") + b"record")[offset - 200 :][:size]
    sync = _TablesOfMaster(lambda: "", lambda: None, NO_TABLES, INLINE, store)

    def ask(request: RemotingCommand) -> RemotingCommand:
        if request.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            return RemotingCommand.response(0, body=b'{"table":{"commitLogMaxOffset":"%d"}}' % end)
        assert request.ext_fields == {"offset": "200"}
        return RemotingCommand.response(0 if begin else 1, body=(10).to_bytes(4, "big") + begin)

    assert sync._is_behind(ask) == is_it
