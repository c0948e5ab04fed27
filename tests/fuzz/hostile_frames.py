"""Hostile frames from a seed: every request code, from recorded requests and templates, with something wrong.

The faults are of kinds that have caused errors: numbers at the edges of 32 and 64 bits, names with path characters,
half surrogate pairs, separators in properties, documents that expand, lengths that do not match the bytes behind them.
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from appliance.engine.errors import FrameError, HeaderTextError
from appliance.engine.protocol.codes import RequestCode
from appliance.engine.protocol.command import RemotingCommand, decode_frame
from tests.support.golden import VERSIONS, frames, transcripts

#: Recorded changes of the configuration would disturb the test itself; these are sent with values of this file only.
_NOT_AS_RECORDED = {RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG}

TOPICS = [f"FuzzTopic{number}" for number in range(12)]
GROUPS = [f"FuzzGroup{number}" for number in range(12)]
_TEXTS = [
    "", " ", "*", "a || b", "TBW102", "SCHEDULE_TOPIC_XXXX", "%RETRY%FuzzGroup1", "%DLQ%FuzzGroup1", "%RETRY%",
    "null",
    "../../etc/passwd", "/dev/null", "..", ".", "a/b", "a\\b", "C:\\x", "a\x00b",
    "\x00" * 1200, "\r\nFORGED 1", "\x1b[2J",
    "\u2028", "😀" * 40, "\ufeffbom",
    "é" * 200, "x" * 127, "x" * 128, "x" * 255, "x" * 256, "y" * 32_768, "%s%n%d{}", "$ref",
    "<b>&amp;'\"", "T@G@T", "a^b", "true", "NaN", "1e9", "0x10", "１２", "+5", "-0", "-1", "TopicA;TopicB;",
    ";;;", "+a=b,-c",
    "+message.type=FIFO", "+reserve.time=99999999999999999999", "KEYS\x01a b c\x02TAGS\x01x\x02",
    "\x01\x01\x02\x02", "\x02",
    "UNIQ_KEY\x01AC11000100000000\x02WAIT\x01false\x02", "DELAY\x013\x02", "TRAN_MSG\x01true\x02",
    "TAGS\x01\x02", "\x01v",
    "INNER_NUM\x01999999999\x02", "UNIQ_KEY\x01" + "k" * 40_000, "RETRY_TOPIC\x01FuzzTopic1\x02",
    "CLUSTER\x01x\x02POP_CK\x01y",
    "7F0000010000000000000000", "7F00000100002A9F00000000000000FF", "G" * 32, "127.0.0.1:1", "[::1]:99999",
    "h:x", ":",
]  # fmt: skip
_HALVES = ["\ud800", "a\udfffb", "\ud83d\ud83d\ude00"]
_NUMBERS = [
    0, 1, -1, 2, 3, 7, 8, 127, 128, 255, 256, 1000, 32767, 32768, 65535, 65536, (1 << 31) - 1, 1 << 31, -(1 << 31),
    -(1 << 31) - 1, (1 << 32) - 1, 1 << 32, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, -(1 << 63), -(1 << 63) - 1,
    (1 << 64) - 1, 1 << 64, 10**30, 1700000000000,
]  # fmt: skip
_RAW_NUMBERS = [b"1e999", b"-0", b"1.5", b"01", b"NaN", b"-Infinity", b"9" * 5000, b"0." + b"1" * 400, b"1e-400", b"+1"]

#: Every field that any handler reads, so that a request may have all the fields that it needs.
_FIELDS: dict[str, Callable[[random.Random], Any]] = {
    **dict.fromkeys(("topic", "b", "defaultTopic", "c"), lambda r: r.choice(TOPICS)),
    **dict.fromkeys(
        ("group", "consumerGroup", "producerGroup", "a", "groupName", "srcGroup", "destGroup"),
        lambda r: r.choice(GROUPS),
    ),
    **dict.fromkeys(
        ("queueId", "e", "queueOffset", "commitOffset", "index", "reconsumeTimes", "j"), lambda r: r.randrange(4)
    ),
    **dict.fromkeys(
        ("sysFlag", "f", "flag", "h"), lambda r: r.choice((0, 0, 0, 0, 0, 0, 1, 2, 4, 8, 12, 16, 32, 128, 6, 7))
    ),
    **dict.fromkeys(("bornTimestamp", "g", "timestamp", "beginTimestamp", "endTimestamp"), lambda r: 1700000000000),
    **dict.fromkeys(("offset", "subVersion", "topicSysFlag", "brokerId"), lambda r: r.randrange(3)),
    **dict.fromkeys(("maxMsgNums", "maxNum", "count"), lambda r: r.choice((1, 32, 100))),
    **dict.fromkeys(("readQueueNums", "writeQueueNums", "defaultTopicQueueNums", "d"), lambda r: r.choice((1, 4, 8))),
    **dict.fromkeys(
        ("unitMode", "k", "order", "setZeroIfNotFound", "compressed"), lambda r: r.choice(("true", "false"))
    ),
    **dict.fromkeys(
        ("batch", "m", "cleanOffset", "isOrder", "offline"), lambda r: r.choice(("true", "false", "false"))
    ),
    **dict.fromkeys(("properties", "i"), lambda r: r.choice(("", "UNIQ_KEY\x01AC1\x02TAGS\x01a\x02", "KEYS\x01k\x02"))),
    **dict.fromkeys(("clientID", "clientId", "clientAddr"), lambda r: f"client{r.randrange(5)}"),
    **dict.fromkeys(
        ("brokerName", "clusterName", "cluster", "n"), lambda r: r.choice(("broker-a", "broker-f", "DefaultCluster"))
    ),
    "brokerAddr": lambda r: f"10.0.0.{r.randrange(5)}:10911",
    "haServerAddr": lambda r: "10.0.0.1:10912",
    "perm": lambda r: r.choice((2, 4, 6, 7)),
    "topicFilterType": lambda r: "SINGLE_TAG",
    "attributes": lambda r: r.choice(("", "+message.type=NORMAL", "-message.type")),
    "subscription": lambda r: r.choice(("*", "a", "a || b")),
    "expressionType": lambda r: r.choice(("TAG", "TAG", "SQL92")),
    "suspendTimeoutMillis": lambda r: r.choice((0, 5, 15000, 1 << 62)),
    "msgId": lambda r: f"7F00000100002A9F{r.randrange(4000):016X}",
    **dict.fromkeys(("key", "value", "namespace"), lambda r: f"kv{r.randrange(8)}"),
    "statsName": lambda r: r.choice(("TOPIC_PUT_NUMS", "GROUP_GET_NUMS")),
    "statsKey": lambda r: f"{r.choice(TOPICS)}@{r.choice(GROUPS)}",
    "boundaryType": lambda r: r.choice(("lower", "upper")),
    "topicList": lambda r: ";".join(TOPICS[:3]),
}
#: The fields of the hot requests, in Java's order: headers with exactly these are read in place.
_HOT = {
    RequestCode.SEND_MESSAGE: ("bornTimestamp", "defaultTopic", "defaultTopicQueueNums", "flag", "producerGroup",
                               "properties", "queueId", "reconsumeTimes", "sysFlag", "topic", "unitMode", "batch"),
    RequestCode.SEND_MESSAGE_V2: tuple("abcdefghijkmn"),
    RequestCode.SEND_BATCH_MESSAGE: tuple("abcdefghijkmn"),
    **dict.fromkeys(
        (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE),
        ("consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset",
         "suspendTimeoutMillis", "subscription", "subVersion", "expressionType"),
    ),
}  # fmt: skip


def _subscription(r: random.Random) -> dict[str, Any]:
    return {
        "classFilterMode": False, "codeSet": [r.choice(_NUMBERS[:9])], "expressionType": "TAG", "subString": "*",
        "subVersion": r.choice((1, 2, 1700000000000)), "tagsSet": ["a"], "topic": r.choice(TOPICS),
    }  # fmt: skip


def _heartbeat(r: random.Random) -> dict[str, Any]:
    consumer = {
        "consumeFromWhere": r.choice(("CONSUME_FROM_LAST_OFFSET", 0, 4, 9)),
        "consumeType": r.choice(("CONSUME_PASSIVELY", 1)),
        "groupName": r.choice(GROUPS), "messageModel": r.choice(("CLUSTERING", "BROADCASTING", 1)),
        "subscriptionDataSet": [_subscription(r) for _ in range(r.randrange(3))], "unitMode": r.random() < 0.1,
    }  # fmt: skip
    return {
        "clientID": f"client{r.randrange(5)}",
        "consumerDataSet": [consumer], "heartbeatFingerprint": r.choice((0, 0, 5)),
        "producerDataSet": [{"groupName": r.choice(GROUPS)}], "withoutSub": r.random() < 0.1,
    }  # fmt: skip


def _locks(r: random.Random) -> dict[str, Any]:
    queues = [
        {"brokerName": "broker-a", "queueId": r.randrange(4), "topic": r.choice(TOPICS)} for _ in range(r.randrange(4))
    ]
    return {"clientId": f"client{r.randrange(5)}", "consumerGroup": r.choice(GROUPS), "mqSet": queues}


def _topic(r: random.Random) -> dict[str, Any]:
    return {
        "attributes": {}, "order": False, "perm": 6, "readQueueNums": 4, "topicFilterType": "SINGLE_TAG",
        "topicName": r.choice(TOPICS), "topicSysFlag": 0, "writeQueueNums": 4,
    }  # fmt: skip


def _group(r: random.Random) -> dict[str, Any]:
    return {
        "brokerId": 0, "consumeEnable": True, "groupName": r.choice(GROUPS), "retryMaxTimes": 16, "retryQueueNums": 1,
        "groupRetryPolicy": {"type": "CUSTOMIZED",
        "customizedRetryPolicy": {"next": [1000]}}, "attributes": {"a": "b"},
    }  # fmt: skip


def _register(r: random.Random) -> dict[str, Any]:
    table = {topic: _topic(r) for topic in r.sample(TOPICS, 2)}
    version = {"counter": r.randrange(9), "stateVersion": 0, "timestamp": 1700000000000}
    mapping = {
        "FuzzTopic1": {"bname": "broker-a", "currIdMap": {"0": 0}, "epoch": 1, "topic": "FuzzTopic1", "totalQueues": 4}
    }
    wrapper = {"dataVersion": version, "topicConfigTable": table, "topicQueueMappingInfoMap": mapping}
    return {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}


_BODIES: dict[int, Callable[[random.Random], Any]] = {
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.CHECK_CLIENT_CONFIG: lambda r: {
        "clientId": "client1", "group": r.choice(GROUPS), "namespace": None, "subscriptionData": _subscription(r)
    },
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: lambda r: {"topicConfigList": [_topic(r)]},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _group,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: lambda r: {"groupConfigList": [_group(r)]},
    RequestCode.REGISTER_BROKER: _register,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: lambda r: {"queueDatas": [
        {"brokerName": "broker-f", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4, "topicSysFlag": 0}
    ]},
    RequestCode.QUERY_DATA_VERSION: lambda r: {"counter": 1, "stateVersion": 0, "timestamp": 1700000000000},
}  # fmt: skip
#: Options that do not affect the test, in the form of Java's properties.
_OPTIONS = [
    b"fileReservedTime=72", b"fileReservedTime=-1", b"deleteWhen=04", b"deleteWhen=99;x", b"fileReservedTime=\\ud800",
    b"brokerName=\\uD83D", b"unknown=1", b"rocketmqHome=/", b"=", b"\\", b"a\\\nb\\\n", b"\xff\xfe",
    b"enableTopicList=true",
    b"fileReservedTime=" + b"9" * 5000, b"clusterTest=maybe", b"#", b"deleteFileBatchMax=\\u0031\\u0030",
    b"a=b\r\n" * 500,
]  # fmt: skip


_LONG_HEADER_BYTES = 64 * 1024
#: Flags of requests that want no answer: bit 1 is set, bit 0 is not.
_ONE_WAY = (2, 2, 2, 6, -2, (1 << 31) - 2)


class Hostile(NamedTuple):
    """code: of the request it was made from. closes: the server may close the connection, since RocketBox's decoder
    rejects the frame, or its header is long."""

    code: int
    frame: bytes
    closes: bool


def _recorded() -> dict[int, list[RemotingCommand]]:
    """Return some recorded requests of each code, which clients sent to Apache's servers."""
    found: dict[int, dict[tuple[int, frozenset[str]], RemotingCommand]] = {}
    for version in VERSIONS:
        for path in transcripts(version):
            for line, frame in frames(path):
                code = line["code"]
                if line["flag"] & 1 or not 0 <= code < 1 << 15 or line["to"] == "client" or code in _NOT_AS_RECORDED:
                    continue
                command = decode_frame(frame)
                found.setdefault(code, {}).setdefault((command.codec, frozenset(command.ext_fields)), command)
    return {code: list(commands.values()) for code, commands in sorted(found.items())}


