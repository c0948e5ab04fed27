"""36: which consumers may send back which messages, where the copy goes, and that a refusal stores nothing."""

import errno
import threading

import pytest

from appliance.engine.broker.topic_config import new_topic
from appliance.engine.protocol.codes import ResponseCode
from appliance.engine.protocol.names import PERM_READ
from appliance.engine.protocol.properties import decode_properties
from appliance.engine.remoting.event_loop import READABLE
from appliance.engine.shares import Rates
from tests.support.clock import FakeClock
from tests.support.directories import shared_directory
from tests.support.engine import Peer, pull_fields, queue_entry, records, send_fields, start_engine
from tests.support.page_cache import refuse_reads_that_never_wait
from tests.support.store import sync_by
from tests.support.waiting import wait_for

UNIQ = "UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBA0000\x02"
SCHEDULE = "SCHEDULE_TOPIC_XXXX"


@pytest.fixture(scope="module")
def engine(request):
    """An engine in which only levels 3 to 6 end soon."""
    levels = "1h 1h 0s 0s 0s 0s 1h"
    engine = start_engine(shared_directory(request, "engine"), store={"message_delay_level": levels})
    yield engine
    engine.stop()


@pytest.fixture
def group(request):
    return "G_" + "".join(c if c.isalnum() else "_" for c in request.node.name)[:80]


def messages(peer, topic, queue_id=0):
    answer = peer.ask(11, pull_fields(topic, queue_id, 0))
    return records(answer.body) if answer.code == 0 else []


def put(peer, group, properties=UNIQ, body=b"body", **fields):
    """Store a message in a topic of its own and return its record."""
    assert peer.ask(310, send_fields(f"T_{group}", properties=properties, **fields), body).code == 0
    return messages(peer, f"T_{group}")[-1]


def back(peer, record, group, level=0, **changes):
    offset = getattr(record, "physical_offset", record)
    fields = {"offset": offset, "group": group, "delayLevel": level, "originMsgId": "x", "unitMode": "false"}
    return peer.ask(36, fields | changes)


def waiting(engine, level):
    """Return the records that wait at a level."""
    queue = engine.broker.store.find_queue(SCHEDULE, level - 1)
    found = []
    for offset in range(queue.max_offset if queue else 0):
        physical, _, _ = queue_entry(engine, SCHEDULE, level - 1, offset)
        found.append(engine.broker.store.records.get(physical).record)
    return found


def refused(engine, answer, code, text):
    assert answer.code == code, answer
    assert text in answer.remark


def copies(engine):
    """Count messages where copies go first; waiting ones may reach their retry topic at any time."""
    queues = engine.broker.store.queues.all()
    return sum(queue.next_offset for queue in queues if queue.topic.startswith((SCHEDULE, "%DLQ%")))


def stored_nothing(engine, act):
    before = copies(engine)
    answer = act()
    assert copies(engine) == before
    return answer


# --- refusals


def test_what_cannot_be_found_is_refused_with_the_reason(engine, peer, group):
    record = put(peer, group)
    for offset, why in (
        (999_999_999, "the log does not reach there yet"),
        (record.physical_offset + 1, "no record begins there"),
        (-1, "its file has left the log"),
        (-(2**63), "its file has left the log"),
    ):
        answer = stored_nothing(engine, lambda offset=offset: back(peer, offset, group))
        refused(engine, answer, ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}: {why}")


def test_where_a_message_came_from_is_not_what_its_sender_wrote(engine, peer, group):
    """A consumer that passes on a retry with all its properties passes on these names, too, without intending it."""
    written = UNIQ + "RETRY_TOPIC\x01Elsewhere\x02ORIGIN_MESSAGE_ID\x017F00000100002A9F0000000000000000\x02"
    record = put(peer, group, written)
    assert back(peer, record, group, level=-1).code == 0
    (letter,) = messages(peer, f"%DLQ%{group}")
    found = decode_properties(letter.properties)
    assert found["RETRY_TOPIC"] == f"T_{group}"
    assert found["ORIGIN_MESSAGE_ID"] == f"7F000001{record.store_host[1]:08X}{record.physical_offset:016X}"


