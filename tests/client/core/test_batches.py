"""The body of a batch, as Java writes it, and the places of its messages."""

import struct

from appliance.client.core.batches import by_size, encode_member, places
from appliance.client.message import MessageQueue, SendResult
from appliance.engine.protocol.command import decode_frame
from tests.support.golden import GOLDEN, frames


def members_of(body):
    """(body, properties) of each message of a batch."""
    at = 0
    while at < len(body):
        (length,) = struct.unpack_from(">i", body, at + 16)
        end = at + 20 + length
        (size,) = struct.unpack_from(">h", body, end)
        yield body[at + 20 : end], body[end + 2 : end + 2 + size].decode()
        at = end + 2 + size


def test_a_batch_of_javas_is_made_again():
    compared = 0
    for line, frame in frames(GOLDEN / "wire" / "5.3.3" / "producer.jsonl.gz"):
        if line["dir"] == "request" and line["code"] == 320:
            body = decode_frame(frame).body
            assert b"".join(encode_member(*member) for member in members_of(body)) == body
            compared += 1
    assert compared


def test_members_are_put_together_as_far_as_they_fit():
    members = [b"1" * 4, b"2" * 4, b"3" * 3, b"4" * 20, b"5"]
    assert list(by_size(members, 8)) == [members[:2], members[2:3], members[3:4], members[4:]]
    assert list(by_size([], 8)) == []


def test_the_places_of_a_batch_follow_one_another():
    queue = MessageQueue("T", "a", 1)
    found = places(SendResult("B", "A1,A2", queue, 7, "B"), ["K1", "K2", "K3"])
    assert [(one.message_id, one.offset_id, one.queue_offset) for one in found] == [
        ("K1", "A1", 7),
        ("K2", "A2", 8),
        ("K3", "", 9),
    ]
    assert {(one.queue, one.transaction_id) for one in found} == {(queue, None)}
