"""Usual sends as clients write them, odd sends, and whole conversations of both, from a seed.

A usual send comes in four styles: Java's JSON, Go's, C++'s and Java's ROCKETMQ. An odd one has something wrong, or
something that only looks wrong: each place of a header, of the properties and of a body has a list of such things.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from typing import Any

from tests.support.batches import encode_member
from tests.support.golden import VERSIONS, frames, transcripts
from tests.support.sending import LONG
from tests.support.twins import Setting, Step

SENDS = (10, 310, 320)
PULLS = (11, 361)
TOPICS = ("TopicA", "TopicB", "Orders", "%RETRY%Group", "New-1", "New_2")
#: Topics that producers may not send to, or that do not exist.
ODD_TOPICS = (
    "", " ", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "TBW102", "SELF_TEST_TOPIC", "%DLQ%Group", "%RETRY%",
    "%RETRY%Nobody", "%RETRY%New", "a/b", "ä", "x" * 127, "x" * 128, "x" * 300, "Read", "Ordered", "Deleted", "None",
    "a.b", "T@x", "|", "-", "\0", "TopicA ", " TopicA", "topica", "T" + "é" * 70,
)  # fmt: skip
#: Spellings of numbers, quoted or not; %d: the intended number.
NUMBERS = (
    b'"%d"', b"%d", b'"0%d"', b'"+%d"', b'" %d"', b'"%d "', b"%d.0", b'"%d.0"', b"%de0", b'"%de0"', b"0%d", b"-0",
    b'"-0"', b'"-"', b'"--1"', b"-%d", b'"-%d"', b"2147483647", b'"2147483647"', b"2147483648", b'"2147483648"',
    b"-2147483648", b'"-2147483648"', b"-2147483649", b'"-2147483649"', b"4294967296", b'"4294967297"',
    b"9223372036854775807", b'"9223372036854775807"', b"9223372036854775808", b'"9223372036854775808"',
    b"-9223372036854775808", b'"-9223372036854775808"', b"-9223372036854775809", b'"-9223372036854775809"',
    b"18446744073709551615", b'"18446744073709551616"', b'"' + b"9" * 400 + b'"', b"9" * 400, b"1e400", b'"1e400"',
    b"1e3", b'"1e3"', b"1.5", b'"1.5"', b'"0x1"', b"NaN", b'"NaN"', b"null", b'"null"', b'""', b"[]", b"{}", b"true",
    b'"true"', b'"\xd9\xa1"', b'"\\u0031"', b'"1_0"', b'"\\u00311"', b"\xff", b"", b'"%d', b'%d"', b'"1\\n"', b"1 2",
)  # fmt: skip
BOOLEANS = (
    b'"true"', b'"false"', b"true", b"false", b'"TRUE"', b'"False"', b'"True"', b'"FALSE"', b'"1"', b'"0"', b"1", b"0",
    b'"yes"', b'"t"', b'""', b"null", b'"tRue"', b'"true "', b"2", b"1.0", b"-0", b"[]", b'"\\u0074rue"', b"True",
    b'"on"', b'"01"', b"0.0", b'"0.0"',
)  # fmt: skip
#: Contents of JSON strings, between the quotes.
RAW_STRINGS = (
    b"", b"a", b"\\u0061", b"\\u00e9", b"\\u00E9", b"\xc3\xa9", b"\\ud83d\\ude00", b"\xf0\x9f\x98\x80", b"\\ud83d",
    b"\\ude00", b"\\ud83d\\u0041", b"\\ude00\\ud83d", b"\\/", b"\\b\\f\\n\\r\\t\\\"\\\\", b"\\u0000", b"\\u", b"\\u00",
    b"\\u12g4", b"\\x", b"\\", b"\x00", b"\x01", b"\n", b"\x7f", b"\xc2\x80", b"\xff", b"\xc3", b"\xc0\xaf",
    b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80\xa8", b"\\u2028", b"\xef\xbb\xbf", b"\\ufeff", b"\\uffff",
    b"\\u0001", b"\\u0002", b"\\u0022", b"\\u005c", b'"', b"\\'", b"\\U0001", b"\\u+123", b"\\u 123", b"a" * 300,
)  # fmt: skip
#: Property names that the broker reads, and names that end or begin like these.
NAMES = (
    "UNIQ_KEY", "TAGS", "KEYS", "WAIT", "DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS",
    "TIMER_DEL_UNIQKEY", "TRAN_MSG", "CLUSTER", "MSG_REGION", "TRACE_ON", "POP_CK", "INNER_NUM", "__RMQ.TRANSIENT.X",
    "__RMQ.TRANSIENT.", "__TRANSIENT", "RETRY_TOPIC", "REAL_TOPIC", "PGROUP", "INSTANCE_ID", "XUNIQ_KEY", "UNIQ_KEYX",
    "XTAGS", "TAGSX", "XWAIT", "MY_CLUSTER", "CLUSTERX", "XMSG_REGION", "TRACE_ON_", "DELAYED", "NO_DELAY", "a", "",
    "ä", "a_b", "a_b_c", "uniq_key", "tags", "\0", "k" * 200,
)  # fmt: skip
VALUES = (
    "", "true", "false", "0", "1", "-1", "3", "TagA", "TagB", "*", "polygenelubricants", "ü", "😀", "é" * 50, "Aa",
    "BB", "a b", " ", "\0", "\0" * 511, "\0" * 512, "\0" * 600, "x" * 700, "DELAY", "CLUSTER", "TIMER_", "TRAN_MSG",
    "__RMQ.TRANSIENT.", "UNIQ_KEY", "\x01", "TRUE", "False", "true ", "\u2028", "\"quoted\"", "back\\slash", "a/b",
    "\x7f", "\t\n", "7F0000016AB14E0E2F2A69208FBA0000", "\ufeff", "a-b.c", "0" * 19,
)  # fmt: skip
#: Lengths around the limit of a record's properties.
LONG_LENGTHS = (32_640, 32_700, 32_750, 32_766, 32_767, 32_768, 33_000, 40_000)
_MOST = 20_000


def properties(chance: random.Random) -> str:
    """Return the properties of a usual message, about every second time as Java 4.9 writes them: without the last
    separator."""
    number = chance.randrange(1 << 16)
    pairs = [f"UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBA{number:04X}", "WAIT\x01true"]
    if chance.random() < 0.7:
        pairs.append("TAGS\x01" + chance.choice(("TagA", "TagB", "polygenelubricants", "订单", "Füße", "😀x", "T")))
    if chance.random() < 0.5:
        pairs.append(f"KEYS\x01order-{number}")
    if chance.random() < 0.3:
        pairs.insert(0, f"own\x01{chance.choice(('v', 'a value', 'ü', 'x' * 60))}")
    if chance.random() < 0.3:
        chance.shuffle(pairs)
    return "\x02".join(pairs) + chance.choice(("", "\x02"))


def odd_properties(chance: random.Random) -> str:
    """Return properties with any names and values, cut off, doubled, or far too long."""
    pick = chance.random()
    if pick < 0.05:
        return f"UNIQ_KEY\x01K{chance.randrange(9)}\x02a\x01" + "v" * chance.choice(LONG_LENGTHS)
    if pick < 0.2:
        base = properties(chance)
        at = chance.randrange(len(base) + 1)
        pair = chance.choice(NAMES) + "\x01" + chance.choice(VALUES)
        return chance.choice(
            (base[:at] + base[at + 1 :], base[:at] + "\x02" + base[at:], base + "\x02" + pair, pair + "\x02" + base,
             base + pair, base + base, base[:at] + pair + base[at:], base[:at], base + "\x02\x02")
        )  # fmt: skip
    text = ""
    for _ in range(chance.choice((0, 1, 2, 3, 6))):
        name = chance.choice(NAMES) if chance.random() < 0.7 else chance.choice(NAMES[:3])
        text += name + chance.choice(("\x01",) * 9 + ("",)) + chance.choice(VALUES)
        text += chance.choice(("\x02",) * 9 + ("", "\x02\x02"))
    return text[:-1] if text and chance.random() < 0.4 else text


def fields_of(chance: random.Random, topic: str, queue_id: int, text: str, batch: bool) -> list[tuple[str, Any]]:
    """Return the header fields of a send under their one-letter names, in Java's order. Values: text, numbers,
    booleans."""
    return [
        ("a", "PG"), ("b", topic), ("c", "TBW102"), ("d", 4), ("e", queue_id), ("f", 0), ("g", 1_700_000_000_000),
        ("h", 0), ("i", text), ("j", 0), ("k", False), ("m", batch), ("n", "broker-a"),
    ]  # fmt: skip


def quoted(text: str, chance: random.Random | None = None) -> bytes:
    """Return a JSON string as Java's and Go's encoders write it; with `chance`, some characters are escaped instead."""
    out = bytearray(b'"')
    for letter in text:
        code = ord(letter)
        if chance is not None and chance.random() < 0.1:
            for unit in struct.unpack(f">{len(letter.encode('utf-16-be', 'surrogatepass')) // 2}H",
                                      letter.encode("utf-16-be", "surrogatepass")):  # fmt: skip
                out += (b"\\u%04x" if chance.random() < 0.5 else b"\\u%04X") % unit
        elif letter in '"\\':
            out += b"\\" + letter.encode()
        elif code < 0x20:
            short = {8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r"}.get(code)
            out += short or b"\\u%04x" % code
        elif 0xD800 <= code < 0xE000:
            out += b"\\u%04x" % code
        else:
            out += letter.encode()
    return bytes(out + b'"')


def value_of(value: Any, numbers: bool, chance: random.Random | None = None) -> bytes:
    """Return a field's value in JSON. numbers: write numbers and booleans bare, as C++ does, and not as text."""
    if isinstance(value, bool):
        return (b"%b" if numbers else b'"%b"') % (b"true" if value else b"false")
    if isinstance(value, int):
        return (b"%d" if numbers else b'"%d"') % value
    return quoted(value, chance)