def test_bytes_in_a_body_that_look_like_a_message_are_none(engine, peer, group):
    inner = put(peer, group)
    data = engine.broker.store.records.get(inner.physical_offset).data
    outside = put(peer, group, body=data)
    at = engine.broker.store.records.get(outside.physical_offset).data.index(data)
    answer = stored_nothing(engine, lambda: back(peer, outside.physical_offset + at, group))
    refused(engine, answer, ResponseCode.SYSTEM_ERROR, "no record begins there")


def test_a_message_that_has_expired_is_refused(tmp_path):
    engine = start_engine(tmp_path, store={"mapped_file_size_commit_log": 64 * 1024})
    peer = Peer(engine.broker_address)
    first = put(peer, "G")
    log = engine.broker.store.log
    while len(log.segments) < 3:
        put(peer, "G", body=bytes(10_000))
    wait_for(lambda: log.durable >= log.segments[1].start, "it is synced")
    engine._on_loop(lambda: log.remove_before(log.segments[1].start))
    refused(engine, back(peer, first, "G"), ResponseCode.SYSTEM_ERROR, "its file has left the log")
    peer.close()
    engine.stop()


def test_what_nobody_can_have_consumed_is_refused(engine, peer, group):
    delayed = peer.ask(310, send_fields(f"T_{group}", properties=UNIQ + "DELAY\x011\x02"), b"x")
    at = int(delayed.ext_fields["msgId"][16:], 16)
    answer = stored_nothing(engine, lambda: back(peer, at, group))
    refused(engine, answer, ResponseCode.SYSTEM_ERROR, f"no group consumes it where it lies, in {SCHEDULE}")


def test_a_retry_of_another_group_is_refused(engine, peer, group):
    record = put(peer, group)
    assert back(peer, record, group).code == 0
    (retry,) = wait_for(lambda: messages(peer, f"%RETRY%{group}"), "the retry")
    answer = stored_nothing(engine, lambda: back(peer, retry, "Another"))
    refused(engine, answer, ResponseCode.SYSTEM_ERROR, f"a retry of another group: %RETRY%{group}")
    assert back(peer, retry, group).code == 0


def test_a_dead_letter_may_be_sent_back_by_whoever_consumes_it(peer, group):
    record = put(peer, group)
    assert back(peer, record, group, level=-1).code == 0
    (dead,) = messages(peer, f"%DLQ%{group}")
    assert back(peer, dead, "Undertaker", level=3).code == 0
    again = wait_for(lambda: messages(peer, "%RETRY%Undertaker"), "the retry")[-1]
    assert decode_properties(again.properties)["RETRY_TOPIC"] == f"T_{group}", "the topic it was first consumed from"


def test_a_damaged_body_is_not_given_a_new_checksum(engine, peer, group):
    record = put(peer, group, body=b"the body of this one")
    store = engine.broker.store
    segment = store.log.segment_at(record.physical_offset)
    at = store.records.get(record.physical_offset).data.index(b"the body of")
    with open(segment.path, "r+b") as file:
        file.seek(record.physical_offset - segment.start + at)
        file.write(b"THE")
    leave_the_stage(engine)
    answer = stored_nothing(engine, lambda: back(peer, record, group))
    refused(engine, answer, ResponseCode.SYSTEM_ERROR, "its body does not match its CRC")


@pytest.mark.parametrize("name", ["offset", "group", "delayLevel"])
def test_a_field_that_is_missing_or_no_number_is_named(engine, peer, group, name):
    record = put(peer, group)
    fields = {"offset": record.physical_offset, "group": group, "delayLevel": 0}
    missing = stored_nothing(engine, lambda: peer.ask(36, {n: v for n, v in fields.items() if n != name}))
    refused(engine, missing, ResponseCode.SYSTEM_ERROR, name)
    if name != "group":
        for wrong in ("soon", "1_000", "", "99999999999999999999", "1 "):
            answer = stored_nothing(engine, lambda wrong=wrong: peer.ask(36, fields | {name: wrong}))
            refused(engine, answer, ResponseCode.SYSTEM_ERROR, name)


