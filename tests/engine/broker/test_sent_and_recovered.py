"""A crash leaves what the acknowledgement promised: the same record, the same queue entry, at the same offset."""

import random
import struct

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from appliance.engine.broker.groups import SubscriptionGroupManager
from appliance.engine.broker.sending.send_back import MOST_RETRIES
from appliance.engine.broker.topics import TopicConfigManager
from appliance.engine.config import BrokerConfig
from appliance.engine.config_journal import ConfigJournal
from appliance.engine.filter.tags import tag_filter
from appliance.engine.protocol.codes import ResponseCode
from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.properties import TAGS, decode_properties, find_property
from appliance.engine.protocol.record import SYS_INNER_BATCH, decode_record
from appliance.engine.store.dispatch import (
    SCHEDULE_TOPIC,
    entry_tag_code,
    has_queue_entry,
    properties_tag_code,
    tag_code,
)
from appliance.engine.store.queues.consume_queue import ENTRY, ENTRY_BYTES
from appliance.engine.store.results import GetStatus
from tests.support.clock import FakeClock
from tests.support.directories import shared_directory
from tests.support.sending import HostileSend, Sender, good_properties
from tests.support.store import BORN, StoreUnderTest

KEY = "UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBA0000\x02"
BORN_IPV6 = encode_host("fd00::1", 5000)


class Rig:
    """A store behind the broker's send path, which dies and comes back as after SIGKILL."""

    def __init__(self, directory):
        self.under_test = StoreUnderTest(directory, segment_bytes=1 << 20)
        self._journal = journal = ConfigJournal(directory / "config.journal")
        config, clock = BrokerConfig(), FakeClock()
        self._topics = TopicConfigManager(directory / "topics.json", config, journal, clock)
        self._groups = SubscriptionGroupManager(directory / "groups.json", config, journal, clock)
        self.open()

    def open(self):
        self.store = self.under_test.open().store
        self._sender = Sender(self.store, self._topics, self._groups)

    def send(self, send, born_host=BORN):
        """Send in a tick of its own; return (code, physical offsets)."""
        found = self._sender.send(send, born_host)
        self.store.end_tick()
        return found

    def send_back(self, fields, version=479):
        """Send back (36) in a tick of its own; return as `send` does."""
        found = self._sender.send_back(fields, version)
        self.store.end_tick()
        return found

    def die_and_come_back(self):
        self.under_test.die()
        self.open()

    def stop(self):
        self.under_test.stop()
        self._journal.stop()

    def entries(self):
        """Return (topic, queue id) -> (first offset, all entries) from files and tails."""
        found = {}
        for queue in self.store.queues.all():
            data = b""
            while len(data) < queue.max_offset * ENTRY_BYTES:
                data += self.store.queues.read_entries(queue, len(data) // ENTRY_BYTES, 1000)
            if data:
                found[queue.topic, queue.queue_id] = data
        return found


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    rig.stop()


def a_send(properties=KEY, sys_flag=0, body=b"body", **more):
    return HostileSend("T", 0, [(body, "")], properties, sys_flag, **more)


def a_batch(members, common=KEY, **more):
    return HostileSend("T", 0, members, common, code=320, batch=True, **more)


def signed(bits):
    return struct.unpack(">i", struct.pack(">I", bits))[0]


names = st.sampled_from([
    "TAGS", "KEYS", "UNIQ_KEY", "WAIT", "DELAY", "CLUSTER", "MSG_REGION", "TRACE_ON", "POP_CK", "INNER_NUM", "XTAGS",
    "__RMQ.TRANSIENT.X", "a", "",
])  # fmt: skip
values = st.one_of(
    st.sampled_from(["", "0", "TagA", "TagB", "\0", "\0" * 511, "\0" * 512, "\0" * 1200, "x\x01TAGS\x01y"]),
    st.text(max_size=20),
)
pairs = st.tuples(names, st.sampled_from(["\x01", "\x01", "\x01", ""]), values, st.sampled_from(["\x02", "\x02", ""]))
texts = st.one_of(st.lists(pairs, max_size=6).map(lambda all: "".join(map("".join, all))), st.just(KEY))
bits = st.one_of(st.just(0), st.integers(0, 31).map(lambda n: 1 << n), st.integers(0, (1 << 32) - 1))
bodies = st.binary(min_size=1, max_size=200)
numbers = st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)])
sends = st.one_of(
    st.builds(
        HostileSend,
        st.just("T"),
        st.integers(0, 3),
        st.tuples(bodies, st.just("")).map(lambda one: [one]),
        texts,
        bits.map(signed),
        st.sampled_from([10, 310]),
        st.sampled_from([0, 1]),
        st.just(False),
        numbers,
        numbers,
    ),
    st.builds(
        HostileSend,
        st.just("T"),
        st.integers(0, 3),
        st.lists(st.tuples(st.binary(max_size=200), texts), min_size=1, max_size=5),
        texts,
        bits.map(signed),
        st.sampled_from([310, 320]),
        st.sampled_from([0, 1]),
        st.just(True),
        numbers,
        numbers,
    ),
)