def json_header(style: str, code: int, fields: list[tuple[bytes, bytes]], opaque: bytes, flag: bytes) -> bytes:
    """Return a whole header from keys and values that are already encoded."""
    ext = b"{" + b",".join(b'"%b":%b' % pair for pair in fields) + b"}"
    if style == "go":
        form = b'{"code":%d,"language":"GO","version":317,"opaque":%b,"flag":%b,"remark":"","extFields":%b}'
        return form % (code, opaque, flag, ext)
    if style == "cpp":
        form = b'{"code":%d,"extFields":%b,"flag":%b,"language":"CPP","opaque":%b,"version":431}\n'
        return form % (code, ext, flag, opaque)
    form = b'{"code":%d,"extFields":%b,"flag":%b,"language":"JAVA","opaque":%b,%b,"version":479}'
    return form % (code, ext, flag, opaque, b'"serializeTypeCurrentRPC":"JSON"')


def binary_header(code: int, fields: list[tuple[str, Any]], opaque: int, flag: int) -> bytes:
    """Return the same header in ROCKETMQ, as Java writes it: without empty fields."""
    entries = b""
    for name, value in fields:
        text = ("true" if value else "false") if isinstance(value, bool) else str(value)
        if text:
            raw = text.encode("utf-8", "surrogatepass")
            entries += struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(raw)) + raw
    return struct.pack(">hbhiii", code, 0, 479, opaque, flag, 0) + struct.pack(">i", len(entries)) + entries


