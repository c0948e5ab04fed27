"""SEND as 5.3.3 answers it: codes, texts, headers, and what is stored. Codes and texts as recorded in `errors`."""

import errno
import os
import struct
import threading

import pytest

from appliance.engine.broker.group_config import SubscriptionGroupConfig
from appliance.engine.broker.topic_config import new_topic
from appliance.engine.protocol.codes import RequestCode, ResponseCode
from appliance.engine.protocol.properties import decode_properties
from tests.support.directories import shared_directory
from tests.support.engine import Peer, pull_fields, records, send_fields, start_engine
from tests.support.store import sync_in_python

UNIQ = "UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBA0000\x02"


@pytest.fixture(scope="module")
def engine(request):
    engine = start_engine(shared_directory(request, "engine"), store={"max_message_size": 262_144})
    yield engine
    engine.stop()


@pytest.fixture
def topic(request, peer):
    name = "T_" + "".join(c if c.isalnum() else "_" for c in request.node.name)[:100]
    ext = {"topic": name, "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
           "topicFilterType": "SINGLE_TAG", "order": "false"}  # fmt: skip
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0
    return name


def stored(peer, topic, queue_id=0, offset=0):
    answer = peer.ask(RequestCode.PULL_MESSAGE, pull_fields(topic, queue_id, offset))
    return records(answer.body) if answer.code == 0 else []


def test_an_acknowledged_message_is_stored_as_5_3_3_stores_it(peer, topic, engine):
    properties = "KEYS\x01k 1\x02" + UNIQ + "WAIT\x01true\x02TAGS\x01TagA\x02"
    answer = peer.ask(310, send_fields(topic, 2, properties, h=5, j=3), b"hello")
    [record] = stored(peer, topic, 2)
    assert (answer.code, answer.remark) == (0, None)
    port = int(engine.broker_address.rpartition(":")[2])
    assert answer.ext_fields == {
        "queueId": "2",
        "transactionId": "7F0000016AB14E0E2F2A69208FBA0000",
        "msgId": f"7F000001{port:08X}{record.physical_offset:016X}",
        "TRACE_ON": "true",
        "MSG_REGION": "DefaultRegion",
        "queueOffset": "0",
    }
    assert (record.body, record.topic, record.queue_id, record.queue_offset) == (b"hello", topic, 2, 0)
    assert (record.flag, record.reconsume_times, record.born_time_ms, record.sys_flag) == (5, 3, 1700000000000, 0)
    assert record.store_host == ("127.0.0.1", port)
    assert decode_properties(record.properties) == {
        "KEYS": "k 1", "UNIQ_KEY": "7F0000016AB14E0E2F2A69208FBA0000", "WAIT": "true", "TAGS": "TagA",
        "MSG_REGION": "DefaultRegion", "CLUSTER": "DefaultCluster", "TRACE_ON": "true",
    }  # fmt: skip
    assert record.properties.endswith("\x02")


def test_all_encodings_of_a_send_store_the_same(peer, topic):
    long = {
        "producerGroup": "PG", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
        "sysFlag": 0, "bornTimestamp": 1700000000000, "flag": 0, "properties": UNIQ, "reconsumeTimes": 0,
        "unitMode": "false", "batch": "false", "maxReconsumeTimes": 0,
    }  # fmt: skip
    assert peer.ask(10, long, b"same").code == 0
    assert peer.ask(10, long, b"same", codec=1).code == 0
    assert peer.ask(310, send_fields(topic, properties=UNIQ), b"same").code == 0
    assert peer.ask(310, send_fields(topic, properties=UNIQ), b"same", codec=1).code == 0
    found = stored(peer, topic)
    assert len(found) == 4
    assert {(r.body, r.properties, r.flag, r.born_time_ms) for r in found} == {
        (b"same", found[0].properties, 0, 1700000000000)
    }