@pytest.fixture(scope="module")
def long_lived(request):
    rig = Rig(shared_directory(request, "sends"))
    yield rig
    before, records = rig.entries(), sum(len(data) for data in rig.entries().values()) // ENTRY_BYTES
    assert records > 100
    rig.die_and_come_back()
    assert rig.entries() == before
    rig.stop()


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(sends, st.booleans())
def test_the_entry_of_every_accepted_send_is_the_one_recovery_would_build(long_lived, send, ipv6):
    try:
        send.frame()
    except UnicodeEncodeError:
        return
    code, places = long_lived.send(send, BORN_IPV6 if ipv6 else BORN)
    assert code in (0, ResponseCode.MESSAGE_ILLEGAL), code
    if code:
        return
    assert len(places) == len(send.members)
    store = long_lived.store
    levels = store.settings.delay_levels_ms
    stored = decode_record(store.log.read(places[0], 1 << 20))
    queue = store.queues.get_or_create(stored.topic, stored.queue_id)
    assert stored.topic == SCHEDULE_TOPIC or (stored.topic, stored.queue_id) == ("T", send.queue_id)
    first = queue.max_offset - len(places)
    for offset, (place, (body, _)) in enumerate(zip(places, send.members, strict=True), first):
        entry = store.queues.read_entries(queue, offset, 1)
        physical, size, tag = ENTRY.unpack(entry)
        record = decode_record(store.log.read(place, size))
        assert (record.body, record.queue_offset, record.physical_offset) == (body, offset, place)
        assert has_queue_entry(record.sys_flag)
        assert (physical, tag) == (place, entry_tag_code(record, levels))


short_numbers = st.one_of(st.integers(-3, 25), numbers, st.integers(-(2**33), 2**33)).map(str)
words = st.one_of(short_numbers, st.sampled_from(["", "soon", "+3", "0x1", "1.5", "\0"]), st.text(max_size=5))
groups = st.sampled_from(["G", "H", "ns%G", "g" * 121, "bad name", "", "%RETRY%G"])
send_backs = st.fixed_dictionaries(
    {"delayLevel": words, "group": groups},
    optional={"maxReconsumeTimes": words, "unitMode": words, "originTopic": st.text(max_size=5), "originMsgId": words},
)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(texts, bodies, numbers, send_backs, st.integers(-1, 1), st.sampled_from([0, 120, 121, 479]), st.booleans())
def test_the_entry_of_every_copy_sent_back_is_the_one_recovery_would_build(
    long_lived, properties, body, times, fields, beside, version, ipv6
):
    try:
        code, places = long_lived.send(
            HostileSend("T", 0, [(body, "")], properties, reconsume_times=times), BORN_IPV6 if ipv6 else BORN
        )
    except UnicodeEncodeError:
        return
    if code:
        return
    store = long_lived.store
    origin = decode_record(store.log.read(places[0], 1 << 20))
    end = store.log.written
    code, copies = long_lived.send_back(fields | {"offset": str(places[0] + beside)}, version)
    assert code in (0, 1, 26), code
    if code:
        assert (store.log.written, store.log.staged) == (end, 0), "refused and stored"
        return
    assert (origin.topic, beside) == ("T", 0), "what waits is not sent back, nor is what lies beside a message"
    copy = decode_record(store.log.read(copies[0], 1 << 20))
    assert (copy.body, copy.flag, copy.sys_flag) == (origin.body, origin.flag, origin.sys_flag)
    assert (copy.born_host, copy.born_time_ms) == (origin.born_host, origin.born_time_ms)
    assert copy.reconsume_times == min(max(0, origin.reconsume_times) + 1, MOST_RETRIES)
    queue = store.find_queue(copy.topic, copy.queue_id)
    physical, size, tag = ENTRY.unpack(store.queues.read_entries(queue, copy.queue_offset, 1))
    assert (physical, size, tag) == (copies[0], copy.size, entry_tag_code(copy, store.settings.delay_levels_ms))
    own = decode_properties(origin.properties)
    found = decode_properties(copy.properties)
    if copy.topic == SCHEDULE_TOPIC:
        level = int(found["DELAY"])
        assert (found["REAL_TOPIC"], copy.queue_id) == (f"%RETRY%{fields['group']}", level - 1)
        assert tag == copy.store_time_ms + store.settings.delay_levels_ms[level - 1]
    for name in own.keys() - {"DELAY", "WAIT", "REAL_TOPIC", "REAL_QID"}:
        assert found[name] == own[name]


@given(texts)
@example("TAGS\x01")
@example("XTAGS\x01a\x02")
@example("TAGS\x01a\x02TAGS\x01b")
def test_the_tag_code_is_that_of_the_property(text):
    assert properties_tag_code(text) == tag_code(find_property(text, TAGS))