def test_a_group_that_may_not_be_made_has_no_retries(tmp_path):
    engine = start_engine(tmp_path, broker={"auto_create_subscription_group": False})
    peer = Peer(engine.broker_address)
    sent = peer.ask(310, send_fields("T", properties=UNIQ), b"x")
    record = int(sent.ext_fields["msgId"][16:], 16)
    for name in ("Nobody", "bad name!", "../etc"):
        answer = stored_nothing(engine, lambda name=name: back(peer, record, name))
        refused(engine, answer, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}")
        assert engine.broker.topics.get(f"%RETRY%{name}") is None
    peer.close()
    engine.stop()


def test_a_group_is_made_as_apache_makes_it(engine, peer, group):
    record = put(peer, group)
    assert engine.broker.groups.get(group) is None
    assert back(peer, record, group).code == 0
    assert engine.broker.groups.get(group) is not None
    topic = engine.broker.topics.get(f"%RETRY%{group}")
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm, topic.topic_sys_flag) == (1, 1, 6, 0)
    assert back(peer, record, group + "U", unitMode="true").code == 0
    assert engine.broker.topics.get(f"%RETRY%{group}U").topic_sys_flag == 2


def test_reading_a_message_elsewhere_the_group_may_go_meanwhile(engine, peer, group, record, cold, monkeypatch):
    """The later refusal is the same as an immediate one."""
    submit = engine.broker._cold_pool.submit

    def late(job, *args, **more):
        engine.broker.topics.update(new_topic(f"%RETRY%{group}", 1, PERM_READ))
        return submit(job, *args, **more)

    monkeypatch.setattr(engine.broker._cold_pool, "submit", late)
    answer = stored_nothing(engine, lambda: back(peer, record, group))
    refused(engine, answer, ResponseCode.NO_PERMISSION, "sending message is forbidden")


def test_a_broker_that_is_not_writable_takes_nothing(tmp_path):
    engine = start_engine(tmp_path)
    peer = Peer(engine.broker_address)
    record = put(peer, "G")
    assert peer.ask(25, {}, b"brokerPermission=4\n").code == 0
    answer = stored_nothing(engine, lambda: back(peer, record, "G"))
    refused(engine, answer, ResponseCode.NO_PERMISSION, "the broker sending message is forbidden")
    peer.close()
    engine.stop()


def test_a_retry_topic_that_is_not_writable_takes_nothing(engine, peer, group):
    record = put(peer, group)
    engine.broker.topics.update(new_topic(f"%RETRY%{group}", 1, PERM_READ))
    answer = stored_nothing(engine, lambda: back(peer, record, group))
    refused(engine, answer, ResponseCode.NO_PERMISSION, f"the topic[%RETRY%{group}] sending message is forbidden")


def test_a_group_without_retry_queues_retries_nothing(engine, peer, group):
    record = put(peer, group)
    peer.ask(200, {}, b'{"groupName":"%b","retryQueueNums":0}' % group.encode())
    answer = stored_nothing(engine, lambda: back(peer, record, group))
    assert (answer.code, answer.remark, answer.ext_fields) == (0, None, {})
    assert engine.broker.topics.get(f"%RETRY%{group}") is None


def test_a_name_too_long_for_a_retry_topic(engine, peer, group):
    record = put(peer, group)
    name = "g" * 121
    answer = stored_nothing(engine, lambda: back(peer, record, name))
    refused(engine, answer, ResponseCode.SYSTEM_ERROR, f"topic[%RETRY%{name}] cannot be created")


def test_properties_that_have_no_room_for_more(engine, peer, group):
    record = put(peer, group, properties=UNIQ + "p\x01" + "p" * 32_600)
    answer = stored_nothing(engine, lambda: back(peer, record, group))
    refused(engine, answer, ResponseCode.SYSTEM_ERROR, "properties")
    assert messages(peer, f"T_{group}")[-1] == record


# --- where it goes