def framed(header: bytes, body: bytes, codec: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), codec << 24 | len(header)) + header + body


def members(chance: random.Random, count: int) -> bytes:
    """Return a usual batch's body."""
    size = chance.choice((10, 100, 1000))
    text = chance.choice(
        ("WAIT\x01true\x02TAGS\x01TagA", "WAIT\x01true\x02TAGS\x01TagA\x02", "TAGS\x01订单", "WAIT\x01true")
    )
    return b"".join(
        encode_member(
            chance.randbytes(size), f"UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBB{number:04X}\x02{text}".encode()
        )
        for number in range(count)
    )


def of_a_batch(chance: random.Random) -> str:
    """Return a usual batch's own properties, now and then as Java 4.9 writes them."""
    if chance.random() < 0.2:
        return "WAIT\x01true"
    return f"UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBC{chance.randrange(1 << 16):04X}\x02WAIT\x01true\x02"


def usual(chance: random.Random, kind: str) -> bytes:
    """Return a send that the compiled part handles. kind: java, go, cpp or binary, with -10 or -batch behind it."""
    style, _, more = kind.partition("-")
    batch = more == "batch"
    code = 10 if more == "10" else 320 if batch else 310
    topic, queue_id = chance.choice(TOPICS[:3]), chance.randrange(4)
    pairs = fields_of(chance, topic, queue_id, of_a_batch(chance) if batch else properties(chance), batch)
    if code == 10:
        pairs = [(LONG.get(letter, letter), value) for letter, value in pairs if letter != "n"]
    body = (
        members(chance, chance.choice((1, 2, 8, 32))) if batch else chance.randbytes(chance.choice((1, 16, 1024, 5000)))
    )
    opaque = chance.randrange(1 << 20)
    if style == "binary":
        return framed(binary_header(code, pairs, opaque, 0), body, 1)
    encoded = [(name.encode(), value_of(value, style == "cpp")) for name, value in pairs]
    return framed(json_header(style, code, encoded, b"%d" % opaque, b"0"), body)


USUAL_KINDS = tuple(f"{style}{more}" for style in ("java", "go", "cpp", "binary") for more in ("", "-10", "-batch"))