def test_numbers_without_quotes_are_read_as_the_cpp_client_writes_them(peer, topic):
    header = (
        '{"code":310,"extFields":{"AccessKey":"","OnsChannel":"","Signature":"","a":"PG","b":"TOPIC","c":"TBW102","d":4,'
        '"e":1,"f":0,"g":"1700000000000","h":0,"i":"KEYS\\u0001k\\u0002","j":"0","k":"false","l":16,"m":"false"},'
        '"flag":0,"language":"CPP","opaque":77,"remark":"","version":333}\n'
    ).replace("TOPIC", topic)
    header = header.encode()
    peer.send_bytes(struct.pack(">ii", 4 + len(header) + 3, len(header)) + header + b"cpp")
    answer = peer.receive()
    assert (answer.code, answer.opaque, answer.ext_fields["queueId"]) == (0, 77, "1")
    [record] = stored(peer, topic, 1)
    assert record.body == b"cpp"
    assert decode_properties(record.properties)["UNIQ_KEY"] == answer.ext_fields["transactionId"] != ""


def test_a_missing_last_separator_is_put_in(peer, topic):
    assert peer.ask(310, send_fields(topic, properties=UNIQ + "TAGS\x01T"), b"x").code == 0
    assert decode_properties(stored(peer, topic)[0].properties)["TAGS"] == "T"


def test_what_the_broker_sets_itself_is_set_once(peer, topic):
    properties = (
        UNIQ + "CLUSTER\x01other\x02MSG_REGION\x01x\x02TRACE_ON\x01false\x02POP_CK\x011 2\x02__RMQ.TRANSIENT.A\x01b\x02"
    )
    assert peer.ask(310, send_fields(topic, properties=properties), b"x").code == 0
    text = stored(peer, topic)[0].properties
    assert decode_properties(text) == {
        "UNIQ_KEY": "7F0000016AB14E0E2F2A69208FBA0000", "CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }  # fmt: skip
    assert text.count("CLUSTER\x01") == 1


def test_any_queue_means_a_writable_one(peer, topic):
    seen = {peer.ask(310, send_fields(topic, -1), b"x").ext_fields["queueId"] for _ in range(60)}
    assert seen == {"0", "1", "2", "3"}


def test_one_way_sends_are_stored_and_never_answered(peer, topic):
    for i in range(3):
        peer.send(310, send_fields(topic), b"%d" % i, flag=2)
    peer.send(310, send_fields("bad topic!"), b"x", flag=2)
    assert peer.is_silent()
    assert [r.body for r in stored(peer, topic)] == [b"0", b"1", b"2"]


def refused(answer, code, text):
    assert answer.code == code
    assert text in answer.remark
    assert answer.ext_fields == {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("", ResponseCode.INVALID_PARAMETER, "The specified topic is blank."),
        ("bad topic!", ResponseCode.INVALID_PARAMETER, "illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("../../etc", ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ("t" * 128, ResponseCode.INVALID_PARAMETER, "longer than topic max length"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", ResponseCode.NO_PERMISSION, "is forbidden."),
        (
            "SCHEDULE_TOPIC_XXXX",
            ResponseCode.NO_PERMISSION,
            "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden.",
        ),
        ("SELF_TEST_TOPIC", ResponseCode.NO_PERMISSION, "is forbidden."),
    ],
)
def test_topics_that_take_no_message(peer, name, code, text):
    refused(peer.ask(310, send_fields(name), b"x"), code, text)


def test_unknown_topics_are_made_after_the_template_only(peer, engine):
    answer = peer.ask(310, send_fields("Unknown1", c="NoDefault"), b"x")
    refused(answer, ResponseCode.TOPIC_NOT_EXIST, "topic[Unknown1] not exist, apply first please!")
    answer = peer.ask(310, send_fields("Unknown2", c="SELF_TEST_TOPIC"), b"x")
    refused(answer, ResponseCode.TOPIC_NOT_EXIST, "not exist")
    assert peer.ask(310, send_fields("Unknown3", 3), b"x").code == 0
    assert (engine.broker.topics.get("Unknown3").write_queue_nums, engine.broker.topics.get("Unknown3").perm) == (4, 6)


