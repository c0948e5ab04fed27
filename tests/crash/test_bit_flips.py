"""Every kind of file, harmed at random: one bit flipped, or its end cut off.

Three promises. In bytes that a checksum covers, or that something else in the store bears out, `verify` reports the
harm. A start never ends in a traceback: it works, or is refused with a sentence. Every message whose record and queue
entry were not harmed is served as it was. Harms in bytes without such cover are counted and printed.
"""

from __future__ import annotations

import json
import logging
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from appliance.engine.broker.groups import SubscriptionGroupManager
from appliance.engine.broker.offsets import ConsumerOffsetManager
from appliance.engine.broker.topics import TopicConfigManager
from appliance.engine.config import BrokerConfig
from appliance.engine.config_journal import ConfigJournal, decode_line, encode_entry
from appliance.engine.errors import RocketBoxError, StartError
from appliance.engine.protocol.properties import java_hash
from appliance.engine.protocol.record import decode_record
from appliance.engine.store.checkpoint import SLOT_BYTES
from appliance.engine.store.findings import Finding
from appliance.engine.store.message_store import MessageStore
from appliance.engine.store.paths import StorePaths
from appliance.engine.store.queues.consume_queue import ENTRY
from appliance.engine.store_tools.offline_store import find_store
from appliance.engine.store_tools.problems import Problems
from appliance.engine.store_tools.verification import verify
from tests.crash.recording_disk import RecordingDisk
from tests.support.clock import FakeClock
from tests.support.directories import shared_directory
from tests.support.effort import effort
from tests.support.golden import GOLDEN, extract_store, store_manifest
from tests.support.store import BORN, STORE_HOST, Inline, StoreUnderTest

#: Harms per kind of file: fifteen kinds in RocketBox's store, half as many harms for each of four in a recorded one.
HARMS = effort(130, 400, 4000)
SEGMENT = 8 * 1024

#: Kind of file -> whether `verify` must name every harm of it.
COVERED = {
    "sealed log": True,
    "open log": False,  # beside bodies only what queue and index entries bear out
    "queue": True,
    "index": False,  # what is behind its last entry, and the header's second time, mean nothing
    "checkpoint": False,
    "configuration": False,
    "journal": True,
    "recovery position": True,
    "deleted topics": True,
    "index position": True,
    "queue ledger": True,
    "block checksums": True,
    "findings": False,
    "options": False,
    "extension": False,  # the bit map is a hint
    "abort": False,
    "format": False,
}
#: Least share of the harms that is reported in files without a promise; measured, with room.
AT_LEAST = {"open log": 0.6, "index": 0.5, "configuration": 0.1, "extension": 0.4}


def kind_of(path: str, sealed: set[str]) -> str | None:
    """The kind of a file by its path below the data directory; None for what holds nothing."""
    top, _, rest = path.partition("/")
    part = rest.partition("/")[0]
    if top == "store":
        if part == "commitlog":
            return "sealed log" if path in sealed else "open log"
        kinds = {"consumequeue": "queue", "consumequeue_ext": "extension", "index": "index", "config": "configuration"}
        return kinds.get(part, part if part in ("checkpoint", "abort") else None)
    if part == "blocks":
        return "block checksums"
    if part.startswith("queue-ledger-"):
        return "queue ledger"
    return {
        "config.journal": "journal",
        "recovery-position": "recovery position",
        "deleted-topics.json": "deleted topics",
        "index-position": "index position",
        "options.json": "options",
        "quarantine": "findings",
        "format": "format",
    }.get(part)


class Harmed:
    """One harm: `data` instead of the file's bytes; [begin, end) are the positions that changed."""

    def __init__(self, path: str, whole: bytes, chance: random.Random, cut: bool) -> None:
        self.path = path
        used = len(whole.rstrip(b"\0")) + 1
        self.cut = cut and len(whole) > 0
        if self.cut or not whole:
            self.begin, self.end = (chance.randrange(min(used, len(whole))), len(whole)) if whole else (0, 0)
            self.data = whole[: self.begin]
        else:
            # Mostly where there is something; now and then in the zeros behind it.
            within = len(whole) if chance.random() < 0.1 else min(used, len(whole))
            self.begin = chance.randrange(within)
            if path.endswith("recovery-position"):  # between its two slots and behind them is nothing
                self.begin = chance.choice((0, 4096)) + chance.randrange(SLOT_BYTES)
            if "/consumequeue/Old/" in path:  # in front stands a filler for what was deleted, and that is not read
                self.begin = ENTRY.size + self.begin % (within - ENTRY.size)
            self.end = self.begin + 1
            flipped = bytearray(whole)
            flipped[self.begin] ^= 1 << chance.randrange(8)
            self.data = bytes(flipped)

    def __repr__(self) -> str:
        return f"{self.path} {'cut at' if self.cut else 'flipped at'} {self.begin}"


