"""Both twins answer pulls alike: answers, commits, held pulls and every count, whatever happens between two pulls.

As in test_twins.py each input is given to a broker without threads, once with and once without the compiled part. Its
store lies on a disk, since only there the kernel reports which pages are cached.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest

from appliance.engine.broker import clients
from appliance.engine.broker.group_config import SubscriptionGroupConfig
from appliance.engine.hotpath import COMPILED
from appliance.engine.remoting import outbox
from appliance.engine.store.queues.consume_queue import ENTRY_BYTES, HOLE
from appliance.engine.store.settings import StoreSettings
from tests.support import twins
from tests.support.batches import encode_member
from tests.support.twins import Outcome, Setting, Step, Twin, opened

from .inputs import binary_header, framed, json_header, quoted, value_of

pytestmark = pytest.mark.skipif(not COMPILED, reason="the compiled part is not used")

ROOMY = Setting(segment_bytes=8 << 20)
#: Records of several queues lie one behind the other.
SMALL = Setting(segment_bytes=64 * 1024, max_message_size=8000)


class PullTwin(Twin):
    """A twin with steps that change its queues, consumers and settings."""

    def do_files(self) -> None:
        """Move queue entries from the tails in memory to files."""
        log = self.store.log
        if log.broken is None:
            self.broker.tables.journal.work()
            log.sync()
        self._on_loop(self.store._publish_durable)
        flush = self.store._flush_queues
        assert flush.work(running=False) or flush.failure
        self.do_tick()

    def do_entries(self, topic: str, queue_id: int, first: int, entries: bytes) -> None:
        """Overwrite entries in a queue's file from `first` on, without a notice to the store."""
        files = self.store.queues.new_files(4)
        try:
            files.write(topic, queue_id, first, entries)
            files.sync()
        finally:
            files.close()

    def do_repaired(self) -> None:
        """Notify the store that queue files were deleted or replaced."""
        self.store.queues.files_deleted()

    def do_forget_below(self, topic: str, queue_id: int, offset: int) -> None:
        """Let the first messages of a queue expire."""
        queue = self.store.find_queue(topic, queue_id)
        assert queue is not None
        queue.min_offset = max(queue.min_offset, min(offset, queue.max_offset))

    def do_first_file(self) -> None:
        """Remove the log's first file."""
        log = self.store.log
        log.segments = log.segments[1:] if len(log.segments) > 2 else log.segments

    def do_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.broker.offsets.reset(group, topic, queue_id, offset)

    def do_group_is(self, name: str, **changes: Any) -> None:
        """Change a group's settings, as an administrator does."""
        self.broker.groups.update(SubscriptionGroupConfig(group_name=name, **changes))

    def do_ungroup(self, name: str) -> None:
        self.broker.groups.delete(name)

    def do_broker_options(self, **changes: Any) -> None:
        self.broker.pull.take_options(dataclasses.replace(self.broker.pull._config, **changes))

    def do_limits(self, **changes: Any) -> None:
        """Change the store's settings of reads."""
        settings: StoreSettings = self.store.settings
        self.store.settings = settings._replace(**changes)

    def do_is_cached(self, known: bool) -> None:
        """Stop or resume the kernel's report of cached records; without it they count as not cached and are copied."""
        if known:
            vars(self.store.disk).pop("is_resident", None)
        else:
            self.store.disk.is_resident = lambda fd, position, size: False  # type: ignore[method-assign]

    def _outcome(self) -> Outcome:
        found = super()._outcome()
        broker = self.broker
        pull, offsets = broker.pull, broker.offsets
        found.counters |= {
            "found": pull.found_count,
            "missed": pull.miss_count,
            "given": pull.message_count,
            "given bytes": pull.message_bytes,
            "committed": sorted(
                (one.topic, one.group, sorted(one.queues.items()), one.changes) for one in offsets.all()
            ),
            "commits": offsets._commits,
            "resets": sorted((key, one.target, one.tellings) for key, one in offsets.resets.items()),
            "pulled": sorted(
                (group, queue.topic, queue.queue_id, offset)
                for group, queues in offsets.pulled._groups.items()
                for queue, offset in queues.items()
            ),
            "deliveries": bytes(broker.deliveries.recorder.room[: broker.deliveries.recorder.at]),
            "told": broker.deliveries.recorder._definitions,
            "held": pull.long_polling.count,
            "groups": sorted(map(str, self.broker.groups.all())),
            "broken": sorted((queue.topic, queue.queue_id) for queue in self.store.queues.all() if queue.broken),
            "full": [conn.full for conn in self._connections.values()],
            "in outboxes": [conn.outbox_bytes for conn in self._connections.values()],
        }
        return found

    @property
    def taken(self) -> int:
        return self.broker.pull.compiled.hits


