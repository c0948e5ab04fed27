"""Odd frames and usual ones on one connection: the broker judges each as the reference does.

The reference is Python: the decoded header, `is_signed_by`, and the policies. In the compiled twin usual requests are
checked by `guard.pxi`, which must admit nothing else.
"""

from __future__ import annotations

import ipaddress
import json
import random
import struct
from typing import Any

import pytest

from appliance.engine.access.asked import asks_of
from appliance.engine.hotpath import COMPILED
from appliance.engine.protocol.command import RemotingCommand, decode_frame
from appliance.engine.protocol.signature import SigningKey, is_signed_by, signed_content
from tests.engine.access.test_enforced import ANN, BOB, CODE, Site, start  # noqa: F401
from tests.support.engine import pull_fields, send_fields

KEY = "UNIQ_KEY\x017F0000015C5C4E0E2F2A691F8DF80000\x02"
#: The short names of a send.
SHORT = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums", "e": "queueId",
    "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties", "j": "reconsumeTimes", "k": "unitMode",
    "m": "batch",
}  # fmt: skip
TOPICS = ("T", "T", "T", "U", "Other", "%RETRY%g", "%RETRY%x", "%DLQ%g", "", "T ")
GROUPS = ("g", "g", "g", "x", "")
CODES = (CODE.SEND_MESSAGE_V2, CODE.SEND_BATCH_MESSAGE, CODE.SEND_MESSAGE, CODE.PULL_MESSAGE, CODE.LITE_PULL_MESSAGE)

Fields = list[tuple[str, Any]]


def usual(code: int, topic: str, group: str) -> Fields:
    if code in (CODE.PULL_MESSAGE, CODE.LITE_PULL_MESSAGE):
        return [(name, str(value)) for name, value in pull_fields(topic, 0, 0, consumerGroup=group).items()]
    fields = {name: str(value) for name, value in send_fields(topic, i=KEY).items() if name != "n"}
    if code == CODE.SEND_MESSAGE:
        fields = {SHORT[name]: value for name, value in fields.items()}
    return list(fields.items())


def escaped(text: str) -> str:
    """Return JSON of a text with each character as an escape."""
    return '"' + "".join(f"\\u{ord(char):04X}" for char in text) + '"'


class Raw(str):
    """A value as it stands in JSON."""


def header_of(code: int, codec: int, fields: Fields, opaque: int) -> bytes:
    if codec:
        told = b""
        for name, value in fields:
            raw, text = name.encode(), str(value).encode()
            told += struct.pack(">h", len(raw)) + raw + struct.pack(">i", len(text)) + text
        return struct.pack(">hbhiiii", code, 0, 1, opaque, 0, 0, len(told)) + told
    told = ",".join(
        f"{json.dumps(name)}:{value if type(value) is Raw else json.dumps(value)}" for name, value in fields
    )
    return f'{{"code":{code},"extFields":{{{told}}},"flag":0,"opaque":{opaque},"version":1}}'.encode()


def frame_of(code: int, codec: int, fields: Fields, body: bytes, opaque: int) -> bytes:
    header = header_of(code, codec, fields, opaque)
    return struct.pack(">iI", 4 + len(header) + len(body), len(header) | codec << 24) + header + body


def signed(code: int, codec: int, fields: Fields, body: bytes, key: SigningKey) -> Fields:
    """Sign what a decoder makes of the fields."""
    decoded = decode_frame(frame_of(code, codec, fields, body, 1))
    return [*fields, ("Signature", key.sign(signed_content(decoded.ext_fields, body)))]


def signed_as_written(fields: Fields, body: bytes, key: SigningKey) -> Fields:
    """Sign all texts, also those of a name that is there twice, and no other values."""
    ordered = sorted(fields, key=lambda field: field[0])
    text = "".join("" if type(value) is Raw else str(value) for _, value in ordered)
    return [*fields, ("Signature", key.sign(text.encode() + body))]


