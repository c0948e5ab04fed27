"""The only module through which the client uses the engine; it uses nothing else of `appliance`.

A wheel of the client alone replaces this module; so nothing is imported past it (`tests/test_layers.py`).
"""

from __future__ import annotations

from ..engine.errors import CorruptFile, FrameError
from ..engine.fastjson import loads as read_json
from ..engine.host_port import join_host_port, parse_host_port, split_host_port
from ..engine.protocol.codes import VERSION, RequestCode, ResponseCode
from ..engine.protocol.command import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    MAX_FRAME_BYTES,
    RemotingCommand,
    decode_frame,
    encode_command,
)
from ..engine.protocol.compression import Undecodable, compression_of, decompress
from ..engine.protocol.message_id import UniqueKeys, encode_host, encode_offset_id
from ..engine.protocol.names import NO_SEND_TOPICS, PERM_READ, PERM_WRITE, TEMPLATE_TOPIC, is_legal_group
from ..engine.protocol.names import topic_name_error as topic_name_error
from ..engine.protocol.properties import (
    DELAY_TIME_LEVEL,
    KEYS,
    MAX_PROPERTIES_BYTES,
    SHARDING_KEY,
    TAGS,
    UNIQUE_KEY,
    WAIT_STORE,
    decode_properties,
    encode_properties,
    java_hash,
)
from ..engine.protocol.record import SYS_COMPRESSED, Record, decode_record

__all__ = [
    "DELAY_TIME_LEVEL",
    "FLAG_ONEWAY",
    "FLAG_RESPONSE",
    "KEYS",
    "MAX_FRAME_BYTES",
    "MAX_PROPERTIES_BYTES",
    "NO_SEND_TOPICS",
    "PERM_READ",
    "PERM_WRITE",
    "SHARDING_KEY",
    "SYS_COMPRESSED",
    "TAGS",
    "TEMPLATE_TOPIC",
    "UNIQUE_KEY",
    "VERSION",
    "WAIT_STORE",
    "CorruptFile",
    "FrameError",
    "Record",
    "RemotingCommand",
    "RequestCode",
    "ResponseCode",
    "Undecodable",
    "UniqueKeys",
    "compression_of",
    "decode_frame",
    "decode_properties",
    "decode_record",
    "decompress",
    "encode_command",
    "encode_host",
    "encode_offset_id",
    "encode_properties",
    "is_legal_group",
    "java_hash",
    "join_host_port",
    "parse_host_port",
    "read_json",
    "split_host_port",
    "topic_name_error",
]