@pytest.fixture
def come_to(tmp_path, monkeypatch):
    """Give an input to both twins, assert that the outcomes are the same, and return the compiled one's."""
    monkeypatch.setattr(twins, "Twin", PullTwin)
    monkeypatch.setattr(twins, "_MEMORY", Path(tmp_path))

    def come_to(steps: list[Step], setting: Setting = ROOMY) -> Outcome:
        found = []
        for compiled in (False, True):
            monkeypatch.setattr(clients, "_opaques", itertools.count())
            with opened(setting, compiled) as twin:
                one = twin.take(steps)
                one.taken = twin.taken
                found.append(one)
        pure, other = found
        if different := pure.differences(other):
            pytest.fail("\n".join([*different, *(repr(step)[:400] for step in steps if len(repr(step)) < 3000)]))
        assert not pure.taken, "Python was to answer"
        assert not other.exceptions, other.exceptions
        return other

    return come_to


# --- inputs


def pull(
    topic: str = "TopicA",
    queue_id: int = 0,
    offset: int = 0,
    code: int = 11,
    style: str = "java",
    opaque: int = 7,
    flag: int = 0,
    **changes: Any,
) -> bytes:
    """Return a pull as a client of that style writes it; a field that is None is left out."""
    fields: dict[str, Any] = {
        "consumerGroup": "CG", "topic": topic, "queueId": queue_id, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
        "expressionType": "TAG",
    }  # fmt: skip
    pairs = [(name, value) for name, value in (fields | changes).items() if value is not None]
    if style == "binary":
        return framed(binary_header(code, pairs, opaque, flag), b"", 1)
    encoded = [
        (name.encode(), value if isinstance(value, bytes) else value_of(value, style == "cpp")) for name, value in pairs
    ]
    return framed(json_header(style, code, encoded, b"%d" % opaque, b"%d" % flag), b"")


def send(body: bytes, topic: str = "TopicA", queue_id: int = 0, tag: str = "TagA") -> bytes:
    text = f"UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBA0000\x02WAIT\x01true\x02TAGS\x01{tag}\x02"
    pairs: list[tuple[str, Any]] = [
        ("a", "PG"), ("b", topic), ("c", "TBW102"), ("d", 4), ("e", queue_id), ("f", 0), ("g", 1_700_000_000_000),
        ("h", 0), ("i", text), ("j", 0), ("k", False), ("m", False), ("n", "broker-a"),
    ]  # fmt: skip
    return framed(
        json_header("java", 310, [(name.encode(), value_of(value, False)) for name, value in pairs], b"1", b"0"), body
    )


def batch(count: int, size: int, topic: str = "TopicA", queue_id: int = 0) -> bytes:
    body = b"".join(
        encode_member(b"%d" % number * size, b"UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBB%04X\x02TAGS\x01TagA" % number)
        for number in range(count)
    )
    text = "UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBC0000\x02WAIT\x01true\x02"
    pairs: list[tuple[str, Any]] = [
        ("a", "PG"), ("b", topic), ("c", "TBW102"), ("d", 4), ("e", queue_id), ("f", 0), ("g", 1_700_000_000_000),
        ("h", 0), ("i", text), ("j", 0), ("k", False), ("m", True), ("n", "broker-a"),
    ]  # fmt: skip
    encoded = [(name.encode(), value_of(value, False)) for name, value in pairs]
    return framed(json_header("java", 320, encoded, b"2", b"0"), body)