def changed(chance: random.Random, codec: int, fields: Fields) -> None:
    """Make one change to a header's fields."""
    at = chance.randrange(len(fields))
    name, value = fields[at]
    match chance.randrange(9):
        case 0:
            chance.shuffle(fields)
        case 1:
            fields.insert(chance.randrange(len(fields) + 1), (name, value))
        case 2:
            fields.insert(
                chance.randrange(len(fields) + 1),
                (name, chance.choice(("T", "U", "Other", "g", "0", "ann", "bob", ""))),
            )
        case 3:
            fields[at] = (name, chance.choice(("T", "Other", "g", "x", "0", "1", "ann", "bob", "", str(value)[:-1])))
        case 4 if not codec and type(value) is str:
            fields[at] = (name, Raw(escaped(value)))
        case 5 if not codec:
            fields[at] = (name, Raw(chance.choice(("0", "1", "true", "null", "1.5", '""'))))
        case 6:
            fields.append((chance.choice(("new", "", "é", "\U0001f600", "ﬁ", "signature", "z" * 300)), "1"))
        case 7:
            del fields[at]
        case 8 if not codec:
            fields[at] = (name, Raw('"\\ud83d\\ude00"'))


def wrong_signature(chance: random.Random, fields: Fields) -> None:
    for at, (name, value) in enumerate(fields):
        if name == "Signature" and type(value) is str and value:
            cut = chance.randrange(len(value))
            other = (value[:cut], value + "=", value.swapcase(), value[:cut] + "+" + value[cut + 1 :], value[::-1], "")
            fields[at] = (name, chance.choice(other))


def is_admitted(site: Site, request: RemotingCommand) -> bool:
    book = site.running.engine._access.book
    user = book.get(request.ext_fields.get("AccessKey") or "")
    if user is None or not is_signed_by(user.keys, request.ext_fields, request.body):
        return False
    asked = asks_of(request.code)(request, "DefaultCluster")
    here = ipaddress.ip_address("127.0.0.1")
    return all(user.policies.decide(one.kind, one.name, one.actions, here).is_allowed for one in asked)


def passed(site: Site) -> int:
    """Return the requests that the guard let pass."""
    return int(site.running.engine._access.gate.guard.passed) if COMPILED else 0


@pytest.mark.parametrize("seed", [1, 2])
def test_each_frame_is_judged_as_the_reference_does(start, seed):  # noqa: F811
    site = start()
    site.make(ANN, "Topic:T Pub,Sub", "Topic:U Pub", "Group:g Sub")
    site.make(BOB, "Topic:U Pub,Sub")
    chance = random.Random(seed)
    peer = site.peer()
    keys = {ANN[0]: SigningKey(ANN[1]), BOB[0]: SigningKey(BOB[1])}
    admitted = 0
    for number in range(1, 1200):
        code, codec = chance.choice(CODES), int(chance.random() < 0.3)
        body = chance.choice((b"x", b"", b"y" * 2000))
        name = chance.choice(("ann", "ann", "ann", "bob"))
        fields = [*usual(code, chance.choice(TOPICS), chance.choice(GROUPS)), ("AccessKey", name)]
        key = keys[name]
        changes = chance.choice((0, 0, 0, 1, 1, 2))
        if chance.random() < 0.5 and number > 20:
            for _ in range(changes):
                changed(chance, codec, fields)
            as_written = chance.random() < 0.4
            fields = signed_as_written(fields, body, key) if as_written else signed(code, codec, fields, body, key)
        else:
            fields = signed(code, codec, fields, body, key)
            for _ in range(changes if number > 20 else 0):
                changed(chance, codec, fields)
            if chance.random() < 0.1:
                wrong_signature(chance, fields)
            if chance.random() < 0.1:
                body += b"z"
        frame = frame_of(code, codec, fields, body, number)
        expected = is_admitted(site, decode_frame(frame))
        before = passed(site)
        peer.send_bytes(frame)
        answer = peer.receive()
        assert answer.opaque == number
        assert (answer.code != 16) == expected, (number, code, codec, fields, body, answer)
        assert expected or passed(site) == before, (number, code, codec, fields, body)
        admitted += expected
    assert 200 < admitted < 1000, admitted
    if COMPILED:
        assert passed(site) > 200
