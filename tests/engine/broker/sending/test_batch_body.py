"""A batch is stored as the same records that its messages would make one by one."""

import random
import struct

import pytest

from appliance.engine.broker.sending.batch_body import MOST_MEMBERS, BatchRecords, MemberLook, Shapes
from appliance.engine.errors import MessageTooLarge, RefusedRequest
from appliance.engine.protocol.message_id import encode_host
from appliance.engine.protocol.properties import decode_properties
from appliance.engine.protocol.record import MAGIC_V1, Record, body_crc, decode_record, encode_record
from appliance.engine.store.dispatch import entry_tag_code
from appliance.engine.store.queues.consume_queue import ENTRY
from tests.support.batches import encode_member

TOPIC = b"\x05Batch"
V4, V6 = encode_host("10.0.0.1", 5000), encode_host("fd00::1", 5000)
COMMON = b"UNIQ_KEY\x01BATCH\x02WAIT\x01true\x02MSG_REGION\x01DefaultRegion\x02CLUSTER\x01c\x02TRACE_ON\x01true\x02"


def batch(body: bytes, common: bytes = COMMON, shapes: Shapes | None = None, born=V4, store=V4, sys_flag=0):
    return BatchRecords(memoryview(body), TOPIC, 3, common, shapes or Shapes(), sys_flag, 1234, born, store, 2)


def expected_properties(own: bytes, common: bytes) -> bytes:
    """Apply the rule: the batch's properties follow the member's own, without names that the member has."""
    names = {pair.partition(b"\x01")[0] for pair in own.split(b"\x02") if b"\x01" in pair}
    added = b"".join(
        f"{name}\x01{value}\x02".encode()
        for name, value in decode_properties(common.decode()).items()
        if name.encode() not in names
    )
    return own + (b"" if not own or own.endswith(b"\x02") else b"\x02") + added


def expected(members, common, born, store, offset, physical):
    records, entries, at = b"", b"", physical
    for body, own, flag in members:
        text = expected_properties(own, common).decode()
        made = encode_record(
            Record(
                0, MAGIC_V1, 0, 3, flag, offset, at, 0, 1234, ("", 0), 5678, ("", 0), 2, 0, body, "Batch", text
            ),
            born,
            store,
        )  # fmt: skip
        records += made
        entries += ENTRY.pack(at, len(made), entry_tag_code(decode_record(made), []))
        at += len(made)
        offset += 1
    return records, entries


def some_members(chance: random.Random):
    for _ in range(chance.randrange(1, 40)):
        body = chance.randbytes(chance.choice((0, 1, 100, 3000)))
        key = (
            "".join(chance.choices("0123456789ABCDEFü", k=32))
            if chance.random() < 0.1
            else f"{chance.getrandbits(128):032X}"
        )
        pairs = [
            f"UNIQ_KEY\x01{key}", f"KEYS\x01{chance.randrange(5)}", "WAIT\x01true", f"TAGS\x01Tag{chance.randrange(3)}",
            "DELAYED\x01no", "XUNIQ_KEY\x011", "name\x01wert ü", "MSG_REGION\x01mine", "UNIQ_KEY\x01second",
            "TAGS\x01last",
        ]  # fmt: skip
        if chance.random() < 0.5:
            pairs = pairs[:1] + pairs[2:4]
        else:
            chance.shuffle(pairs)
            pairs = pairs[: chance.randrange(len(pairs))]
        text = "\x02".join(pairs) + ("\x02" if chance.random() < 0.7 and pairs else "")
        yield body, text.encode(), chance.choice((0, 0, 7, -1))


@pytest.mark.parametrize("seed", range(40))
def test_records_and_entries_are_those_of_the_plain_way(seed):
    """One `Shapes` serves many batches, as in the broker."""
    chance = random.Random(seed)
    shapes = Shapes()
    for _ in range(10):
        members = list(some_members(chance))
        common = chance.choice((
            COMMON,
            COMMON.replace(b"BATCH", b"OTHER"),
            COMMON.replace(b"UNIQ_KEY", b"KEY"),
            b"TAGS\x01batch\x02" + COMMON,
            b"XUNIQ_KEY\x01%d\x02" % chance.randrange(3) + COMMON,
            b"",
        ))  # fmt: skip
        born, store = chance.choice((V4, V6)), chance.choice((V4, V6))
        body = b"".join(encode_member(*member) for member in members)
        records, entries, found = batch(body, common, shapes, born, store).pack(17, 1 << 33, 5678)
        assert (records, entries) == expected(members, common, born, store, 17, 1 << 33)
        assert found == [physical for physical, _, _ in ENTRY.iter_unpack(entries)]
        for place, (inner, _, _) in zip(found, members, strict=True):
            record = decode_record(records, place - (1 << 33))
            assert (record.body, record.body_crc) == (inner, body_crc(inner))