def heartbeat(
    topic: str = "TopicA", expression: str = "*", version: int = 1, group: str = "CG", model: str = "CLUSTERING"
) -> bytes:
    subscription = {"topic": topic, "subString": expression, "subVersion": version, "expressionType": "TAG"}
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": model,
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription], "unitMode": False,
    }  # fmt: skip
    body = json.dumps({"clientID": "c@1", "consumerDataSet": [consumer], "producerDataSet": []}).encode()
    return framed(b'{"code":34,"flag":0,"language":"JAVA","opaque":3,"version":479}', body)


def reads(*frames: bytes, number: int = 0) -> list[Step]:
    return [("read", number, frame) for frame in frames]


#: Forty messages of 1 KiB, adjacent.
FORTY = [*reads(*[send(b"%d" % number * 512) for number in range(40)]), ("tick",)]
#: The same in three queues, one after the other.
SCATTERED = reads(*[send(b"%d" % number * 512, queue_id=number % 3) for number in range(120)])


# --- the compiled part answers


@pytest.mark.parametrize("style", ["java", "go", "cpp", "binary"])
@pytest.mark.parametrize("code", [11, 361])
def test_usual_pulls_are_answered(come_to, style, code):
    """A fast path that is never taken would pass every other test."""
    asked = reads(*[pull(offset=offset, style=style, code=code, opaque=offset) for offset in range(20)])
    got = come_to([*FORTY, *asked])
    assert got.taken == 19, "Python admits the first one"
    assert got.counters["given"] == sum(min(32, 40 - offset) for offset in range(20))
    assert len(got.counters["deliveries"]) == 20 * 16, "each answer is noted"
    assert [one.client for one in got.counters["told"].values()] == ["10.0.0.1:5000"]
    assert come_to([*FORTY, ("files",), *asked]).taken == 19
    assert come_to([*FORTY, ("files",), *FORTY[:5], *asked]).taken == 19


def test_scattered_records_are_answered(come_to):
    got = come_to([*SCATTERED, *reads(*[pull(offset=offset) for offset in range(8)])])
    assert (got.taken, got.counters["found"]) == (7, 8)
    assert come_to([*SCATTERED, ("files",), *reads(*[pull(offset=offset) for offset in range(8)])]).taken == 7


def test_records_that_are_not_known_to_be_cached_are_copied(come_to):
    steps = [*FORTY, ("is_cached", False), *reads(*[pull(offset=offset) for offset in range(8)])]
    assert come_to(steps).taken == 7


def test_tags_are_answered(come_to):
    sends = reads(*[send(b"x" * 700, tag="ABC"[number % 3]) for number in range(90)])
    asked = reads(*[pull(offset=offset, subscription="A || C") for offset in range(10)])
    for between in ([], [("files",)]):
        got = come_to([*sends, *between, *asked])
        assert (got.taken, got.counters["given"]) == (9, 320)
    many = "||".join(f"{number}" for number in range(70)) + "||A"  # more than a plan holds, short enough for the loop
    assert come_to([*sends, *reads(*[pull(subscription=many)] * 3)]).counters["found"] == 3


def test_messages_of_every_size_are_answered(come_to):
    """Messages that are copied, that are sent from the page cache, and answers that span two files of the log."""
    chance = random.Random(5)
    sends = reads(*[send(chance.randbytes(chance.choice((1, 100, 4000, 7900)))) for _ in range(120)])
    asked = reads(*[pull(offset=offset, maxMsgNums=most) for offset in range(0, 120, 3) for most in (1, 4, 32)])
    for between in ([], [("files",)], [("first_file",)]):
        got = come_to([*sends, *between, *asked], SMALL)
        assert got.taken > 60


def test_pulls_stand_between_sends_in_one_read(come_to):
    mixed = b"".join(send(b"%d" % number) + pull(offset=number) + send(b"b" * 9000) for number in range(20))
    got = come_to([*FORTY, *reads(pull(), mixed, mixed)])
    assert got.taken >= 1