def odd_batch(chance: random.Random) -> bytes:
    """Return a batch's body in which something may be wrong, mostly with one member."""
    count = chance.choice((0, 1, 2, 3, 3, 5, 40))
    guilty = {chance.randrange(count) for _ in range(chance.choice((0, 1, 1, 2)))} if count else set()
    parts = []
    for number in range(count):
        body = chance.randbytes(chance.choice((1, 10, 10, 100)))
        text = properties(chance)
        flag, pick = 0, chance.randrange(9) if number in guilty else -1
        if pick == 0:
            body = chance.randbytes(chance.choice((0, _MOST)))
        elif pick in (1, 2, 3):
            text = odd_properties(chance)
        elif pick == 4:
            text = text.replace("UNIQ_KEY", "KEYS")
        elif pick == 5:
            flag = chance.choice((1, -1, 1 << 30, -(1 << 31)))
        raw = text.encode("utf-8", "surrogatepass")[:65_535]
        if pick == 6:
            raw += chance.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"", b"\x02", b"\x00" * 512))
        member = encode_member(body, raw, flag)
        if pick == 7:  # the broker writes magic and CRC itself
            member = member[:4] + chance.randbytes(8) + member[12:]
        elif pick == 8:
            at = chance.choice((0, 16, 20 + len(body)))
            width = 2 if at == 20 + len(body) else 4
            wrong = chance.choice((0, 1, -1, 21, 22, 0x7FFFFFFF, -(1 << 31), len(member) + 1, len(member) - 1))
            member = member[:at] + (wrong & (1 << 8 * width) - 1).to_bytes(width, "big") + member[at + width :]
        parts.append(member)
    body = b"".join(parts)
    cut = chance.random()
    if cut < 0.08:
        return body[: chance.randrange(len(body) + 1)]
    return body + chance.randbytes(chance.choice((1, 4, 21, 22, 23))) if cut < 0.13 else body


#: Oddities of a send; names that stand here more often are chosen more often.
_ODDITIES = (
    "topic", "topic", "queue", "queue", "text", "text", "text", "text", "number", "number", "body", "flag", "names",
    "order", "binary", "binary", "spelt", "spoilt", "spoilt", "spoilt", "spoilt", "opaque", "blank", "mutated",
    "member", "member", "member", "unique",
)  # fmt: skip


def odd(chance: random.Random) -> bytes:
    """Return a send with one oddity or a few."""
    odds = {chance.choice(_ODDITIES) for _ in range(chance.choice((1, 1, 1, 1, 2, 3)))}
    code = chance.choice((310, 310, 310, 10, 320, 320))
    batch = (code == 320) != ("names" in odds and chance.random() < 0.5)
    topic = chance.choice(ODD_TOPICS if "topic" in odds else TOPICS)
    queue_id = chance.randrange(4)
    if "queue" in odds:
        queue_id = chance.choice((-1, -(1 << 31), 4, 7, 8, 255, 1 << 30, (1 << 31) - 1))
    text = properties(chance) if chance.random() < 0.3 or not batch else of_a_batch(chance)
    if "text" in odds:
        text = odd_properties(chance)
    pairs = fields_of(chance, topic, queue_id, text, batch)
    if "number" in odds:
        name, values = chance.choice((
            ("f", (1, 2, 4, 8, 12, 0x10, 0x20, 0x30, 0x80, 0x91, -1, 1 << 30, 256)),
            ("g", (0, -1, 1 << 62)), ("h", (1, -1, 1 << 30)),
            ("j", (1, 3, 17, -1, 1 << 30)), ("l", (0, 1, 16, -1)), ("d", (0, 1, 8, 9, -1, 1 << 30)),
            ("c", ("", "NoTemplate", "SELF_TEST_TOPIC", "broker-a")), ("k", (True,)), ("a", ("", "ä", "x" * 300)),
        ))  # fmt: skip
        pairs = [pair for pair in pairs if pair[0] != name] + [(name, chance.choice(values))]
    if batch:
        body = odd_batch(chance) if odds & {"member", "body"} else members(chance, chance.choice((1, 3)))
        if "unique" in odds:
            body = body.replace(b"UNIQ_KEY", chance.choice((b"UNIQ-KEY", b"WNIQ_KEY")))
    else:
        sizes = (0, 1, 2, _MOST - 1, _MOST, _MOST + 1, 70_000) if "body" in odds else (10, 100, 1000)
        body = chance.randbytes(chance.choice(sizes))
    opaque, flag = chance.randrange(1 << 20), chance.choice((2, 4, 1, 1 << 30, -1)) if "flag" in odds else 0
    if (code == 10) != ("names" in odds and chance.random() < 0.5):
        pairs = [(LONG.get(letter, letter), value) for letter, value in pairs]
    if "order" in odds:
        chance.shuffle(pairs)
    if "binary" in odds:
        return _odd_binary(chance, code, pairs, opaque, flag, body, len(odds) - 1)
    style = chance.choice(("java", "java", "go", "cpp"))
    spelt = chance if "spelt" in odds else None
    encoded = [(name.encode(), value_of(value, style == "cpp", spelt)) for name, value in pairs]
    if "spoilt" in odds:
        for _ in range(chance.choice((1, 1, 2))):
            _spoil(chance, encoded)
    share = 0.5 if "opaque" in odds else 0.0
    header = json_header(
        style, code, encoded, _odd_number(chance, opaque, share), _odd_number(chance, flag, share)
    )  # fmt: skip
    if "blank" in odds:
        header = _respell(chance, header)
    if "mutated" in odds:
        header = mutated(chance, header)
    return framed(header, body)


def _odd_number(chance: random.Random, number: int, share: float) -> bytes:
    if chance.random() >= share:
        return b"%d" % number
    form = chance.choice(NUMBERS)
    return form % number if b"%d" in form else form


