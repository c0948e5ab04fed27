"""Messages out of the body of a pull."""

import pytest

from appliance.client.core.records import read_messages
from appliance.client.errors import BadAnswer
from appliance.client.message import MessageQueue
from appliance.client.wire import Record, encode_host
from appliance.engine.protocol.record import MAGIC_V1, encode_record

QUEUE = MessageQueue("orders", "broker-a", 0)
ADDRESS = ("127.0.0.1", 10911)


def test_a_body_that_was_altered_is_found_where_it_is_verified():
    host = encode_host(*ADDRESS)
    record = Record(0, MAGIC_V1, 0, 0, 0, 5, 9, 0, 1, ADDRESS, 2, ADDRESS, 0, 0, b"paid", "orders", "")
    raw = encode_record(record, host, host)
    assert [message.body for message in read_messages(raw, QUEUE, verify=True)] == [b"paid"]
    altered = raw.replace(b"paid", b"pa\0d")
    assert [message.body for message in read_messages(altered, QUEUE)] == [b"pa\0d"]
    with pytest.raises(BadAnswer, match="CRC"):
        read_messages(altered, QUEUE, verify=True)