def test_the_properties_of_one_member_are_not_taken_for_anothers():
    own = [b"UNIQ_KEY\x01%d\x02WAIT\x01true\x02TAGS\x01%s\x02" % (n, tag) for n, tag in enumerate((b"A", b"B", b"A"))]
    _, entries, _ = batch(b"".join(encode_member(b"x", text) for text in own)).pack(0, 0, 1)
    assert [code for _, _, code in ENTRY.iter_unpack(entries)] == [65, 66, 65]


def test_what_is_remembered_is_bounded():
    shapes = Shapes()
    for number in range(3000):
        own = b"UNIQ_KEY\x01K\x02KEYS\x01%d\x02" % number
        batch(encode_member(b"x", own), COMMON + b"n\x01%d\x02" % (number // 10), shapes).pack(0, 0, 1)
    assert len(shapes._known) <= 256
    shapes = Shapes()
    for number in range(3000):
        batch(encode_member(b"x", b"UNIQ_KEY\x01K\x02KEYS\x01%d\x02" % number), COMMON, shapes).pack(0, 0, 1)
    assert sum(map(len, shapes._known.values())) <= 1024 + 1


GOOD = encode_member(b"body", b"UNIQ_KEY\x01K\x02")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (GOOD + b"\0" * 21, "21 bytes are left over"),
        (GOOD + struct.pack(">iiiii", 30, 0, 0, 0, 5000) + b"x" * 10, "a body is longer than the batch"),
        (GOOD + struct.pack(">iiiii", 30, 0, 0, 0, -1) + b"x" * 10, "a body is longer than the batch"),
        (GOOD + struct.pack(">iiiii", 23, 0, 0, 0, 1) + b"x\0\1", "a message's size is not that of its parts"),
        (GOOD + struct.pack(">iiiii", 22, 0, 0, 0, 1) + b"x\0\0", "a message's size is not that of its parts"),
        (GOOD + struct.pack(">iiiii", 20, 0, 0, 0, 0) + b"\0\0", "a message's size is not that of its parts"),
        (GOOD + encode_member(b"x", b"ab\x01\xff\x02"), "properties are not UTF-8"),
        (GOOD + encode_member(b"x", b"UNIQ_KEY\x01\xff\x02"), "properties are not UTF-8"),
    ],
)
def test_what_is_no_batch_is_refused(body, why):
    with pytest.raises(RefusedRequest, match=why) as caught:
        batch(body).pack(0, 0, 1)
    assert caught.value.code == 13


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TRAN_MSG"])
@pytest.mark.parametrize("order", [0, 1])
def test_a_member_that_a_batch_may_not_hold_is_refused_every_time(name, order):
    pairs = ["UNIQ_KEY\x01K\x02", f"{name}\x013\x02"]
    body = encode_member(b"x", "".join(pairs[::-1] if order else pairs).encode())
    shapes = Shapes()
    for _ in range(2):
        with pytest.raises(RefusedRequest, match="delayed or half"):
            batch(GOOD + body, shapes=shapes).pack(0, 0, 1)


def test_properties_that_become_too_long_are_refused():
    limit = 32767 - len(expected_properties(b"a\x01b\x02", COMMON)) + 1
    batch(encode_member(b"x", b"a\x01" + b"b" * limit + b"\x02")).pack(0, 0, 1)
    with pytest.raises(MessageTooLarge):
        batch(encode_member(b"x", b"a\x01" + b"b" * (limit + 1) + b"\x02")).pack(0, 0, 1)


def test_numbers_that_do_not_fit_are_an_error_before_anything_is_packed():
    with pytest.raises(struct.error):
        batch(GOOD, sys_flag=1 << 40).pack(0, 0, 1)


def test_more_messages_than_are_taken_are_refused_before_any_is_looked_at(monkeypatch):
    monkeypatch.setattr(MemberLook, "look_at", None)
    body = encode_member(b"", b"", 0) * (MOST_MEMBERS + 1)
    with pytest.raises(RefusedRequest, match=f"more than {MOST_MEMBERS} messages"):
        batch(body, b"").pack(0, 0, 0)


def test_a_batch_as_apaches_example_of_splitting_sends_it_is_taken():
    """1,000,000 bytes of topic, body, properties and 20 for each message."""
    assert len(batch(encode_member(b"x", b"", 0) * 13_275).pack(0, 0, 0)[2]) == 13_275


def test_members_that_are_alike_are_looked_at_once(monkeypatch):
    looks = []
    look_at = MemberLook.look_at
    monkeypatch.setattr(MemberLook, "look_at", lambda self, own: looks.append(own) or look_at(self, own))
    body = (encode_member(b"", b"", 0) + encode_member(b"x", b"a\x01b", 0)) * 1000
    found = batch(body, b"UNIQ_KEY\x01AC\x02").pack(0, 0, 0)[2]
    assert (looks, len(found)) == ([b"", b"a\x01b"], 2000)