def _spoil(chance: random.Random, fields: list[tuple[bytes, bytes]]) -> None:
    """Change, remove or double one field of a JSON header."""
    at = chance.randrange(len(fields))
    name, value = fields[at]
    pick = chance.randrange(9)
    if pick == 0:
        del fields[at]
        if not fields:
            fields.append((name, value))
    elif pick == 1:
        fields.insert(chance.randrange(len(fields) + 1), (name, chance.choice((value, b'"7"', b'""', b"null"))))
    elif pick == 2:
        fields[at] = name, _odd_number(chance, chance.choice((0, 1, 3)), 1.0)
    elif pick == 3:
        fields[at] = name, chance.choice(BOOLEANS)
    elif pick == 4:
        fields[at] = name, b'"' + chance.choice(RAW_STRINGS) + b'"'
    elif pick == 5:
        inner = value[1:-1] if value[:1] == b'"' else value
        fields[at] = name, b'"' + inner + chance.choice(RAW_STRINGS) + chance.choice((b'"', b'"', b""))
    elif pick == 6:
        unknown = chance.choice((b"zz", b"A", b"ab", b"", b"\\u0061", b"extFields", b"opaque", b"\xff", b"aa", b"o"))
        fields.insert(
            at,
            (
                unknown,
                chance.choice((b'"x"', b"1", b"null", b"[1,[2,{}]]", b'{"a":{"b":[]}}', b"true", b"-1.5e3", value)),
            ),
        )
    elif pick == 7:
        fields[at] = chance.choice((name.upper(), name + b" ", b"\\u00%02x" % (name or b"a")[0], b" " + name)), value
    else:
        fields[at] = (
            name,
            chance.choice((b"null", b"[]", b"{}", b'"', b"nul", b"tru", b'"a" "b"', b"[" * 30 + b"]" * 30)),
        )


def _respell(chance: random.Random, header: bytes) -> bytes:
    """Insert blanks into a JSON header, add bytes around it, or change one of its fields."""
    pick = chance.randrange(8)
    blank = chance.choice((b" ", b"\n", b"\t", b"\r\n", b"  ", b"\x0b", b"\xa0", b"\0"))
    if pick < 4:
        sign = chance.choice((b",", b":", b"{", b"}"))
        before, _, after = header.partition(sign)
        return before + chance.choice((blank + sign, sign + blank)) + after
    if pick == 4:
        return header + chance.choice((blank, b"x", b"{}", b"}", b",", b"\0\0"))
    if pick == 5:
        return blank + header
    if pick == 6:
        return header[:-1] + chance.choice(
            (b",}", b',"x":1}', b',"version":"5"}', b',"flag":2}', b',"opaque":5}', b',"code":11}', b"")
        )
    return header.replace(
        b'"version":479',
        chance.choice(
            (b'"version":"479"', b'"version":1e2', b'"version":null', b'"version":99999999999', b'"version":-1')
        ),
    )


def mutated(chance: random.Random, data: bytes) -> bytes:
    """Return the data with some bytes changed, removed or doubled."""
    raw = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        if not raw:
            break
        at = chance.randrange(len(raw))
        pick = chance.randrange(5)
        if pick == 0:
            raw[at] = chance.randrange(256)
        elif pick == 1:
            raw[at] ^= 1 << chance.randrange(8)
        elif pick == 2:
            del raw[at : at + chance.choice((1, 1, 2, 5))]
        elif pick == 3:
            raw[at:at] = raw[at : at + chance.choice((1, 2, 9))]
        else:
            raw[at] = chance.choice(b'"\\{}[]:,0\x00\x01\x02\xff')
    return bytes(raw)


def _odd_binary(
    chance: random.Random, code: int, pairs: list[tuple[str, Any]], opaque: int, flag: int, body: bytes, wrong: int
) -> bytes:
    texts = [
        (
            name.encode("utf-8", "surrogatepass"),
            ("true" if value else "false") if isinstance(value, bool) else str(value),
        )
        for name, value in pairs
    ]
    fields = [(name, text.encode("utf-8", "surrogatepass")) for name, text in texts]
    for _ in range(wrong if chance.random() < 0.5 else chance.choice((0, 1, 1, 2))):
        at = chance.randrange(len(fields))
        name, value = fields[at]
        pick = chance.randrange(6)
        if pick == 0 and len(fields) > 1:
            del fields[at]
        elif pick == 1:
            fields.insert(at, (name, chance.choice((value, b"7", b"", b"x"))))
        elif pick == 2:
            number = _odd_number(chance, 1, 1.0).strip(b'"')
            fields[at] = name, number
        elif pick == 3:
            fields[at] = name, chance.choice(BOOLEANS).strip(b'"')
        elif pick == 4:
            fields[at] = name, value + chance.choice((b"\xff", b"\xed\xa0\x80", b"\0", b" ", b"\xc3\xa9"))
        else:
            fields.insert(at, (chance.choice((b"", b"zz", b"\xff", b"A", b"a" * 300)), b"x"))
    entries = b""
    for name, value in fields:
        size = len(value)
        if chance.random() < 0.004:
            size = chance.choice((0, -1, size + 1, size - 1, 1 << 30, -(1 << 31)))
        entries += struct.pack(">H", len(name)) + name + struct.pack(">i", size) + value
    remark = b"" if chance.random() < 0.9 else b"remark"
    if chance.random() < 0.05:
        opaque = chance.choice((-1, -(1 << 31), (1 << 31) - 1, 0))
    said = len(entries)
    if chance.random() < 0.03:
        said = chance.choice((0, said - 1, said + 1, -1, 1 << 30))
    header = struct.pack(
        ">hBhii", code, chance.choice((0, 0, 1, 9, 12, 200)), chance.choice((479, 0, -1)), opaque, flag
    )
    header += struct.pack(">i", len(remark)) + remark + struct.pack(">i", said) + entries
    if chance.random() < 0.05:
        header = mutated(chance, header)
    return framed(header, body, 1)


