"""A message that its consumer sends back: a retry, another one, then a dead letter."""

import pytest

from appliance.engine.protocol.codes import RequestCode
from appliance.engine.protocol.names import SCHEDULE_TOPIC
from appliance.engine.protocol.properties import decode_properties
from tests.support.directories import shared_directory
from tests.support.engine import Peer, pull_fields, records, send_fields, start_engine
from tests.support.waiting import wait_for

UNIQ = "UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBA0000\x02"


@pytest.fixture(scope="module")
def engine(request):
    engine = start_engine(shared_directory(request, "engine"), store={"message_delay_level": "1s 1s 1s 1s 1s"})
    yield engine
    engine.stop()


@pytest.fixture
def peer(engine):
    peer = Peer(engine.broker_address)
    yield peer
    peer.close()


def stored(peer, topic, queue_id=0, offset=0):
    answer = peer.ask(RequestCode.PULL_MESSAGE, pull_fields(topic, queue_id, offset))
    return records(answer.body) if answer.code == 0 else []


def send_back(peer, record, group, level=0, limit=2):
    fields = {
        "offset": record.physical_offset, "group": group, "delayLevel": level, "originMsgId": "x",
        "originTopic": record.topic, "unitMode": "false", "maxReconsumeTimes": limit,
    }  # fmt: skip
    return peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)


def test_two_retries_and_a_dead_letter(engine, peer):
    assert peer.ask(310, send_fields("Orders", 0, UNIQ + "TAGS\x01A\x02"), b"x").code == 0
    [record] = stored(peer, "Orders")
    origin = record
    for times in (1, 2):
        waited = engine.broker.store.max_offset(SCHEDULE_TOPIC, times + 1)
        assert send_back(peer, record, "CG").code == 0
        record = wait_for(lambda times=times: stored(peer, "%RETRY%CG", 0, times - 1), "the retry")[0]
        found = decode_properties(record.properties)
        assert (record.body, record.reconsume_times, record.topic) == (b"x", times, "%RETRY%CG")
        assert (record.born_time_ms, record.born_host) == (origin.born_time_ms, origin.born_host)
        assert (found["RETRY_TOPIC"], found["TAGS"], found.get("DELAY")) == ("Orders", "A", None)
        assert engine.broker.store.max_offset(SCHEDULE_TOPIC, times + 1) == waited + 1, "the level that it waited at"
        assert found["ORIGIN_MESSAGE_ID"].endswith(f"{origin.physical_offset:016X}")
    assert send_back(peer, record, "CG").code == 0
    [dead] = stored(peer, "%DLQ%CG")
    found = decode_properties(dead.properties)
    assert (dead.body, dead.reconsume_times, found["DELAY"], found["RETRY_TOPIC"]) == (b"x", 3, "0", "Orders")