@pytest.mark.parametrize("bit", range(32))
@pytest.mark.parametrize("batch", [False, True])
def test_a_system_flag_is_refused_or_outlives_a_crash(rig, bit, batch):
    flag = 1 << bit
    assert rig.send(a_send(body=b"before"))[0] == 0
    made = (a_batch([(b"one", ""), (b"two", "")]) if batch else a_send()).__dict__ | {"sys_flag": signed(flag)}
    code, places = rig.send(HostileSend(**made))
    refused = flag in (4, 8, SYS_INNER_BATCH)
    assert (code, bool(places)) == ((ResponseCode.MESSAGE_ILLEGAL, False) if refused else (0, True))
    assert rig.send(a_send(body=b"behind"))[0] == 0
    bodies = [b"before", *([] if refused else [b"one", b"two"] if batch else [b"body"]), b"behind"]
    assert rig.under_test.bodies("T", 0) == bodies
    before = rig.entries()
    rig.die_and_come_back()
    assert rig.under_test.bodies("T", 0) == bodies
    assert rig.entries() == before
    kept = [record.sys_flag for record in rig.under_test.records("T", 0)[1:-1]]
    hosts = 0x30  # the sender does not decide about the hosts of a record
    assert kept == [signed(flag & ~hosts)] * len(kept)


@pytest.mark.parametrize("zeros", [512, 1200, 30_000])
@pytest.mark.parametrize("code", [10, 310])
def test_zeros_that_may_be_an_unwritten_sector_are_refused(rig, zeros, code):
    assert rig.send(a_send(f"{KEY}a\x01{'0' * zeros}\x02", code=code))[0] == 0
    text = f"{KEY}a\x01{chr(0) * zeros}\x02"
    assert rig.send(a_send(text, code=code)) == (ResponseCode.MESSAGE_ILLEGAL, [])
    assert rig.send(a_batch([(b"x", KEY), (b"y", text)])) == (ResponseCode.MESSAGE_ILLEGAL, [])
    assert rig.send(a_batch([(b"x", KEY)], text)) == (ResponseCode.MESSAGE_ILLEGAL, [])
    assert rig.send(a_batch([(b"x", f"UNIQ_KEY\x01{chr(0) * zeros}\x02")])) == (ResponseCode.MESSAGE_ILLEGAL, [])


def test_other_zeros_are_the_clients_own(rig):
    """At every place of a sector, also at the very end of what the client sent."""
    chance = random.Random(1)
    sent = []
    for number in range(100):
        zeros = "\0" * chance.choice((1, 100, 510, 511))
        body = b"%d" % number + b"x" * chance.randrange(600)
        text = f"{KEY}a\x01{zeros}{'' if number % 3 else chr(2)}"
        assert rig.send(a_send(text, body=body) if number % 2 else a_batch([(body, text)], ""))[0] == 0
        sent.append(body)
    rig.die_and_come_back()
    assert rig.under_test.bodies("T", 0) == sent


def test_consumers_of_a_tag_see_a_batch_whose_tag_is_the_batchs_own(rig):
    members = [(b"plain", ""), (b"own tag", "TAGS\x01TagB\x02"), (b"keyed", good_properties(b"keyed").split("TAGS")[0])]
    assert rig.send(a_batch(members, f"{KEY}TAGS\x01TagA\x02"))[0] == 0
    for _ in range(2):
        queue = rig.store.find_queue("T", 0)
        found = rig.store.get(queue, 0, 32, tag_filter("TagA"))
        if found is None:
            rig.store.queues.read_entries(queue, 0, 32)
            found = rig.store.get(queue, 0, 32, tag_filter("TagA"))
        assert (found.status, found.message_count) == (GetStatus.FOUND, 2)
        rig.die_and_come_back()


def test_a_tag_that_is_given_twice_is_the_stored_one(rig):
    """The map drops empty values, and the remaining ones are what a reader of the record finds."""
    for text in (
        "TAGS\x01TagA\x02TAGS\x01\x02",
        "TAGS\x01TagA\x02TAGS\x01TagB\x02",
        f"TAGS\x01TagA\x02{KEY}TAGS\x01\x02",
    ):
        assert rig.send(a_send(text))[0] == 0
    before = rig.entries()
    rig.die_and_come_back()
    assert rig.entries() == before


@pytest.mark.parametrize("batch", [False, True])
def test_a_batch_of_5x_in_disguise_is_refused(rig, batch):
    """Apache refuses it, too; its recovery would read the number."""
    text = f"{KEY}INNER_NUM\x01many\x02"
    send = a_batch([(b"x", text)]) if batch else a_send(text)
    assert rig.send(send) == (ResponseCode.MESSAGE_ILLEGAL, [])
    assert rig.send(a_send(f"{KEY}XINNER_NUM\x01many\x02"))[0] == 0