_KEY = "UNIQ_KEY\x01K1\x02WAIT\x01true\x02"
_BESIDE = ("opaque", "flag", "version", "code", "remark", "language", "zz")


def plain(code: int) -> tuple[list[tuple[str, Any]], bytes]:
    """Return the fields and the body of an ordinary request."""
    if code in PULLS:
        return [
            ("consumerGroup", "CG"), ("topic", "TopicA"), ("queueId", 0), ("queueOffset", 1), ("maxMsgNums", 32),
            ("sysFlag", 6), ("commitOffset", 0), ("suspendTimeoutMillis", 15_000), ("subscription", "*"),
            ("subVersion", 0), ("expressionType", "TAG"),
        ], b""  # fmt: skip
    batch = code == 320
    pairs = fields_of(random.Random(1), "TopicA", 0, _KEY, batch)
    named = [(LONG.get(name, name) if code == 10 else name, value) for name, value in pairs]
    return named, encode_member(b"x", b"UNIQ_KEY\x01K2\x02") if batch else b"x"


def each_header(code: int) -> Iterator[bytes]:
    """Yield JSON frames: each value of the lists above in each field of a header, alone and after the right value."""
    named, body = plain(code)
    fields = [(name.encode(), value_of(value, False)) for name, value in named]
    fields += [(b"l" if code > 300 else b"maxReconsumeTimes", b'"3"'), (b"zz", b'"x"')]
    values = [b'"' + raw + b'"' for raw in RAW_STRINGS] + [b'"' + raw + b'x"' for raw in RAW_STRINGS]
    values += [form % 2 if b"%d" in form else form for form in NUMBERS] + list(BOOLEANS)
    for at, (name, known) in enumerate(fields):
        others = fields[:at], fields[at + 1 :]
        spoilt = [(name, value) for value in values] + [(raw, known) for raw in RAW_STRINGS]
        if known[:1] == b'"':
            spoilt += [(name, known[:-1] + raw + b'"') for raw in RAW_STRINGS]
        for one in spoilt:
            yield framed(json_header("java", code, [*others[0], one, *others[1]], b"1", b"0"), body)
        for more in (b'"7"', b'""', b"null", known):  # twice, before and behind, and not at all
            yield framed(json_header("java", code, [(name, more), *fields], b"2", b"0"), body)
            yield framed(json_header("java", code, [*fields, (name, more)], b"3", b"0"), body)
        yield framed(json_header("java", code, [*others[0], *others[1]], b"4", b"0"), body)
    usual_header = json_header("java", code, fields, b"5", b"0")
    for member in _BESIDE:
        for value in values:
            more = b',"%b":%b}' % (member.encode(), value)
            yield framed(usual_header[:-1] + more, body)
            if member in ("opaque", "flag", "version"):
                number = b"5" if member == "opaque" else b"0" if member == "flag" else b"479"
                yield framed(usual_header.replace(b'"%b":%b' % (member.encode(), number), more[1:-1]), body)
    for at in range(len(usual_header) + 1):
        for sign in b' \n\0"\\,}x':
            yield framed(usual_header[:at] + bytes((sign,)) + usual_header[at:], body)
        yield framed(usual_header[:at] + usual_header[at + 1 :], body)
        yield framed(usual_header[:at], body)