class Frames:
    """An endless sequence of frames; the same for the same seed and codes."""

    def __init__(self, seed: int, codes: set[int], one_way: bool = False) -> None:
        """codes: request codes in the server's tables; others are sent now and then. one_way: all that can be decoded
        are one-way requests."""
        self._one_way = one_way
        self._random = random.Random(seed)
        self._codes = sorted(codes)
        self._seeds = _recorded()
        self._other_codes = [*sorted(set(self._seeds) - codes), 0, -1, 9999, 32767, 32768, 65535, 1 << 31, 1 << 40]
        self._texts = [*_TEXTS, *_HALVES]

    def __iter__(self) -> Iterator[Hostile]:
        while True:
            yield self.next()

    def next(self) -> Hostile:
        r = self._random
        code = r.choice(self._other_codes) if r.random() < 0.03 else r.choice(self._codes)
        if r.random() < 0.2:
            code = r.choice(list(_HOT))
        ext, body = self._request(code)
        if r.random() < 0.7:
            self._spoil_fields(ext)
        if r.random() < 0.15:
            body = self._spoil_bytes(body)
        header, codec = self._header(code, ext)
        if r.random() < 0.03:
            header = self._spoil_bytes(header)
        frame = self._frame(header, codec, body)
        try:
            decoded = decode_frame(frame)
        except FrameError as error:
            if self._one_way and isinstance(error, HeaderTextError):
                return self.next()  # refused like any request, by a flag that may be what was spoiled
            return Hostile(code, frame, True)
        if self._one_way and (decoded.is_response or not decoded.is_oneway):
            return self.next()
        return Hostile(code, frame, len(header) > _LONG_HEADER_BYTES)

    # --- what is asked

    def _request(self, code: int) -> tuple[dict[str, Any], bytes]:
        r = self._random
        recorded = self._seeds.get(code)
        if recorded and r.random() < 0.3:
            command = r.choice(recorded)
            return dict(command.ext_fields), command.body
        names = _HOT.get(code) if r.random() < 0.8 else None
        return {name: _FIELDS[name](r) for name in names or _FIELDS}, self._body(code)

    def _body(self, code: int) -> bytes:
        r = self._random
        if code == RequestCode.SEND_BATCH_MESSAGE or (code in _HOT and r.random() < 0.2):
            return b"".join(self._member() for _ in range(r.choice((0, 1, 3, 20))))
        if code in _HOT:
            return r.choice((b"", b"x", b"hello", b"\x00" * 3000, r.randbytes(200)))
        if code in _NOT_AS_RECORDED:
            return b"\n".join(r.sample(_OPTIONS, r.randrange(4)))
        template = _BODIES.get(code)
        if template is None:
            return b"" if r.random() < 0.9 else r.randbytes(20)
        if r.random() < 0.1:
            return r.choice(BOMBS)
        value = template(r)
        for _ in range(r.choice((0, 0, 1, 1, 2, 5))):
            value = self._spoil_value(value)
        text = self._dialect(value)
        if code == RequestCode.REGISTER_BROKER and r.random() < 0.4:
            return self._compressed(text)
        return text

    def _member(self) -> bytes:
        """Return a message of a batch, one in four with a wrong length."""
        r = self._random
        body, properties = (
            r.choice((b"", b"m", b"m" * 100)),
            r.choice(self._texts).encode("utf-8", "surrogatepass")[:32767],
        )
        total, length, tail = 22 + len(body) + len(properties), len(body), len(properties)
        if r.random() < 0.25:
            wrong = r.choice((-1, 0, 1, 22, total - 1, total + 1, 65535, 1 << 30, (1 << 31) - 1, -(1 << 31)))
            field = r.randrange(3)
            total, length, tail = (wrong if field == n else value for n, value in enumerate((total, length, tail)))
        return struct.pack(">iiiii", total, 0, 0, 0, length) + body + struct.pack(">H", tail & 0xFFFF) + properties

    def _compressed(self, mapping: bytes) -> bytes:
        r = self._random
        blocks = [b'{"counter":%d,"timestamp":1}' % r.randrange(9)]
        topics = [
            f"{r.choice(TOPICS)} 4 4 6 SINGLE_TAG".encode(),
            r.choice(self._texts).encode("utf-8", "surrogatepass"),
        ]
        parts = [_led(blocks[0]), struct.pack(">i", r.choice((1, 1, 2, 5, -1))), *map(_led, topics), _led(b"[]")]
        parts += [struct.pack(">i", r.choice((1, 1, 2, -1))), _led(r.choice((mapping, *BOMBS)))]
        return zlib.compress(b"".join(parts))

    # --- what is wrong with it

    def _scalar(self) -> Any:
        r = self._random
        return r.choice((r.choice(self._texts), r.choice(_NUMBERS), str(r.choice(_NUMBERS)), None, True, [], {}, 0.5))

    def _spoil_fields(self, ext: dict[str, Any]) -> None:
        r = self._random
        for _ in range(r.choice((1, 1, 2, 4))):
            name = r.choice(list(ext) or ["topic"])
            kind = r.randrange(8)
            if kind == 0:
                ext.pop(name, None)
            elif kind == 1:
                ext[r.choice(self._texts)] = r.choice(self._texts)
            elif kind == 2 and r.random() < 0.05:
                ext[name] = "z" * r.choice((60_000, 66_000, 270_000))
            elif kind <= 4:
                ext[name] = r.choice(_NUMBERS) if r.random() < 0.5 else str(r.choice(_NUMBERS))
            else:
                ext[name] = r.choice(self._texts)

    def _spoil_value(self, value: Any) -> Any:
        """Return the value with one change in it."""
        r = self._random
        if isinstance(value, dict) and value and r.random() < 0.9:
            name = r.choice(list(value))
            kind = r.randrange(8)
            copy = dict(value)
            if kind == 0:
                del copy[name]
            elif kind == 1:
                copy[r.choice(self._texts)] = self._scalar()
            elif kind == 2:
                copy[name] = {
                    "$ref": r.choice(("$", "..", "@", f"$.{name}", f"$.{r.choice(list(value))}[0]", "$[9", "$.."))
                }
            elif kind == 3:
                copy[name] = self._scalar()
            else:
                copy[name] = self._spoil_value(value[name])
            return copy
        if isinstance(value, list) and value and r.random() < 0.9:
            kind = r.randrange(4)
            if kind == 0:
                return value * r.choice((2, 10, 50))
            if kind == 1:
                return [*value, self._scalar(), {"$ref": "$"}]
            at = r.randrange(len(value))
            return [*value[:at], self._spoil_value(value[at]), *value[at + 1 :]]
        return self._scalar()

    def _dialect(self, value: Any, in_key: bool = False) -> bytes:
        """Return the value as JSON, in places as fastjson writes it, and in places as no encoder does."""
        r = self._random
        if isinstance(value, dict):
            parts = []
            for name, inner in value.items():
                key = json.dumps(name).encode()
                if name.isdigit() and name.isascii():
                    key = name.encode()
                elif r.random() < 0.01:
                    key = r.choice((b'{"topic":"T","queueId":0}', b'{{"a":1}:2}', b"[1]", b"null", b"-1", b"{}"))
                parts.append(key + r.choice((b":", b" : ", b":\n\t")) + self._dialect(inner))
            return b"{" + b",".join(parts) + b"}"
        if isinstance(value, list):
            return b"[" + b",".join(self._dialect(inner) for inner in value) + b"]"
        if r.random() < 0.01:
            return r.choice(_RAW_NUMBERS)
        return json.dumps(value).encode()  # half a pair stays an escape

    def _spoil_bytes(self, data: bytes) -> bytes:
        r = self._random
        found = bytearray(data)
        for _ in range(r.choice((1, 1, 2, 8))):
            at = r.randrange(len(found) + 1)
            kind = r.randrange(5)
            if kind == 0 and at < len(found):
                found[at] ^= 1 << r.randrange(8)
            elif kind == 1:
                found[at:at] = r.choice(
                    (b"\x00", b"\xff", b"\xef\xbb\xbf", b'"', b"{", b"[", b"}", b",", b"\\ud800", r.randbytes(4))
                )
            elif kind == 2:
                del found[at : at + r.choice((1, 4, 50))]
            elif kind == 3:
                del found[at:]
            else:
                found[at:at] = found[: r.choice((1, 8, 100))]
        return bytes(found)

    # --- how it is sent

    def _header(self, code: int, ext: dict[str, Any]) -> tuple[bytes, int]:
        r = self._random
        opaque = r.choice(_NUMBERS[:18]) if r.random() < 0.95 else r.choice(_NUMBERS)
        flag = (
            r.choice((0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 3, 4, -1, (1 << 31) - 1))
            if r.random() < 0.98
            else r.choice(_NUMBERS)
        )
        if self._one_way:
            flag = r.choice(_ONE_WAY)
        version = r.choice((0, 399, 409, 479, 479, 32767, -1))
        if r.random() < 0.35:
            fixed = (code & 0x7FFF, r.choice((0, 0, 1, 9, 12, 99)), version, opaque, flag)
            return _binary_header(fixed, ext), 1
        fields = {name: value if r.random() < 0.1 else _as_text(value) for name, value in ext.items()}
        header: dict[str, Any] = {"code": code, "extFields": fields, "flag": flag, "language": "JAVA", "opaque": opaque}
        header |= {"serializeTypeCurrentRPC": "JSON", "version": version}
        if r.random() < 0.1:
            name = r.choice(list(header))
            value = self._scalar()
            if not (self._one_way and name == "flag"):
                header[name] = value
        if r.random() < 0.1:
            header["remark"] = r.choice(self._texts)
        ascii_only = r.random() < 0.5
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=ascii_only)
        return text.encode("utf-8", "surrogatepass"), 0

    def _frame(self, header: bytes, codec: int, body: bytes) -> bytes:
        r = self._random
        length, header_length = 4 + len(header) + len(body), len(header)
        if r.random() < 0.005:
            length = r.choice((0, 3, 4, -1, length - 1, 17 << 20, (1 << 31) - 1, -(1 << 31)))
        if r.random() < 0.005:
            header_length = r.choice((0, 1, header_length - 1, header_length + 1, 0xFFFFFF)) & 0xFFFFFF
        if r.random() < 0.003:
            codec = r.choice((2, 127, 255))
        return struct.pack(">iI", length, codec << 24 | header_length & 0xFFFFFF) + header + body


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _led(block: bytes) -> bytes:
    return struct.pack(">i", len(block)) + block