def test_the_one_switch_stops_creation_by_any_template(tmp_path):
    engine = start_engine(tmp_path, broker={"auto_create_topic_enable": False})
    peer = Peer(engine.broker_address)
    for template in ("TBW102", "DefaultCluster", "broker-a", "BenchmarkTest"):
        answer = peer.ask(310, send_fields("Sneaky", c=template), b"x")
        refused(answer, ResponseCode.TOPIC_NOT_EXIST, "not exist")
    assert peer.ask(310, send_fields("%RETRY%CG"), b"x").code == 0, "retry topics are made all the same"
    peer.close()
    engine.stop()


def test_queue_ids_out_of_range(peer, topic):
    refused(
        peer.ask(310, send_fields(topic, 77), b"x"), ResponseCode.INVALID_PARAMETER, "request queueId[77] is illegal"
    )


@pytest.mark.parametrize("name", ["e", "g", "d"])
def test_a_number_that_is_none_and_a_missing_field_are_named(peer, topic, name):
    wrong = peer.ask(310, send_fields(topic, **{name: "abc"}), b"x")
    assert wrong.code == ResponseCode.SYSTEM_ERROR
    fields = send_fields(topic)
    del fields[name]
    missing = peer.ask(310, fields, b"x")
    assert missing.code == ResponseCode.SYSTEM_ERROR
    assert name in missing.remark


@pytest.mark.parametrize("change", [{"h": 2**31}, {"g": 2**63}, {"j": -(2**31) - 1}, {"f": 2**40}])
def test_numbers_too_large_for_their_fields_store_nothing(peer, topic, change, engine):
    log = engine.broker.store.log
    end = log.written
    assert peer.ask(310, send_fields(topic, properties=UNIQ, **change), b"x").code == ResponseCode.SYSTEM_ERROR
    if "h" not in change:  # members of a batch have flags of their own
        assert peer.ask(320, send_fields(topic, m="true", **change), inner(b"a") + inner(b"b")).code == 1
    assert (log.written, log.staged) == (end, 0), "room reserved for a refused record leaves a hole in the log"
    assert stored(peer, topic) == []
    assert peer.ask(310, send_fields(topic, properties=UNIQ), b"after").ext_fields["queueOffset"] == "0"
    assert [r.body for r in stored(peer, topic)] == [b"after"]


def test_bodies_and_properties_over_their_limits(peer, topic):
    text = "the message is illegal, maybe msg body or properties length not matched. msg body length limit 262144B"
    refused(peer.ask(310, send_fields(topic), bytes(262_145)), ResponseCode.MESSAGE_ILLEGAL, text)
    refused(peer.ask(310, send_fields(topic), b""), ResponseCode.MESSAGE_ILLEGAL, text)
    refused(peer.ask(310, send_fields(topic, properties=UNIQ + "p\x01" + "p" * 32_760), b"x"), 13, text)
    assert peer.ask(310, send_fields(topic, properties=UNIQ + "p\x01" + "p" * 32_000), b"x").code == 0
    assert peer.ask(310, send_fields(topic), bytes(262_144)).code == 0


def test_a_delay_of_none_is_an_ordinary_message(peer, topic):
    assert peer.ask(310, send_fields(topic, properties=UNIQ + "DELAY\x010\x02"), b"x").code == 0
    assert peer.ask(310, send_fields(topic, properties=UNIQ + "UNDELAYED\x015\x02"), b"y").code == 0
    assert [r.body for r in stored(peer, topic)] == [b"x", b"y"]


def inner(body, properties="", flag=0):
    raw = properties.encode()
    return (
        struct.pack(">iiiii", 22 + len(body) + len(raw), 0, 0, flag, len(body))
        + body
        + struct.pack(">h", len(raw))
        + raw
    )