def each_binary_header(code: int) -> Iterator[bytes]:
    """Yield the same frames in ROCKETMQ, and frames with each of its lengths wrong."""
    named, body = plain(code)
    usual_header = binary_header(code, named, 5, 0)
    values = [raw for raw in RAW_STRINGS if raw] + [form.strip(b'"') % 2 for form in NUMBERS if b"%d" in form]
    values += [form.strip(b'"') for form in (*NUMBERS, *BOOLEANS) if b"%d" not in form] + [b""]
    fields = [(name.encode(), value_of(value, False).strip(b'"').replace(b"\\u000", b"")) for name, value in named]
    fields = [(name, _KEY.encode() if b"UNIQ_KEY" in value else value) for name, value in fields]

    def header(some: list[tuple[bytes, bytes]]) -> bytes:
        entries = b"".join(
            struct.pack(">H", len(name)) + name + struct.pack(">i", len(value)) + value for name, value in some
        )
        return usual_header[:17] + struct.pack(">i", len(entries)) + entries

    for at, (name, known) in enumerate(fields):
        for one in [(name, value) for value in values] + [(raw, known) for raw in RAW_STRINGS]:
            yield framed(header([*fields[:at], one, *fields[at + 1 :]]), body, 1)
        for more in (b"7", b"", known):
            yield framed(header([(name, more), *fields]), body, 1)
            yield framed(header([*fields, (name, more)]), body, 1)
        yield framed(header([*fields[:at], *fields[at + 1 :]]), body, 1)
    for at in range(len(usual_header) + 1):
        yield framed(usual_header[:at], body, 1)
        for value in (0, 1, 127, 128, 255):
            yield framed(usual_header[:at] + bytes((value,)) + usual_header[at + 1 :], body, 1)


def pull(chance: random.Random) -> bytes:
    """Return a pull, mostly as clients write it, of few groups and queues, so that pulls repeat."""
    style = chance.choice(("java", "java", "go", "cpp", "binary"))
    own = chance.random() < 0.7
    pairs: list[tuple[str, Any]] = [
        ("consumerGroup", "CG"), ("topic", chance.choice(TOPICS[:2])), ("queueId", chance.randrange(2)),
        ("queueOffset", chance.choice((0, 0, 0, 0, 1, 2, 5, 20))),
        ("maxMsgNums", chance.choice((32, 32, 1, 100))), ("sysFlag", 4 if own else 0), ("commitOffset", 0),
        ("suspendTimeoutMillis", 15_000), ("subscription", chance.choice(("*", "*", "*", "TagA || 订单"))),
        ("subVersion", chance.choice((0, 0, 1))), ("expressionType", "TAG"),
    ]  # fmt: skip
    if chance.random() < 0.3:
        name, values = chance.choice((
            ("sysFlag", (0, 1, 2, 3, 5, 6, 7, 8, 12, -1)), ("queueId", (-1, 4, 7, 8, 1 << 30, (1 << 31) - 1)),
            ("queueOffset", (-1, 1000, 1 << 40, -(1 << 62))), ("maxMsgNums", (0, -1, 1 << 30, 1 << 62)),
            ("commitOffset", (1, 5, -1)), ("suspendTimeoutMillis", (0, 1, -1)), ("topic", ODD_TOPICS),
            ("subscription", ("", "a" * 2000, "||", "TagA||TagB", " * ")),
            ("expressionType", ("", "SQL92", "tag", "X")),
            ("consumerGroup", ("", "Nobody", "a/b", "ä", "x" * 300)), ("subVersion", (1 << 40, -1)),
        ))  # fmt: skip
        pairs = [(one, chance.choice(values) if one == name else value) for one, value in pairs]
    code, opaque = chance.choice((11, 11, 11, 361)), chance.randrange(1 << 20)
    flag = 0 if chance.random() < 0.97 else 2
    if style == "binary":
        return framed(binary_header(code, pairs, opaque, flag), b"", 1)
    encoded = [(name.encode(), value_of(value, style == "cpp")) for name, value in pairs]
    if chance.random() < 0.1:
        _spoil(chance, encoded)
    return framed(json_header(style, code, encoded, b"%d" % opaque, b"%d" % flag), b"")


def heartbeat(chance: random.Random) -> bytes:
    """Return a heartbeat with a consumer's subscriptions."""
    wanted = [
        {"topic": topic, "subString": "*", "subVersion": chance.choice((0, 1)), "expressionType": "TAG"}
        for topic in TOPICS[:3]
    ]
    consumers = [
        {
            "groupName": "CG",
            "subscriptionDataSet": wanted,
            "messageModel": chance.choice(("CLUSTERING", "BROADCASTING")),
        }
    ]
    body = json.dumps({"clientID": f"c@{chance.randrange(3)}", "consumerDataSet": consumers}).encode()
    return framed(json_header("java", 34, [], b"19", b"0"), body)


def other(chance: random.Random) -> bytes:
    """Return a frame to stand between sends: a pull, another request, or an answer."""
    pick = chance.randrange(9)
    if pick == 0:
        encoded = [(b"topic", quoted(chance.choice(TOPICS[:3]))), (b"queueId", b'"1"')]
        return framed(json_header("java", 30, encoded, b"17", b"0"), b"")
    if pick == 1:
        return framed(json_header("java", 31_999, [], b"18", b"0"), b"")
    if pick == 2:
        return framed(json_header("java", 0, [], b"18", b"1"), b"an answer to nothing")
    if pick == 3:
        return heartbeat(chance)
    return pull(chance) * chance.choice((1, 2, 3))  # Python handles the first of a kind


