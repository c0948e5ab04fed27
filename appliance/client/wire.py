"""The only module through which the client uses the engine; it uses nothing else of `appliance`.

In the client's own wheel this module points at copies of these files (`client_wheel/build.py`); so nothing is imported
past it (`tests/test_layers.py`).
"""

from __future__ import annotations

from ..engine.errors import CorruptFile, FrameError
from ..engine.fastjson import loads as read_json
from ..engine.fastjson import loads_plain as read_plain_json
from ..engine.host_port import join_host_port, parse_host_port, split_host_port
from ..engine.protocol.codes import VERSION, RequestCode, ResponseCode, version_name
from ..engine.protocol.command import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    MAX_FRAME_BYTES,
    RemotingCommand,
    decode_frame,
    encode_command,
)
from ..engine.protocol.compression import Undecodable, compression_of, decompress
from ..engine.protocol.message_id import (
    UniqueKeys,
    decode_host,
    decode_offset_id,
    encode_host,
    encode_offset_id,
    key_prefix,
)
from ..engine.protocol.names import (
    DLQ_PREFIX,
    NO_SEND_TOPICS,
    PERM_READ,
    PERM_WRITE,
    RETRY_PREFIX,
    TEMPLATE_TOPIC,
    is_legal_group,
)
from ..engine.protocol.names import topic_name_error as topic_name_error
from ..engine.protocol.properties import (
    CLUSTER,
    DELAY_TIME_LEVEL,
    KEYS,
    MAX_PROPERTIES_BYTES,
    ORIGIN_MESSAGE_ID,
    PRODUCER_GROUP,
    REPLY_TO_CLIENT,
    RETRY_TOPIC,
    SHARDING_KEY,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    TIMER_NAMES,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    WAIT_STORE,
    decode_properties,
    encode_properties,
    java_hash,
)
from ..engine.protocol.record import SYS_COMPRESSED, SYS_PREPARED, Record, decode_record
from ..engine.protocol.signature import ACCESS_KEY, SIGNATURE, SigningKey, signed_content

__all__ = [
    "ACCESS_KEY",
    "CLUSTER",
    "DELAY_TIME_LEVEL",
    "DLQ_PREFIX",
    "FLAG_ONEWAY",
    "FLAG_RESPONSE",
    "KEYS",
    "MAX_FRAME_BYTES",
    "MAX_PROPERTIES_BYTES",
    "NO_SEND_TOPICS",
    "ORIGIN_MESSAGE_ID",
    "PERM_READ",
    "PERM_WRITE",
    "PRODUCER_GROUP",
    "REPLY_TO_CLIENT",
    "RETRY_PREFIX",
    "RETRY_TOPIC",
    "SHARDING_KEY",
    "SIGNATURE",
    "SYS_COMPRESSED",
    "SYS_PREPARED",
    "TAGS",
    "TEMPLATE_TOPIC",
    "TIMER_DELAY_MS",
    "TIMER_DELIVER_MS",
    "TIMER_NAMES",
    "TRANSACTION_PREPARED",
    "UNIQUE_KEY",
    "VERSION",
    "WAIT_STORE",
    "CorruptFile",
    "FrameError",
    "Record",
    "RemotingCommand",
    "RequestCode",
    "ResponseCode",
    "SigningKey",
    "Undecodable",
    "UniqueKeys",
    "compression_of",
    "decode_frame",
    "decode_host",
    "decode_offset_id",
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
    "key_prefix",
    "parse_host_port",
    "read_json",
    "read_plain_json",
    "signed_content",
    "split_host_port",
    "topic_name_error",
    "version_name",
]
