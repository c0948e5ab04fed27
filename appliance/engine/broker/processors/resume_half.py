"""RESUME_CHECK_HALF_MESSAGE (323): an administrator has the checks of a discarded transaction begin again.

Source: RocketMQ 5.3.3 `AdminBrokerProcessor.resumeCheckHalfMessage`, which accepts any message, and repeatedly.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import AdminError, RefusedRequest
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import RemotingCommand
from ...protocol.fields import require_str
from ...protocol.message_id import decode_offset_id
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher

if TYPE_CHECKING:
    from ..transactions.resume import ResumeDiscarded

logger = logging.getLogger(__name__)

POOL = "admin"


class ResumeHalfProcessor:
    """On the pool's thread, which waits until the half message is stored."""

    def __init__(self, discarded: Callable[[], ResumeDiscarded]) -> None:
        # Constant after construction.
        self._discarded = discarded

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.RESUME_CHECK_HALF_MESSAGE, self.handle_resume, POOL)

    def handle_resume(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """323: resume one transaction. msgId: the offset id of a message in TRANS_CHECK_MAX_TIME_TOPIC."""
        text = require_str(request, "msgId")
        try:
            _, _, physical = decode_offset_id(text)
        except ValueError:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "msgId is no offset id: 32 or 56 hex digits") from None
        try:
            resumed = self._discarded().resume(physical)
        except AdminError as error:
            logger.warning("transactions: not resumed from=%s msgId=%s: %s", conn.remote_host, text, error)
            code = error.rocketmq_code if error.rocketmq_code == ResponseCode.SERVICE_NOT_AVAILABLE else 1
            raise RefusedRequest(code, str(error)) from None
        logger.info("transactions: resumed by=%s half=%d", conn.remote_host, resumed.half_offset)
        return RemotingCommand.response(ResponseCode.SUCCESS)