def recorded() -> list[bytes]:
    """Return every send in the recordings of official clients."""
    return [
        frame
        for version in VERSIONS
        for path in transcripts(version)
        for line, frame in frames(path)
        if line["code"] in SENDS and not line["flag"] & 1
    ]


#: Topics, groups and so on that exist before anything is sent.
PREPARED: list[Step] = [
    ("topic", "TopicA"), ("topic", "TopicB", 6, 8, 3), ("topic", "Orders", 6, 4, 4, True), ("topic", "Read", 4),
    ("topic", "Ordered", 4, 4, 4, True), ("topic", "None", 6, 0, 0), ("topic", "Deleted"), ("group", "Group"),
]  # fmt: skip


def setting(chance: random.Random) -> Setting:
    return Setting(
        synchronous=chance.random() < 0.3,
        segment_bytes=chance.choice((64 * 1024, 256 * 1024, 256 * 1024)),
        stage_bytes=chance.choice((600, 4096, 20_000, 1024 * 1024, 1024 * 1024)),
        trace_on=chance.random() < 0.8,
        auto_create=chance.random() < 0.8,
        region=chance.choice(("DefaultRegion", "DefaultRegion", 'a"b', "é", "100%d")),
        outbox_bytes=chance.choice((2000, 20_000, 4 << 20, 4 << 20)),
        outboxes_bytes=chance.choice((10_000, 100_000, 256 << 20, 256 << 20)),
    )


def conversation(chance: random.Random, length: int) -> Iterator[Step]:
    """Yield reads of several connections, of whole frames and pieces, and events between them."""
    yield from PREPARED
    odds, others = chance.choice((0.03, 0.2, 0.5)), chance.choice((0.05, 0.05, 0.3))
    events = chance.choice((0.03, 0.12))
    pieces: dict[int, bytes] = {}
    for _ in range(length):
        number = chance.choice((0, 0, 0, 1, 2, 3))
        pick = chance.random()
        if pick < events:
            yield from _event(chance, number)
        elif pick < events + 0.03:
            yield ("tick",)
        else:
            data = b"".join(one_of(chance, odds, others) for _ in range(chance.choice((1, 1, 1, 2, 4, 10))))
            data = pieces.pop(number, b"") + data
            how = chance.random()
            if how < 0.12:
                cut = chance.randrange(len(data) + 1)
                data, pieces[number] = data[:cut], data[cut:]
            elif how < 0.14:
                most = 1000
                for at in range(0, min(len(data), most), size := chance.choice((1, 3, 50, 700))):
                    yield "read", number, data[at : min(at + size, most)]
                data = data[most:]
            yield chance.choice(("read", "read", "read", "read", "write", "write", "exact")), number, data
    for number, data in pieces.items():
        yield "read", number, data


def one_of(chance: random.Random, odds: float, others: float) -> bytes:
    pick = chance.random()
    if pick < odds:
        return odd(chance)
    if pick < odds + others:
        return other(chance)
    return usual(chance, chance.choice(USUAL_KINDS))


def _event(chance: random.Random, number: int) -> Iterator[Step]:
    pick = chance.randrange(16)
    topic = chance.choice(TOPICS)
    if pick < 3:
        yield ("sync",)
    elif pick < 5:
        yield "advance", chance.choice((1, 5, 1000, 6000, 16_000))
    elif pick == 5:
        yield "jump", chance.choice((-5000, -1, 1, 60_000))
    elif pick == 6:
        yield "hold", True
        yield "read", number, usual(chance, "java")
        yield "hold", False
    elif pick == 7:
        yield "refuse", "the disk is full"
        yield "read", number, usual(chance, "java") + odd(chance)
        if chance.random() < 0.9:
            yield "refuse", None
    elif pick == 8:
        yield (
            "topic",
            topic,
            chance.choice((2, 4, 6, 6)),
            chance.choice((1, 4, 8)),
            chance.choice((1, 4, 8)),
            chance.random() < 0.2,
        )
    elif pick == 9:
        yield "write", number, usual(chance, "java")
        yield "forbid", topic
        yield "read", number, usual(chance, "java") * 3
        yield "forget", topic
    elif pick == 10:
        yield "options", chance.random() < 0.5, chance.choice((_MOST, _MOST, 1000))
    elif pick == 11:
        yield "slow", number, chance.random() < 0.7
    elif pick == 12:
        yield "take", number, chance.choice((1, 100, 100_000))
    elif pick == 13 and chance.random() < 0.3:
        yield "close", number
    elif pick == 14 and chance.random() < 0.3:
        yield chance.choice(("hang_up", "shut")), number
    elif pick == 15 and chance.random() < 0.2:
        yield ("break_log",)
