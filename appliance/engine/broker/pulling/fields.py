"""The header of a pull (11, 361), read straight from the frame or from a decoded request."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...errors import RefusedRequest
from ...protocol.codes import ResponseCode
from ...protocol.command import RemotingCommand
from ..heartbeat_bounds import MOST_EXPRESSION_CHARS

COMMIT_OFFSET = 0x1
SUSPEND = 0x2
SUBSCRIPTION = 0x4


class PullFields(
    msgspec.Struct,
    rename={
        "group": "consumerGroup",
        "queue_id": "queueId",
        "offset": "queueOffset",
        "max_count": "maxMsgNums",
        "sys_flag": "sysFlag",
        "commit_offset": "commitOffset",
        "suspend_ms": "suspendTimeoutMillis",
        "sub_version": "subVersion",
        "expression_type": "expressionType",
    },
    gc=False,
):
    """The header of a pull; sys_flag is a sum of the three bits above."""

    group: str
    topic: str
    queue_id: int
    offset: int
    max_count: int
    sys_flag: int
    commit_offset: int = -1  # no offset that a queue can have
    suspend_ms: int = 0
    sub_version: int = 0
    subscription: Annotated[str, msgspec.Meta(max_length=MOST_EXPRESSION_CHARS)] | None = None
    expression_type: str | None = None


def fields_of(request: RemotingCommand) -> PullFields:
    """Return the fields of a request decoded the cold way. Refuses with 1 and the field's name."""
    ext = {name: value for name, value in request.ext_fields.items() if value != ""}
    try:
        return msgspec.convert(ext, PullFields, strict=False)
    except msgspec.ValidationError as error:
        raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the request header is illegal: {error}") from None