@pytest.mark.parametrize(
    ("level", "times", "stored"), [(1, 0, 1), (0, 0, 3), (0, 2, 5), (0, 9, 7), (7, 0, 7), (8, 0, 7), (2**31 - 1, 1, 7)]
)
def test_the_level(engine, peer, group, level, times, stored):
    record = put(peer, group, j=times)
    assert back(peer, record, group, level).code == 0
    found = [one for one in waiting(engine, stored) if one.physical_offset > record.physical_offset]
    properties = decode_properties(found[-1].properties)
    assert (properties["DELAY"], properties["REAL_TOPIC"], properties["REAL_QID"]) == (
        str(stored), f"%RETRY%{group}", "0",
    )  # fmt: skip
    assert (found[-1].body, found[-1].reconsume_times) == (b"body", times + 1)


@pytest.mark.parametrize("times", [-1, -5, -(2**31)])
def test_a_number_of_retries_below_none_is_none(engine, peer, group, times):
    """Otherwise it would come back at once, each time its consumer sends it back."""
    record = put(peer, group, j=times)
    assert back(peer, record, group).code == 0
    assert waiting(engine, 3)[-1].reconsume_times == 1
    assert waiting(engine, 3)[-1].physical_offset > record.physical_offset


def test_the_largest_number_of_retries_is_a_dead_letter_all_the_same(engine, peer, group):
    record = put(peer, group, j=2**31 - 1)
    assert back(peer, record, group).code == 0
    (dead,) = messages(peer, f"%DLQ%{group}")
    assert dead.reconsume_times == 2**31 - 1


@pytest.mark.parametrize(
    ("times", "limit", "dead"),
    [(15, None, False), (16, None, True), (2, 2, True), (2, 3, False), (0, 0, True), (0, -1, True)],
)  # fmt: skip
def test_the_limit_of_the_request_counts_else_the_groups(engine, peer, group, times, limit, dead):
    record = put(peer, group, j=times)
    more = {} if limit is None else {"maxReconsumeTimes": limit}
    assert back(peer, record, group, **more).code == 0
    assert bool(messages(peer, f"%DLQ%{group}")) == dead


def test_the_groups_own_limit(engine, peer, group):
    peer.ask(200, {}, b'{"groupName":"%b","retryQueueNums":1,"retryMaxTimes":1}' % group.encode())
    record = put(peer, group, j=1)
    assert back(peer, record, group).code == 0
    assert len(messages(peer, f"%DLQ%{group}")) == 1


def test_a_dead_letter_is_there_at_once_and_says_where_it_came_from(engine, peer, group):
    record = put(peer, group, properties=UNIQ + "TAGS\x01A\x02KEYS\x01k\x02mine\x01ä\x02", h=7, f=1)
    assert back(peer, record, group, level=-1).code == 0
    (dead,) = messages(peer, f"%DLQ%{group}")
    assert (dead.body, dead.flag, dead.sys_flag, dead.reconsume_times) == (record.body, 7, 1, 1)
    assert (dead.born_time_ms, dead.born_host) == (record.born_time_ms, record.born_host)
    own = decode_properties(record.properties)
    assert decode_properties(dead.properties) == own | {
        "RETRY_TOPIC": f"T_{group}", "WAIT": "false", "DELAY": "0",
        "ORIGIN_MESSAGE_ID": f"7F000001{record.store_host[1]:08X}{record.physical_offset:016X}",
    }  # fmt: skip
    topic = engine.broker.topics.get(f"%DLQ%{group}")
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
    tagged = peer.ask(11, pull_fields(f"%DLQ%{group}", 0, 0, subscription="A"))
    assert len(records(tagged.body)) == 1, "its queue entry has the tag's code"


def test_a_group_with_more_queues_than_its_topic_loses_no_retry(engine, peer, group):
    """Apache puts it into a queue that no consumer reads."""
    record = put(peer, group)
    assert back(peer, record, group).code == 0
    peer.ask(200, {}, b'{"groupName":"%b","retryQueueNums":50}' % group.encode())
    for _ in range(10):
        assert back(peer, record, group).code == 0
    wait_for(lambda: len(messages(peer, f"%RETRY%{group}")) == 11, "all of them in the one queue there is")


def test_a_new_retry_topic_has_as_many_queues_as_the_group_says(engine, peer, group):
    peer.ask(200, {}, b'{"groupName":"%b","retryQueueNums":4}' % group.encode())
    record = put(peer, group)
    for _ in range(40):
        assert back(peer, record, group).code == 0
    assert engine.broker.topics.get(f"%RETRY%{group}").read_queue_nums == 4
    wait_for(lambda: sum(len(messages(peer, f"%RETRY%{group}", n)) for n in range(4)) == 40, "all of them")
    assert all(messages(peer, f"%RETRY%{group}", n) for n in range(4))