# --- what else a pull does


def test_commits_come_with_pulls(come_to):
    asked = reads(*[pull(offset=offset, sysFlag=5, commitOffset=offset + 1) for offset in (0, 3, 9, 2)])
    got = come_to(
        [*FORTY, *asked, *reads(pull(sysFlag=5, commitOffset=-1), pull(offset=99, sysFlag=5, commitOffset=7))]
    )
    assert got.taken == 4
    assert got.counters["committed"] == [("TopicA", "CG", [(0, 7)], 5)]
    assert got.counters["commits"] == 5


def test_a_reset_is_told_until_it_is_taken_over(come_to):
    steps = [*FORTY, *reads(pull(), pull()), ("reset", "CG", "TopicA", 0, 4), *reads(pull(offset=8), pull(offset=4))]
    got = come_to([*steps, ("reset", "Other", "TopicA", 0, 4), *reads(pull(offset=5))])
    assert got.taken == 2, "all but the first one, the one with a notice, and the one that goes where it was sent"


@pytest.mark.parametrize("hold", [{"sysFlag": 6, "suspendTimeoutMillis": 15_000}, {"sysFlag": 4}])
def test_pulls_that_find_nothing_yet(come_to, hold):
    steps = [*FORTY, *reads(pull(offset=3), pull(offset=40, **hold), pull(offset=40, queue_id=2, **hold))]
    come_to(steps)
    come_to([*steps, *reads(send(b"now"), number=1), ("tick",), *reads(pull(offset=40))])
    come_to([*steps, ("advance", 20_000), ("tick",), ("tick",)])
    come_to([*steps, ("hang_up", 0), ("tick",), *reads(send(b"now"), number=1)])
    come_to([("broker_options", {}), *steps][1:])


def test_every_place_of_an_offset(come_to):
    places = (-5, 0, 39, 40, 41, 1 << 40, -(1 << 40))
    asked = reads(*[pull(offset=offset, opaque=offset & 255) for offset in places])
    for between in (
        [],
        [("files",)],
        [("forget_below", "TopicA", 0, 10)],
        [("files",), ("forget_below", "TopicA", 0, 39)],
    ):
        come_to([*FORTY, *reads(pull()), *between, *asked])


# --- what was admitted once


CHANGES: dict[str, list[Step]] = {
    "a group that may not consume": [("group_is_", "CG", {"consume_enable": False})],
    "a group's flags": [("group_is_", "CG", {"group_sys_flag": 3})],
    "a group that is deleted": [("ungroup", "CG")],
    "a topic that may not be read": [("topic", "TopicA", 2)],
    "fewer queues": [("topic", "TopicA", 6, 0)],
    "another configuration": [("topic", "TopicA", 6, 7)],
    "a topic that is deleted": [("forbid", "TopicA")],
    "a topic that was deleted and made again": [("forbid", "TopicA"), ("forget", "TopicA"), *reads(send(b"new"))],
    "a broker that may not be read": [("broker_options_", {"broker_permission": 2})],
    "no light pulls": [("broker_options_", {"lite_pull_message_enable": False})],
    "other limits": [("limits_", {"max_count_in_memory": 5, "max_bytes_in_memory": 3000})],
    "old messages": [("limits_", {"memory_bytes": 10, "max_count_on_disk": 3})],
    "a member that leaves": [("hang_up", 1), ("tick",)],
    "another subscription": reads(heartbeat(expression="TagB", version=2), number=1),
    "a newer one that is the same": reads(heartbeat(version=5), number=1),
    "another topic": reads(heartbeat(topic="TopicB"), number=1),
    "broadcasting": reads(heartbeat(model="BROADCASTING"), number=1),
    "broadcasting that is not allowed": [
        *reads(heartbeat(model="BROADCASTING"), number=1),
        ("group_is_", "CG", {"consume_broadcast_enable": False}),
    ],
    "nothing": [],
}