class Subject:
    """A whole store on disk, its bytes, and what a reader gets from it: place -> (body, physical offset, size)."""

    def __init__(self, directory: Path, settings) -> None:
        self.directory = directory
        self.settings = settings
        self.files = {
            str(path.relative_to(directory)): path.read_bytes()
            for path in sorted(directory.rglob("*"))
            if path.is_file() and path.name not in ("lock", "timerwheel", "timercheck", "position-checkpoint")
        }
        blocks = {Path(path).name for path in self.files if path.startswith("rocketbox/blocks/")}
        self.sealed = {f"store/commitlog/{name}" for name in blocks}
        self.whole = self.served({})
        store = find_store(directory)
        problems = Problems()
        verify(store, problems)
        store.close()
        assert problems.kept == [], "whole to begin with"

    def by_kind(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self.files:
            kind = kind_of(path, self.sealed)
            if kind is not None:
                found.setdefault(kind, []).append(path)
        return found

    def named(self, harm: Harmed) -> list:
        """Return the problems that `verify` reports while the harm is there."""
        path = self.directory / harm.path
        path.write_bytes(harm.data)
        store = find_store(self.directory)
        problems = Problems()
        try:
            verify(store, problems)
        finally:
            store.close()
            path.write_bytes(self.files[harm.path])
        return problems.kept

    def served(self, changed: dict[str, bytes]) -> dict[tuple[str, int, int], tuple[bytes, int, int]]:
        """Open a copy in memory and read every queue. Raises StartError when it refuses."""
        image: dict[str, bytes | None] = {"/store/commitlog": None, "/rocketbox": None}
        for path, data in {**self.files, **changed}.items():
            parts = path.split("/")
            for count in range(1, len(parts)):
                image["/" + "/".join(parts[:count])] = None
            image[f"/{path}"] = data
        disk = RecordingDisk(image)
        store = MessageStore(self.settings, StorePaths(Path("/store"), Path("/rocketbox")), disk, Inline(), STORE_HOST)
        store.log._allocator.start = lambda: None  # type: ignore[method-assign]
        store.open()
        repair = store._flush_queues.repair
        for _ in range(3):  # what a reader meets is built anew, as what the check behind the start finds
            while repair.pending and repair.step():
                pass
            found = self._read(store)
        return found

    @staticmethod
    def _read(store: MessageStore) -> dict[tuple[str, int, int], tuple[bytes, int, int]]:
        found = {}
        for queue in store.queues.all():
            offset = queue.min_offset
            while offset < queue.max_offset:
                # One at a time: a harmed record cannot be asked for its own place.
                result = store.get(queue, offset, 1)
                if result is None or result.next_offset <= offset:
                    break
                for physical, size in result.runs:
                    try:
                        record = decode_record(store.log.read(physical, size))
                    except RocketBoxError:
                        break
                    found[queue.topic, queue.queue_id, offset] = (record.body, physical, size)
                offset = result.next_offset
        return found

    def unharmed(self, harm: Harmed) -> dict[tuple[str, int, int], bytes]:
        """The messages whose record and queue entry the harm did not touch."""
        found = {}
        name = Path(harm.path).name
        for (topic, queue_id, offset), (body, physical, size) in self.whole.items():
            if harm.path.startswith("store/commitlog/"):
                at = physical - int(name)
                if at < harm.end and harm.begin < at + size:
                    continue
            elif harm.path.startswith(f"store/consumequeue/{topic}/{queue_id}/"):
                at = offset * 20 - int(name)
                if at < harm.end and harm.begin < at + 20:
                    continue
            found[topic, queue_id, offset] = body
        return found


def fill_config(directory: Path) -> None:
    """Tables as Apache writes them, a journal, options and a finding."""
    config = directory / "store" / "config"
    config.mkdir()
    for path in (GOLDEN / "config" / "5.3.3" / "mixed").iterdir():
        shutil.copy(path, config / path.name)
        shutil.copy(path, config / f"{path.name}.bak")
    value = json.loads('{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"writeQueueNums":4}')
    entries = [
        encode_entry(
            {
                "table": "topics",
                "name": f"Journalled{i}",
                "value": {**value, "topicName": f"Journalled{i}", "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0},
                "version": {"counter": 100 + i, "timestamp": 1_900_000_000_000},
            }
        )
        for i in range(5)
    ]
    (directory / "rocketbox" / "config.journal").write_bytes(b"".join(entries))
    (directory / "rocketbox" / "options.json").write_text('{"broker.autoCreateTopicEnable": "false"}')


@pytest.fixture(scope="module")
def ours(request) -> Subject:
    """Stopped in order: three closed files of the log and an open one, three queues, a deleted topic, two indexes."""
    directory = shared_directory(request, "ours")
    store = StoreUnderTest(directory, segment_bytes=SEGMENT)
    store.settings = store.settings._replace(
        queue_file_bytes=400, index_enabled=True, index_slots=50, index_entries=100
    )
    store.open()
    for i in range(105):
        queue = store.store.queues.get_or_create("Orders", i % 3)
        properties = b"TAGS\x01T%d\x02KEYS\x01k%d\x02UNIQ_KEY\x01%032X\x02" % (i % 3, i, i)
        store.store.put(queue, b"\x06Orders", b"%d " % i * 40, properties, java_hash(f"T{i % 3}"), 0, 0, 1, BORN, 0)
        store.tick()
    store.write("Old", 0, b"gone")
    store.wait_recovery_position()
    store.store.delete_topic("Old")
    store.write("Old", 0, b"anew")
    while store.store.blocks.sealed < 3:
        store.store.blocks.wakeup()
    store.store.files.add_finding(Finding(1, "torn", "commitlog", 0, 1, "/nowhere", "As an example."))
    store.wait_recovery_position()
    store.stop()
    fill_config(directory)
    return Subject(directory, store.settings)


@pytest.fixture(scope="module")
def apaches(request) -> Subject:
    """Apache's with extension files, stopped in order."""
    directory = shared_directory(request, "apaches")
    extract_store("4.9.8", "cqext", directory)
    config = store_manifest("4.9.8", "cqext")["config"]
    settings = StoreUnderTest(directory, segment_bytes=config["mappedFileSizeCommitLog"]).settings
    return Subject(directory, settings._replace(queue_file_bytes=config["mappedFileSizeConsumeQueue"]))


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def expect_sentence(refusal: RocketBoxError, harm: Harmed | str) -> None:
    """A start may be refused for what is short, or has no good copy; with one sentence."""
    assert str(refusal).endswith("."), (harm, refusal)
    if isinstance(harm, Harmed):
        assert harm.cut or harm.path.startswith(("store/commitlog", "store/config/", "rocketbox/format")), (
            harm,
            refusal,
        )


def harms_of(subject: Subject, kind: str, count: int):
    chance = random.Random(f"harms of {kind}")
    paths = subject.by_kind()[kind]
    for i in range(count):
        path = chance.choice(paths)
        yield Harmed(path, subject.files[path], chance, cut=i % 10 == 9)


def try_harm(subject: Subject, harm: Harmed) -> str:
    """ "named", "unnamed" or "same", after everything that must hold was looked at."""
    if harm.data == subject.files[harm.path]:
        return "same"
    named = bool(subject.named(harm))
    try:
        served = subject.served({harm.path: harm.data})
    except StartError as error:
        expect_sentence(error, harm)
        return "named" if named else "unnamed"
    lost = [place for place, body in subject.unharmed(harm).items() if place not in served or served[place][0] != body]
    assert not lost, (harm, lost)
    return "named" if named else "unnamed"


OURS = (
    "sealed log",
    "open log",
    "queue",
    "index",
    "checkpoint",
    "recovery position",
    "deleted topics",
    "index position",
    "queue ledger",
    "block checksums",
    "findings",
    "format",
)


def judge(kind: str, outcomes: Counter, unnamed: list) -> None:
    tried = outcomes["named"] + outcomes["unnamed"]
    print(f"{kind}: {tried} harms, {outcomes['named']} named by verify, {outcomes['unnamed']} not")
    if COVERED[kind]:
        assert not unnamed, unnamed[:5]
    assert outcomes["named"] >= AT_LEAST.get(kind, 0) * tried, outcomes


@pytest.mark.parametrize("kind", OURS)
def test_harm_in_a_store_of_ours(ours, kind):
    outcomes: Counter = Counter()
    unnamed = []
    for harm in harms_of(ours, kind, HARMS):
        outcome = try_harm(ours, harm)
        outcomes[outcome] += 1
        if outcome == "unnamed":
            unnamed.append(harm)
    judge(kind, outcomes, unnamed)


@pytest.mark.parametrize("kind", ["open log", "queue", "extension", "index"])
def test_harm_in_a_store_of_apaches(apaches, kind):
    outcomes: Counter = Counter()
    unnamed = []
    for harm in harms_of(apaches, kind, HARMS // 2):
        outcome = try_harm(apaches, harm)
        outcomes[outcome] += 1
        if outcome == "unnamed":
            unnamed.append(harm)
    judge(kind, outcomes, unnamed)


@pytest.mark.parametrize("kind", ["configuration", "journal", "options"])
def test_harm_in_configuration(ours, kind, tmp_path):
    """Tables load, from the copy beside them if need be, or say in a sentence which file it is."""
    outcomes: Counter = Counter()
    unnamed = []
    for harm in harms_of(ours, kind, HARMS):
        if harm.data == ours.files[harm.path]:
            continue
        named = bool(ours.named(harm))
        outcomes["named" if named else "unnamed"] += 1
        if not named:
            # Cut at a line's end a journal is a shorter journal.
            # A hex digit has two cases, and nothing depends on the blank behind them.
            if kind == "journal" and (
                (harm.cut and harm.data[-1:] in (b"", b"\n"))
                or entries_of(harm.data) == entries_of(ours.files[harm.path])
            ):
                continue
            unnamed.append(harm)
        scratch = tmp_path / "scratch"
        for path, data in {**ours.files, harm.path: harm.data}.items():
            if path.startswith("store/config/") or path == "rocketbox/config.journal":
                (scratch / path).parent.mkdir(parents=True, exist_ok=True)
                (scratch / path).write_bytes(data)
        load_tables(scratch, harm)
        shutil.rmtree(scratch)
    judge(kind, outcomes, unnamed)


def entries_of(journal: bytes) -> list:
    return [decode_line(line) for line in journal.split(b"\n")]


def load_tables(directory: Path, harm: Harmed) -> None:
    config, broker, clock = directory / "store" / "config", BrokerConfig(broker_name="b"), FakeClock()
    journal = ConfigJournal(directory / "rocketbox" / "config.journal")
    try:
        topics = TopicConfigManager(config / "topics.json", broker, journal, clock)
        groups = SubscriptionGroupManager(config / "subscriptionGroup.json", broker, journal, clock)
        offsets = ConsumerOffsetManager(config / "consumerOffset.json", 5000, clock)
    except RocketBoxError as error:
        expect_sentence(error, harm)
    else:
        if harm.path.endswith((".bak", "journal")) or harm.cut:
            # The file itself is whole, or its copy counts.
            assert topics.get("StoreBatch") is not None, harm
            assert groups.get("CG_Store") is not None, harm
            assert offsets.get("CG_Store", "StoreTagged", 0) >= 0, harm
    finally:
        journal._file.close()


def test_abort_may_say_anything(apaches):
    """Its being there is what counts."""
    for data in (b"", b"1", b"\xff" * 100, b"x" * 100_000):
        assert apaches.served({"store/abort": data}).keys() == apaches.whole.keys()


def test_a_cut_of_everything_to_nothing(ours):
    """Empty files, one at a time: the broker starts, or says in a sentence which file it is."""
    for path in ours.files:
        if kind_of(path, ours.sealed) not in (None, "configuration", "journal", "options"):
            try:
                served = ours.served({path: b""})
            except StartError as error:
                expect_sentence(error, path)
                continue
            if not path.startswith(("store/commitlog", "store/consumequeue")):
                assert served == ours.whole, path


def test_the_entries_of_a_harmed_queue_are_what_the_log_says(ours):
    """For the subjects above: the test computes an entry's place correctly."""
    for (topic, queue_id, offset), (_, physical, size) in ours.whole.items():
        number = offset * 20 // 400 * 400
        data = ours.files[f"store/consumequeue/{topic}/{queue_id}/{number:020d}"]
        assert ENTRY.unpack_from(data, offset * 20 - number)[:2] == (physical, size)