def test_names_with_a_namespace_pass_through(engine, peer):
    group, topic = "ns%G_Spaced", "ns%T_Spaced"
    assert peer.ask(310, send_fields(topic, properties=UNIQ), b"x").code == 0
    (record,) = messages(peer, topic)
    assert back(peer, record, group, originTopic="T_Spaced").code == 0
    (retry,) = wait_for(lambda: messages(peer, f"%RETRY%{group}"), "the retry")
    assert decode_properties(retry.properties)["RETRY_TOPIC"] == topic
    assert back(peer, retry, group, level=-1).code == 0
    (dead,) = messages(peer, f"%DLQ%{group}")
    assert decode_properties(dead.properties)["RETRY_TOPIC"] == topic


# --- how


def test_a_one_way_request_is_served_and_not_answered(peer, group):
    record = put(peer, group)
    fields = {"offset": record.physical_offset, "group": group, "delayLevel": -1}
    peer.send(36, fields, flag=2)
    peer.send(36, fields | {"offset": 999_999_999}, flag=2)
    assert peer.is_silent()
    assert len(messages(peer, f"%DLQ%{group}")) == 1


def test_both_encodings_ask_the_same(peer, group):
    record = put(peer, group)
    fields = {"offset": record.physical_offset, "group": group, "delayLevel": -1}
    assert [peer.ask(36, fields, codec=codec).code for codec in (0, 1)] == [0, 0]
    first, second = messages(peer, f"%DLQ%{group}")
    assert (first.properties, first.body) == (second.properties, second.body)


def leave_the_stage(engine):
    """Have records that were written last be read from their file."""
    engine._on_loop(lambda: setattr(engine.broker.store.log, "kept_end", 0))


@pytest.fixture
def cold(engine, record, monkeypatch):
    """Make every read miss the page cache, also that of the record."""
    leave_the_stage(engine)
    monkeypatch.setattr(engine.broker.store.disk, "reads_without_waiting", True, raising=False)
    refuse_reads_that_never_wait(monkeypatch, errno.EAGAIN)


@pytest.fixture
def record(peer, group):
    return put(peer, group)


def test_a_message_that_is_not_cached_is_read_elsewhere(engine, peer, group, record, cold, monkeypatch):
    read, find = [], engine.broker.store.records.find
    monkeypatch.setattr(
        engine.broker.store.records,
        "find",
        lambda at: (read.append(threading.current_thread().name), find(at))[1],
    )
    assert back(peer, record, group, level=-1).code == 0
    assert back(peer, 999_999_999, group).code == 1
    assert back(peer, record.physical_offset + 1, group).code == 1
    peer.send(36, {"offset": record.physical_offset, "group": group, "delayLevel": -1}, flag=2)
    wait_for(lambda: len(messages(peer, f"%DLQ%{group}")) == 2, "the one-way one, too")
    assert read == ["pool-pull-cold"] * 3, "where the log ends is known without reading"


def test_a_full_pool_is_said(engine, peer, group, record, cold, monkeypatch):
    monkeypatch.setattr(engine.broker._cold_pool, "_has_room", lambda size, conn: False)
    answer = back(peer, record, group)
    refused(engine, answer, ResponseCode.SYSTEM_BUSY, "[OVERLOAD]")


def test_a_log_that_takes_nothing_says_so(tmp_path):
    engine = start_engine(tmp_path)
    peer = Peer(engine.broker_address)
    record = put(peer, "G")
    engine._on_loop(lambda: engine.broker.store.log.refuse("no room", "test"))
    refused(engine, back(peer, record, "G"), ResponseCode.SYSTEM_ERROR, "service not available now: no room")
    engine._on_loop(lambda: engine.broker.store.log.refuse(None, "test"))
    assert back(peer, record, "G").code == 0
    peer.close()
    engine.stop()