def test_a_batch_becomes_ordinary_messages_at_consecutive_offsets(peer, topic):
    assert peer.ask(310, send_fields(topic, 1), b"before").code == 0
    members = [(b"a", "UNIQ_KEY\x01A\x02TAGS\x01x\x02n\x010\x02", 1), (b"bb", "UNIQ_KEY\x01B", 2), (b"ccc", "", 3)]
    batch = b"".join(inner(*member) for member in members)
    answer = peer.ask(320, send_fields(topic, 1, "UNIQ_KEY\x01BATCH\x02WAIT\x01true\x02", m="true"), batch)
    found = stored(peer, topic, 1)[1:]
    assert (answer.code, answer.ext_fields["queueOffset"], answer.ext_fields["transactionId"]) == (0, "1", "BATCH")
    ids = answer.ext_fields["msgId"].split(",")
    assert [int(text[16:], 16) for text in ids] == [r.physical_offset for r in found]
    assert [(r.body, r.flag, r.queue_offset) for r in found] == [(b"a", 1, 1), (b"bb", 2, 2), (b"ccc", 3, 3)]
    properties = [decode_properties(r.properties) for r in found]
    assert [p["UNIQ_KEY"] for p in properties] == ["A", "B", "BATCH"], "a member keeps the id its producer reported"
    assert all((p["WAIT"], p["CLUSTER"]) == ("true", "DefaultCluster") for p in properties)
    tagged = peer.ask(11, pull_fields(topic, 1, 0, subscription="x"))
    assert [r.body for r in records(tagged.body)] == [b"a"]


