"""The header of a send, under its long names (code 10) and its letters (310, 320), as one value."""

from __future__ import annotations

import msgspec

from ...errors import RefusedRequest
from ...protocol.codes import ResponseCode
from ...protocol.command import RemotingCommand

#: attribute -> (letter of SendMessageRequestHeaderV2, name of SendMessageRequestHeader)
_NAMES = {
    "producer_group": ("a", "producerGroup"),
    "topic": ("b", "topic"),
    "default_topic": ("c", "defaultTopic"),
    "default_topic_queue_nums": ("d", "defaultTopicQueueNums"),
    "queue_id": ("e", "queueId"),
    "sys_flag": ("f", "sysFlag"),
    "born_ms": ("g", "bornTimestamp"),
    "flag": ("h", "flag"),
    "properties": ("i", "properties"),
    "reconsume_times": ("j", "reconsumeTimes"),
    "unit_mode": ("k", "unitMode"),
    "max_reconsume_times": ("l", "maxReconsumeTimes"),
    "batch": ("m", "batch"),
}


class SendFields(msgspec.Struct, rename={name: letter for name, (letter, _) in _NAMES.items()}, gc=False):
    """The header of a send under its letters. born_ms: the client's clock. queue_id < 0: any queue."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_ms: int
    flag: int
    properties: str = ""
    reconsume_times: int = 0
    unit_mode: bool = False
    max_reconsume_times: int | None = None
    batch: bool = False


#: The same under the long names.
LongFields = msgspec.defstruct(
    "LongFields",
    [(f.name, f.type) if f.required else (f.name, f.type, f.default) for f in msgspec.structs.fields(SendFields)],
    rename={name: long for name, (_, long) in _NAMES.items()},
    gc=False,
)


def fields_of(request: RemotingCommand, letters: bool) -> SendFields:
    """Return the fields of a request decoded the cold way. Refuses with 1 and the field's name."""
    ext = {name: value for name, value in request.ext_fields.items() if value != ""}
    for name in ("b", "topic"):
        ext.setdefault(name, "")  # an absent topic is a blank one (5.3.3: INVALID_PARAMETER)
    try:
        return msgspec.convert(ext, SendFields if letters else LongFields, strict=False)  # type: ignore[return-value]
    except msgspec.ValidationError as error:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the request header is illegal: {error}") from None