def test_the_answer_waits_for_the_disk(tmp_path):
    """It does even though the copy says WAIT=false, as Apache writes it."""
    engine = start_engine(tmp_path, store={"flush_disk_type": "SYNC_FLUSH"})
    peer = Peer(engine.broker_address)
    record = put(peer, "G")
    log, synced, sync = engine.broker.store.log, threading.Event(), engine.broker.store.log.sync

    def held_sync():
        synced.wait(60)
        return sync()

    sync_by(engine.broker.store, held_sync)
    asked = peer.send(36, {"offset": record.physical_offset, "group": "G", "delayLevel": -1})
    assert peer.is_silent()
    synced.set()
    answer = peer.receive()
    assert (answer.opaque, answer.code) == (asked, 0)
    assert log.durable == log.written
    peer.close()
    engine.stop()


def test_a_disk_that_takes_too_long_is_no_promise(tmp_path, monkeypatch):
    """The client sends it again by another way: twice is better than never."""
    engine = start_engine(tmp_path, store={"flush_disk_type": "SYNC_FLUSH", "sync_flush_timeout_ms": 60_000})
    peer = Peer(engine.broker_address)
    record = put(peer, "G")
    monkeypatch.setattr(engine.broker.durability, "_timeout_ms", lambda: 50)
    synced, sync = threading.Event(), engine.broker.store.log.sync

    def held_sync():
        synced.wait(60)
        return sync()

    sync_by(engine.broker.store, held_sync)
    answer = back(peer, record, "G", level=-1)
    synced.set()
    refused(engine, answer, ResponseCode.SYSTEM_ERROR, "not yet known to be durable")
    peer.close()
    engine.stop()


@pytest.mark.parametrize("offset", [1 << 40, 3])
def test_what_is_no_message_makes_no_group(engine, peer, group, offset):
    """Nor its retry topic: otherwise strangers could fill the tables with names, for ever."""
    refused(engine, back(peer, offset, group), ResponseCode.SYSTEM_ERROR, "look message by offset failed")
    assert engine.broker.groups.get(group) is None
    assert engine.broker.topics.get(f"%RETRY%{group}") is None


def test_a_pull_of_what_is_no_topic_makes_no_group(engine, peer, group):
    answer = peer.ask(11, pull_fields("NoSuchTopic", 0, 0, consumerGroup=group))
    refused(engine, answer, ResponseCode.TOPIC_NOT_EXIST, "not exist")
    assert engine.broker.groups.get(group) is None


@pytest.mark.parametrize("body", [bytes(200_000), bytes(300_000)], ids=["on the loop", "by the pool"])
def test_who_has_much_copied_is_not_read_from_for_a_while(engine, peer, group, body, monkeypatch):
    processor = engine.server._listeners[0].dispatcher._handlers[36].handler.__self__
    monkeypatch.setattr(processor, "_rates", Rates(FakeClock(), 1_000_000, 1))  # for a day
    record = put(peer, group, body=body)
    stranger, before = Peer(engine.broker_address), copies(engine)
    for _ in range(100):
        fields = {"offset": record.physical_offset, "group": group, "delayLevel": 1, "unitMode": "false"}
        stranger.send(36, fields)
    wait_for(lambda: copies(engine) - before >= 1_000_000 // len(body), "it has had its share copied")
    assert peer.ask(310, send_fields(f"T_{group}"), b"x").code == 0, "others are served"
    assert copies(engine) - before <= 1_000_000 // len(body) + 2
    stranger.close()


def test_who_rests_is_not_watched_for_what_it_sends(engine, peer, group, monkeypatch):
    """Otherwise the loop would spin over bytes that are not read."""
    processor = engine.server._listeners[0].dispatcher._handlers[36].handler.__self__
    monkeypatch.setattr(processor, "_rates", Rates(FakeClock(), 1, 1))
    record = put(peer, group)
    stranger = Peer(engine.broker_address)
    assert back(stranger, record, group, 1).code == 0
    (resting,) = [conn for conn in engine.server.connections.values() if conn.halted]
    assert not resting._mask & READABLE
    stranger.send(10)
    engine._on_loop(resting.let_go)
    assert stranger.receive().code != 0
    assert resting._mask & READABLE
    stranger.close()
