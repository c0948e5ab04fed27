"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): from a header to a PullRequest, which is found and answered elsewhere.

pull_fields -> pull_admission -> PullService (long polling, cold pulls) -> pull_answers
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ...errors import RefusedRequest
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import FLAG_ONEWAY, RemotingCommand
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher, WorkerPool
from ...remoting.event_loop import EventLoop
from ...store.message_store import MessageStore
from ..cold_pulls import ColdPulls
from ..pull_service import PullService
from .pull_admission import PullAdmission
from .pull_answers import PullAnswers
from .pull_fields import COMMIT_OFFSET, SUSPEND, PullFields, decode_pull, fields_of

if TYPE_CHECKING:
    from ...config import BrokerConfig
    from ..clients import ClientManager
    from ..groups import SubscriptionGroupManager
    from ..offsets import ConsumerOffsetManager
    from ..topics import TopicConfigManager


class PullProcessor:
    """Owned by remoting-io; `cold` is the pool that may wait for the disk."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        clients: ClientManager,
        offsets: ConsumerOffsetManager,
        config: BrokerConfig,
        loop: EventLoop,
        cold: WorkerPool,
        advertised_ip: str,
        flush_answers: Callable[[], None],
    ) -> None:
        # Constant after construction.
        self._offsets = offsets
        self._advertised_ip = advertised_ip
        self._cold = ColdPulls(cold, store.new_cold_reader(), store.log)
        self._admission = PullAdmission(topics, groups, clients, config, advertised_ip)
        self._service = PullService(store, offsets, config, loop, self._cold, flush_answers)
        self.answers = PullAnswers(store.log, self._cold)
        self.long_polling = self._service.long_polling
        # Replaced whole by take_options().
        self._config = config

    def take_options(self, config: BrokerConfig) -> None:
        """Options were changed: these count from now on. Any thread."""
        self._config = config
        self._admission.take_options(config)
        self._service.take_options(config)

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.PULL_MESSAGE, self.handle_pull)
        dispatcher.add(RequestCode.LITE_PULL_MESSAGE, self.handle_pull)
        dispatcher.add_hot(RequestCode.PULL_MESSAGE, self.hot_pull)
        dispatcher.add_hot(RequestCode.LITE_PULL_MESSAGE, self.hot_lite_pull)

    def close(self) -> None:
        """When the loop and the pool have ended."""
        self._cold.close()

    def hot_pull(self, conn: Connection, view: memoryview, header: int, body: int, end: int) -> bool:
        try:
            frame = decode_pull(view[header:body])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return False
        if not frame.flag & FLAG_ONEWAY:
            self._pull(conn, frame.opaque, frame.extFields)
        return True

    def hot_lite_pull(self, conn: Connection, view: memoryview, header: int, body: int, end: int) -> bool:
        if not self._config.lite_pull_message_enable:
            return False
        return self.hot_pull(conn, view, header, body, end)

    def handle_pull(self, request: RemotingCommand, conn: Connection) -> RemotingCommand | None:
        """The same for any other encoding."""
        if request.code == RequestCode.LITE_PULL_MESSAGE and not self._config.lite_pull_message_enable:
            raise RefusedRequest(
                ResponseCode.NO_PERMISSION, f"the broker[{self._advertised_ip}] for lite pull consumer is forbidden"
            )
        fields = fields_of(request)
        if not request.is_oneway:
            self._pull(conn, request.opaque, fields)
        return None

    def _pull(self, conn: Connection, opaque: int, fields: PullFields) -> None:
        """Do what else the fields ask for, and have the request served."""
        try:
            request = self._admission.admit(self.answers, conn, opaque, fields)
        except RefusedRequest as refusal:
            self.answers.refuse(conn, opaque, refusal)
            return
        offsets, service = self._offsets, self._service
        if offsets.resets and service.answer_reset(request):
            return
        if fields.sys_flag & COMMIT_OFFSET:
            offsets.commit(fields.group, fields.topic, fields.queue_id, fields.commit_offset)
        service.pull(request, fields.suspend_ms if fields.sys_flag & SUSPEND else None)