def _binary_header(fixed: tuple[int, int, int, int, int], ext: dict[str, Any]) -> bytes:
    code, language, version, opaque, flag = fixed
    entries = b""
    for name, value in ext.items():
        key, text = name.encode("utf-8", "surrogatepass")[:32767], _as_text(value).encode("utf-8", "surrogatepass")
        entries += struct.pack(">h", len(key)) + key + _led(text)
    numbers = (code, language, version, _wrapped(opaque), _wrapped(flag))
    return struct.pack(">hbhii", *numbers) + struct.pack(">i", 0) + _led(entries)


def _wrapped(number: int) -> int:
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def _doubling(levels: int) -> bytes:
    rows = [b'"a%d":[{"$ref":"$.a%d"},{"$ref":"$.a%d"}]' % (n, n + 1, n + 1) for n in range(levels)]
    return b'{"topic":"T","clientID":{"$ref":"$.a0"},%b,"a%d":["x"]}' % (b",".join(rows), levels)


_BARE_KEYS = b",".join(b'"a%d":{0:1}' % number for number in range(500))
_SAME_PLACE = b",".join(b'"%d"' % (number * ((1 << 61) - 1)) for number in range(2000))
#: Bodies that expand to far more than their size, or that are slow to read.
BOMBS = [
    _doubling(12), _doubling(30), _doubling(60),
    b"{" * 20 + b'"a":1' + b"}:1" * 20, b"{" * 5000, b"[" * 60_000, b'{"a":' * 3000,
    b'{"clientID":null,"x":[' + b"[]," * 2000 + b"1]}",
    b'{"consumerDataSet":[' + b"{}," * 6000 + b"{}]}", b'{"mqSet":[' + b"{}," * 6000 + b"{}]}",
    b'{"topicConfigList":[' + b"{}," * 6000 + b"{}]}", b'{"clientID":null,"x":' + b"9" * 20_000 + b"}",
    b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{%b}}}' % _BARE_KEYS,
    b'{"x":"' + b"\\ud83d\\ude00" * 2000 + b'\\ud83d"}', b"{" + b" " * 20_000 + b"0 }", b'{"a":"' + b"\\" * 20_001,
    b'{"consumerDataSet":[{"subscriptionDataSet":[{"codeSet":[%b]}]}]}' % _SAME_PLACE,
]  # fmt: skip
#: Answers of a client about its offsets (221).
STATUS_REPLIES = [
    b'{"messageQueueTable":{{"brokerName":"b","queueId":%d,"topic":"T"}:7}}' % number
    for number in (0, 1, -1, 1 << 31, 1 << 63, 10**30)
] + [
    b"", b"{}", b"[]", b"\xff", b'{"messageQueueTable":{"x":1}}', b'{"messageQueueTable":[1]}',
    b'{"messageQueueTable":{{"brokerName":"\\ud800","queueId":0,"topic":"T"}:7}}',
    b'{"messageQueueTable":{{"brokerName":"b","queueId":0,"topic":"T"}:"%b"}}' % (b"9" * 4000),
    b'{"messageQueueTable":{' + b'{"brokerName":"b","queueId":0,"topic":"T"}:7,' * 3000 + b'"x":1}}',
]  # fmt: skip