@pytest.mark.parametrize("code", [11, 361])
@pytest.mark.parametrize("own", [True, False], ids=["brings its subscription", "by heartbeat"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda name: name.replace(" ", "_"))
def test_a_change_holds_for_the_next_pull(come_to, change, own, code):
    fields: dict[str, Any] = {} if own else {"sysFlag": 0, "subscription": None, "subVersion": 1}
    asked = reads(*[pull(offset=offset, code=code, **fields) for offset in (0, 1)])
    steps: list[Step] = [*reads(heartbeat(), number=1), *FORTY, *asked]
    for name, *arguments in CHANGES[change]:
        if name.endswith("_"):  # the last argument names what changes
            *arguments, named = arguments
            steps.append((f"{name}named", *arguments, named))
        else:
            steps.append((name, *arguments))
    got = come_to([*steps, *asked, *asked])
    if change == "nothing":
        assert got.taken == 5
    assert got.taken >= 1, "before the change"


for _name in ("group_is", "broker_options", "limits"):

    def _named(self: PullTwin, *arguments: Any, name: str = _name) -> None:
        *others, named = arguments
        getattr(self, f"do_{name}")(*others, **named)

    setattr(PullTwin, f"do_{_name}_named", _named)


def test_a_newer_version_than_the_group_is_known_to_have(come_to):
    versions = [pull(sysFlag=0, subscription=None, subVersion=version) for version in (1, 3, 2, 4, 3)]
    got = come_to([*reads(heartbeat(version=3), number=1), *FORTY, *reads(*versions)])
    assert got.taken == 3


def test_groups_and_topics_that_are_alike(come_to):
    """Names, expressions and types whose concatenations are equal are kept apart."""
    asked = []
    for group, topic in (("CG", "TopicA"), ("CGT", "opicA"), ("C", "GTopicA"), ("CG", "TopicA"), ("CGTopicA", "")):
        for expression, kind in (("*", "TAG"), ("*T", "AG"), ("", "TAG"), ("TAG", ""), (None, None), ("TagA", None)):
            asked.append(pull(topic=topic, consumerGroup=group, subscription=expression, expressionType=kind))
    sends = reads(send(b"x", topic="opicA"), send(b"y", topic="GTopicA"))
    for queue_id in (0, 1, 2, 1 << 30, (1 << 30) + 1, (1 << 31) - 1, -1):
        asked.append(pull(queue_id=queue_id))
    assert come_to([*FORTY, *sends, *reads(*asked, *asked)]).taken > 8


# --- headers


@pytest.mark.parametrize("name", ["queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset", "subVersion"])
def test_numbers_are_written_in_many_ways(come_to, name):
    forms = (
        b'"1"', b"1", b'"01"', b'" 1"', b'"+1"', b"1.0", b'"1.0"', b"1e0", b'"-0"', b"-1", b'"-1"', b'""', b"null",
        b"true", b'"2147483648"', b"9223372036854775807", b'"9223372036854775808"', b'"\\u0031"', b"[]", b'"1_0"',
        b'"4611686018427387905"',
    )  # fmt: skip
    come_to([*FORTY, *reads(pull(), *[pull(**{name: form}) for form in forms for _ in range(2)])])


def test_other_headers(come_to):
    odd = [
        pull(flag=2), pull(flag=1), pull(flag=4), pull(consumerGroup=b'"C\\u0047"'), pull(topic=b"null"),
        pull(topic="Nobody"), pull(consumerGroup=""), pull(topic=""), pull(subscription=quoted("TagA \u00fc || TagA")),
        pull(subscription=b'"\\ud800"'), pull(subscription="x" * 2000), pull(expressionType="SQL92"),
        pull(extra="more"),
        pull(queueId=None), pull(sysFlag=None), pull(commitOffset=None, suspendTimeoutMillis=None, subVersion=None),
        pull(subscription=None), pull(maxMsgNums=0), pull(maxMsgNums=-3), pull(maxMsgNums=1 << 40), pull(sysFlag=12),
        pull(sysFlag=4 + 64), pull(code=360), pull(style="cpp", subscription=""), pull(opaque=-(1 << 31)),
        pull(opaque=(1 << 31) - 1),
    ]  # fmt: skip
    got = come_to([*FORTY, *reads(pull(), *odd, *odd)])
    assert got.taken > 10


@pytest.mark.parametrize("subscription", ["*", "TagA || TagC"])
def test_a_pull_that_was_held_is_answered(come_to, subscription):
    """The compiled part treats changes during the hold as Python does."""

    def held(offset: int = 40) -> bytes:
        return pull(offset=offset, subscription=subscription, sysFlag=6, suspendTimeoutMillis=15_000)

    known = [*FORTY, *reads(held(0), number=1)]
    woken = [*reads(held(), number=1), ("tick",), *reads(send(b"late")), ("tick",)]
    assert come_to([*known, *woken]).taken == 1
    assert come_to([*known, *woken]).counters["held"] == 0
    for between in (
        ("slow", 1, True), ("close", 1), ("reset", "CG", "TopicA", 0, 3), ("ungroup", "CG"), ("is_cached", False),
    ):  # fmt: skip
        come_to([*known, *reads(held(), number=1), ("tick",), between, *reads(send(b"late")), ("tick",)])
    unwanted = [*reads(send(b"other", tag="TagB")), ("tick",), *reads(send(b"late")), ("tick",)]
    come_to([*known, *reads(held(), number=1), *unwanted])


def test_pulls_that_were_held_at_one_queue_are_answered_together(come_to):
    """Peers in all states among them, and pulls that the compiled part leaves to Python."""

    def held(**changes: Any) -> bytes:
        return pull(**{"offset": 40, "sysFlag": 6, "suspendTimeoutMillis": 15_000} | changes)

    known = [*FORTY, *reads(held(offset=0), held(offset=0, consumerGroup="Other"), number=1)]
    other = [held(opaque=4, subscription="TagB"), held(opaque=5, consumerGroup="Other"), held(opaque=6, code=361)]
    waiting = [*reads(held(opaque=1), held(opaque=2), number=1), *reads(held(opaque=3), *other, number=2)]
    waiting += [step for number in range(3, 30) for step in reads(held(opaque=number), number=number)]
    woken = [("tick",), *reads(send(b"late")), ("tick",)]
    got = come_to([*known, *waiting, *woken])
    assert (got.taken, got.counters["held"]) == (32, 1)
    for between in (
        ("slow", 3, True), ("close", 3), ("hang_up", 3), ("reset", "Other", "TopicA", 0, 3), ("ungroup", "CG"),
        ("group_is_named", "CG", {"consume_enable": False}), ("is_cached", False),
    ):  # fmt: skip
        come_to([*known, *waiting, ("tick",), between, *woken])


# --- peers


@pytest.mark.parametrize("scattered", [False, True])
def test_a_peer_that_takes_nothing_for_a_while(come_to, monkeypatch, scattered):
    """Bytes that the socket does not take are kept exactly; beyond the outbox's limit answers wait."""
    monkeypatch.setattr(outbox, "OUTBOX_HIGH_BYTES", 200_000)
    asked = reads(*[pull(offset=number % 4, opaque=number) for number in range(60)])
    messages = SCATTERED if scattered else FORTY
    some: list[Step] = [("take", 0, 5000), ("tick",), ("take", 0, 100_000), ("tick",)]
    got = come_to([*messages, *reads(pull()), ("slow", 0, True), *asked, *some, ("slow", 0, False), ("tick",)])
    assert got.counters["found"] == 61
    assert 1 < got.taken < 61, "until it takes no more"
    come_to([*messages, *reads(pull()), ("slow", 0, True), *asked, ("hang_up", 0), ("tick",)])
    come_to([*messages, *reads(pull()), ("slow", 0, True), *asked, ("close", 0), ("tick",)])
    come_to([*messages, *reads(pull(), pull() * 5), ("shut", 0), ("tick",), ("hang_up", 0)])
    come_to([*messages, *reads(pull()), ("write", 0, pull() * 5), ("hang_up", 0), ("tick",)])


# --- damage


@pytest.mark.parametrize("between", [[], [("repaired",)]], ids=["unnoticed", "replaced"])
@pytest.mark.parametrize("entries", [HOLE, HOLE * 3, bytes(ENTRY_BYTES)], ids=["hole", "holes", "zeros"])
def test_files_that_lack_entries(come_to, entries, between):
    """The entries go missing before any pull has read them."""
    asked = reads(*[pull(offset=offset) for offset in (0, 1, 5, 6, 8)])
    for first in (0, 5, 39):
        come_to([*FORTY, ("files",), ("entries", "TopicA", 0, first, entries), *between, *asked, *asked])


def test_entries_that_were_replaced_are_read_again(come_to):
    """A pull reads ahead; entries read ahead become invalid once files were replaced."""
    asked = reads(*[pull(offset=offset) for offset in range(4)])
    steps = [*FORTY, ("files",), *asked, ("entries", "TopicA", 0, 2, HOLE * 2), ("repaired",), *asked[1:]]
    assert come_to(steps).taken == 6


# --- anything


def _anything(chance: random.Random) -> list[Step]:
    steps: list[Step] = [*reads(heartbeat(), number=1)]
    for _ in range(60):
        pick = chance.randrange(24)
        number = chance.randrange(2)
        queue_id = chance.randrange(2)
        if pick < 6:
            sends = b"".join(
                send(
                    chance.randbytes(chance.choice((1, 300, 3000))),
                    queue_id=chance.randrange(2),
                    tag=chance.choice("AB"),
                )
                for _ in range(chance.choice((1, 5, 20)))
            )
            steps += reads(sends, number=number)
        elif pick < 8:
            steps += reads(batch(chance.choice((2, 32)), chance.choice((5, 200)), queue_id=queue_id), number=number)
        elif pick < 19:
            frames = b""
            for _ in range(chance.choice((1, 1, 2, 6))):
                own = chance.random() < 0.7
                frames += pull(
                    queue_id=queue_id,
                    offset=chance.choice((0, 1, 5, 17, 30, 60, 100, 300)),
                    style=chance.choice(("java", "java", "go", "cpp", "binary")),
                    maxMsgNums=chance.choice((32, 32, 1, 5, 100)),
                    sysFlag=(4 if own else 0) | chance.choice((0, 0, 1, 2, 3)),
                    commitOffset=chance.randrange(50),
                    suspendTimeoutMillis=chance.choice((0, 1000, 15_000)),
                    subscription=chance.choice(("*", "A", "A || B", "C")) if own else None,
                    opaque=chance.randrange(1000),
                )
            steps += reads(frames, number=number)
        else:
            steps.append(
                chance.choice(
                    (
                        ("files",), ("files",), ("advance", 700), ("tick",), ("sync",), ("slow", number, True),
                        ("slow", number, False), ("take", number, 3000), ("hang_up", number), ("repaired",),
                        ("limits_named", {"max_count_in_memory": chance.choice((3, 32))}),
                        ("forget_below", "TopicA", queue_id, chance.randrange(40)), ("first_file",),
                        ("reset", "CG", "TopicA", queue_id, 3), ("group_is_named", "CG", {"group_sys_flag": number}),
                        ("is_cached", chance.random() < 0.5), ("hold", chance.random() < 0.5),
                    )
                )
            )  # fmt: skip
            if steps[-1][0] == "forget_below":
                steps[-1:] = [*reads(send(b"x", queue_id=queue_id), number=1), ("tick",), ("sync",), steps[-1]]
    return steps


@pytest.mark.parametrize("part", range(3))
def test_whatever_happens(come_to, part):
    taken = 0
    for seed in range(part * 12, part * 12 + 12):
        chance = random.Random(seed)
        setting = Setting(segment_bytes=chance.choice((64 * 1024, 1 << 20)), synchronous=chance.random() < 0.3)
        taken += come_to(_anything(chance), setting).taken
    assert taken > 60