@pytest.mark.parametrize(
    "body",
    [
        b"not a batch", inner(b"a")[:-1], inner(b"a") + b"\0",
        inner(b"a", "DELAY\x011\x02"), inner(b"a", "TRAN_MSG\x01true\x02"),
        struct.pack(">iiiii", 30, 0, 0, 0, -5) + bytes(10), struct.pack(">iiiii", 30, 0, 0, 0, 2**31 - 1) + bytes(10),
        inner(b"ok") + inner(b"a")[:10], struct.pack(">iiiii", 24, 0, 0, 0, 1) + b"a" + struct.pack(">h", 1) + b"\xff",
    ],
    ids=range(9),
)  # fmt: skip
def test_a_batch_that_contradicts_itself_stores_nothing_of_it(peer, topic, body):
    answer = peer.ask(320, send_fields(topic, m="true"), body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert stored(peer, topic) == []


def test_a_batch_in_code_310_is_a_batch(peer, topic):
    assert peer.ask(310, send_fields(topic, m="true"), inner(b"a") + inner(b"b")).code == 0
    assert [r.body for r in stored(peer, topic)] == [b"a", b"b"]


def test_a_consumer_that_gives_up_sends_to_its_dead_letters(peer):
    fields = send_fields("%RETRY%GiveUp", properties=UNIQ + "RETRY_TOPIC\x01T\x02DELAY\x013\x02", j=17, l=16)
    assert peer.ask(310, fields, b"dead").code == 0
    [record] = stored(peer, "%DLQ%GiveUp")
    assert (record.body, record.reconsume_times) == (b"dead", 17)
    assert decode_properties(record.properties)["DELAY"] == "-1"
    again = send_fields("%RETRY%GiveUp", properties=UNIQ + "DELAY\x013\x02", j=2, l=16)
    assert peer.ask(310, again, b"later").code == 0
    [record] = stored(peer, "SCHEDULE_TOPIC_XXXX", 2)
    assert (record.body, record.reconsume_times) == (b"later", 2)
    lock = b'{"clientId":"c@1","consumerGroup":"GiveUp","mqSet":[{"brokerName":"broker-a","queueId":0,"topic":"T"}]}'
    assert peer.ask(310, send_fields("T"), b"a queue to hold").code == 0
    assert peer.ask(41, body=lock).code == 0
    assert peer.ask(310, again, b"an ordered consumer's").code == 0
    assert [r.body for r in stored(peer, "%DLQ%GiveUp")] == [b"dead", b"an ordered consumer's"]


def test_the_vip_port_takes_sends_and_no_pulls(engine, topic):
    host, _, port = engine.broker_address.rpartition(":")
    vip = Peer(f"{host}:{int(port) - 2}")
    assert vip.ask(310, send_fields(topic, properties=UNIQ), b"vip").code == 0
    assert vip.ask(11, pull_fields(topic, 0, 0)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert vip.ask(361, pull_fields(topic, 0, 0)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    vip.close()


def test_a_topic_that_a_full_disk_cannot_take_is_refused_as_its_message_is(engine, peer, monkeypatch):
    def full(entry, wake=True):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(engine.broker.tables.journal, "append", full)
    answer = peer.ask(310, send_fields("MadeOnAFullDisk", properties=UNIQ), b"x")
    refused(answer, ResponseCode.SERVICE_NOT_AVAILABLE, "No space left on device")
    answer = peer.ask(310, send_fields("%RETRY%MadeOnAFullDisk", properties=UNIQ), b"x")
    refused(answer, ResponseCode.SERVICE_NOT_AVAILABLE, "No space left on device")


def made(broker):
    return {topic.topic_name for topic in broker.topics.all()}, {group.group_name for group in broker.groups.all()}


def test_nothing_is_made_for_a_message_that_a_full_disk_refuses(engine, peer, topic):
    """Otherwise the topic, a retry topic and its group, and the topic of dead letters would stay behind."""
    broker = engine.broker
    assert peer.ask(310, send_fields(topic, properties=UNIQ), b"x").code == 0
    (record,) = stored(peer, topic)
    assert broker.groups.update(SubscriptionGroupConfig(group_name="IsThere"))
    before = made(broker)
    refused_before = broker.store.failed_puts
    broker.store.log.refuse("the broker's disk is full", "test")
    try:
        answers = [
            peer.ask(310, send_fields("NewAndFull", properties=UNIQ), b"x"),
            peer.ask(310, send_fields("%RETRY%NewAndFull", properties=UNIQ), b"x"),
            peer.ask(310, send_fields("%RETRY%NewAndFull", properties=UNIQ, c="NoTemplate"), b"x"),
            peer.ask(310, send_fields("%RETRY%IsThere", properties=UNIQ, c="NoTemplate"), b"x"),
            *(
                peer.ask(36, {"offset": record.physical_offset, "group": group, "delayLevel": level})
                for group in ("NewAndFull", "IsThere")
                for level in (0, -1)
            ),
        ]
        for answer in answers:
            assert answer.remark == "service not available now: the broker's disk is full"
        assert [answer.code for answer in answers] == [14] * 4 + [1] * 4
        answer = peer.ask(310, send_fields("NewAndFull", properties=UNIQ, c="NoTemplate"), b"x")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert made(broker) == before
        assert broker.store.failed_puts == refused_before + len(answers)
    finally:
        broker.store.log.refuse(None, "test")
    assert peer.ask(310, send_fields("NewAndFull", properties=UNIQ), b"x").code == 0


def test_a_broken_log_answers_14_and_goes_on_reading(tmp_path):
    engine = start_engine(tmp_path)
    peer = Peer(engine.broker_address)
    assert peer.ask(310, send_fields("T", properties=UNIQ), b"kept").code == 0
    engine.broker.store.log.fail("the disk is gone")
    for _ in range(2):
        refused(
            peer.ask(310, send_fields("T", properties=UNIQ), b"x"),
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "the disk is gone",
        )
    assert [r.body for r in stored(peer, "T")] == [b"kept"]
    assert engine.health()["store"] == {"ok": False, "detail": "the disk is gone"}
    peer.close()
    engine.stop()


def test_a_message_in_a_new_topic_is_acknowledged_after_the_topic_is_durable(tmp_path, monkeypatch):
    """Sync flush: the journal's sync comes before the log's, so that a power cut cannot keep one without the other."""
    engine = start_engine(tmp_path, store={"flush_disk_type": "SYNC_FLUSH"})
    journal, disk = engine.broker.tables.journal, engine.broker.store.disk
    seen = []
    real = disk.fdatasync

    def sync(fd):
        if not os.readlink(f"/proc/self/fd/{fd}").endswith("config.journal"):
            seen.append((journal.durable, journal.written, engine.broker.topics.get("Fresh") is not None))
        real(fd)

    monkeypatch.setattr(disk, "fdatasync", sync)
    sync_in_python(engine.broker.store)
    peer = Peer(engine.broker_address)
    assert peer.ask(310, send_fields("Fresh", properties=UNIQ), b"x").code == 0
    peer.close()
    engine.stop()
    assert (True, True) in [(durable == written, made) for durable, written, made in seen]
    assert all(durable == written for durable, written, made in seen if made)


def during_the_next_look_up(engine, monkeypatch, topic, change):
    """Have another thread change the topics after a send has looked the topic up and before it keeps its route."""
    topics = engine.broker.topics
    real = topics.get

    def get(name):
        found = real(name)
        if name == topic:
            monkeypatch.setattr(topics, "get", real)
            other = threading.Thread(target=change)
            other.start()
            other.join()
        return found

    monkeypatch.setattr(topics, "get", get)


def test_a_topic_changed_while_a_send_resolves_its_route_leaves_no_stale_route(peer, topic, engine, monkeypatch):
    topics = engine.broker.topics
    wider = new_topic(topic, 8, 6)
    during_the_next_look_up(engine, monkeypatch, topic, lambda: topics.update(wider))
    assert peer.ask(310, send_fields(topic, 0, UNIQ), b"resolved between two configurations").code == 0
    assert topics.get(topic) == wider, "the change came while the send was under way"
    assert peer.ask(310, send_fields(topic, 7, UNIQ), b"the new queues take messages").code == 0


def test_a_topic_deleted_while_a_send_resolves_its_route_is_not_written_to_any_more(peer, topic, engine, monkeypatch):
    topics = engine.broker.topics
    during_the_next_look_up(engine, monkeypatch, topic, lambda: topics.delete(topic))
    assert peer.ask(310, send_fields(topic, 0, UNIQ), b"while it was there").code == 0
    answer = peer.ask(310, send_fields(topic, 0, UNIQ, c="NoTemplate"), b"after it was gone")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST


def test_another_topic_changed_meanwhile_leaves_no_stale_route_either(peer, topic, engine, monkeypatch):
    """Routes that were kept before the change are not used in the generation after it."""
    topics = engine.broker.topics
    other = topic + "_other"
    assert topics.update(new_topic(other, 4, 6))
    assert peer.ask(310, send_fields(other, 0, UNIQ), b"its route is kept").code == 0
    during_the_next_look_up(engine, monkeypatch, topic, lambda: topics.update(new_topic(other, 8, 6)))
    assert peer.ask(310, send_fields(topic, 0, UNIQ), b"resolves").code == 0
    assert peer.ask(310, send_fields(other, 7, UNIQ), b"its new queues take messages").code == 0


def test_a_topic_made_by_a_send_is_resolved_once_more_and_then_kept(peer, engine, monkeypatch):
    asked = []
    topics = engine.broker.topics
    real = topics.get
    for _ in range(2):
        assert peer.ask(310, send_fields("MadeBySends", 0, UNIQ), b"a").code == 0
    monkeypatch.setattr(topics, "get", lambda name: asked.append(name) or real(name))
    before = -1
    while before != topics.generation:  # the broker's own registration may change the table after the start
        before = topics.generation
        asked.clear()
        for _ in range(20):
            assert peer.ask(310, send_fields("MadeBySends", 0, UNIQ), b"a").code == 0
    assert asked.count("MadeBySends") <= 1, "20 sends to a table that stays as it is"
