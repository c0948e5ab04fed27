"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): from a header to a PullRequest.

`pulling/admission.py` admits the request, `pulling/pull_path.py` finds its messages (at once, later, or on the disk),
and `pull_answers.py` encodes the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import RefusedRequest
from ...filter.expressions import NotCompiled, make_filter
from ...hotpath import PullRuns
from ...protocol.codes import RequestCode, ResponseCode
from ...protocol.command import FLAG_ONEWAY, RemotingCommand
from ...protocol.names import PERM_READ
from ...remoting.connection import Connection
from ...remoting.dispatcher import Dispatcher, Frame, WorkerPool
from ...remoting.event_loop import EventLoop
from ...store.message_store import MessageStore
from ..groups import is_system_group
from ..pulling.admission import PARSE_FAILED, Forbidden, ForbiddenType, PullAdmission
from ..pulling.cold_pulls import COLD_PULL_BYTES, ColdPulls, overloaded
from ..pulling.compiled import PullParts
from ..pulling.fields import COMMIT_OFFSET, SUSPEND, PullFields, fields_of
from ..pulling.pull_path import PullPath
from ..pulling.request import Allowance, Metered, PullRequest
from .pull_answers import FOUND_HEADER, PullAnswers

if TYPE_CHECKING:
    from ...config import BrokerConfig
    from ..clients import ClientManager
    from ..deliveries.recorder import DeliveryRecorder
    from ..tables import Tables


class PullProcessor:
    """Owned by remoting-io. The pool `pull-cold` may wait for the disk; `pull-filter` reads records for filters, and
    compiles long expressions."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        clients: ClientManager,
        config: BrokerConfig,
        loop: EventLoop,
        pools: Mapping[str, WorkerPool],
        advertised_ip: str,
        flush_answers: Callable[[], None],
        deliveries: DeliveryRecorder,
    ) -> None:
        # Constant after construction.
        self._loop = loop
        self._offsets = tables.offsets
        self._advertised_ip = advertised_ip
        self._cold = ColdPulls(pools["pull-cold"], store.new_cold_reader(), store.log)
        self._filter_pool = filtering = pools["pull-filter"]
        self._filtering = ColdPulls(filtering, store.new_cold_reader(), store.log)
        self._admission = PullAdmission(tables.topics, tables.groups, clients, tables.filters, config)
        self._path = PullPath(store, tables.offsets, loop, self._cold, self._filtering, flush_answers)
        self._path.refusal_of = self._admission.refusal_of
        self._answers = PullAnswers(store.log, self._cold, deliveries)
        self.long_polling = self._path.long_polling
        #: Serves usual pulls before the handlers here see them; None in the pure Python twin.
        self.compiled: Any = None
        if PullRuns is not None:
            parts = PullParts(
                options=config,
                loop=loop,
                find_group=tables.groups.find,
                get_topic=tables.topics.get,
                consumer_group=clients.consumer_group,
                refusal_of=self._admission.refusal_of,
                find_queue=store.find_queue,
                settings=lambda: store.settings,
                published=lambda: store.publication.published,
                files=store.queues.files,
                deletions=store.queues.deletions,
                log=store.log,
                resets=tables.offsets.resets,
                commit=tables.offsets.commit,
                note=tables.offsets.pulled.note,
                answers=self._answers,
                deliveries=deliveries,
                head=FOUND_HEADER,
                buffer=self._answers.buffer,
                new_request=PullRequest,
                pull=self._path.pull,
            )
            self.compiled = PullRuns(parts)
            self._path.answer_woken = self.compiled.answer_woken
            self.long_polling.wake_usual = self.compiled.wake
        # Replaced whole by take_options().
        self._config = config

    @property
    def refused(self) -> RefusedRequest | None:
        """The refusal that every pull is answered with; None while pulls are served."""
        return self._admission.refused

    def refuse_all(self, refusal: RefusedRequest | None) -> None:
        """Answer every pull with this refusal from now on; None: serve pulls again. Any thread."""
        self._admission.refused = refusal

    def take_options(self, config: BrokerConfig) -> None:
        """Use these options from now on. Any thread."""
        self._config = config
        self._admission.take_options(config)
        if self.compiled is not None:
            self.compiled.take_options(config)
            self._loop.call_soon(self.compiled.forget_plans)

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.PULL_MESSAGE, self.handle_pull)
        dispatcher.add(RequestCode.LITE_PULL_MESSAGE, self.handle_pull)
        dispatcher.add_hot(RequestCode.PULL_MESSAGE, PullFields, self.hot_pull)
        dispatcher.add_hot(RequestCode.LITE_PULL_MESSAGE, PullFields, self.hot_lite_pull)
        dispatcher.add_runs(RequestCode.PULL_MESSAGE, self.compiled)
        dispatcher.add_runs(RequestCode.LITE_PULL_MESSAGE, self.compiled)

    def end(self, refusal: RefusedRequest) -> None:
        """Answer the held pulls; from now on refuse pulls, and read nothing from the disk. On remoting-io."""
        self._admission.refused = self._cold.ended = self._filtering.ended = refusal
        self.long_polling.end()

    def close(self) -> None:
        """Close the readers. Called when neither the loop nor the pools use them."""
        self._cold.close()
        self._filtering.close()

    def hot_pull(self, conn: Connection, frame: Frame[PullFields], body: memoryview) -> None:
        if not frame.flag & FLAG_ONEWAY:
            self._pull(conn, frame.opaque, frame.extFields)

    def hot_lite_pull(self, conn: Connection, frame: Frame[PullFields], body: memoryview) -> None:
        if self._config.lite_pull_message_enable:
            self.hot_pull(conn, frame, body)
        elif not frame.flag & FLAG_ONEWAY:
            conn.answer(frame.opaque, RemotingCommand.response(ResponseCode.NO_PERMISSION, self._no_lite_pulls()))

    def _no_lite_pulls(self) -> str:
        return f"the broker[{self._advertised_ip}] for lite pull consumer is forbidden"

    def handle_pull(self, request: RemotingCommand, conn: Connection) -> RemotingCommand | None:
        """Serve a pull in any other encoding."""
        if request.code == RequestCode.LITE_PULL_MESSAGE and not self._config.lite_pull_message_enable:
            raise RefusedRequest(ResponseCode.NO_PERMISSION, self._no_lite_pulls())
        fields = fields_of(request)
        if not request.is_oneway:
            self._pull(conn, request.opaque, fields, None if request.caller is None else request.caller.allowance)
        return None

    def _pull(self, conn: Connection, opaque: int, fields: PullFields, allowance: Allowance | None = None) -> None:
        """Admit the request, commit the offset that it carries, and have it served. allowance: the user's quota."""
        config, answers = self._config, self._answers
        try:
            if not config.broker_permission & PERM_READ:
                remark = f"the broker[{self._advertised_ip}] pulling message is forbidden"
                raise Forbidden(remark, ForbiddenType.BROKER)
            reply_to = answers if allowance is None else Metered(answers, allowance)
            request = self._admission.admit(reply_to, conn, opaque, fields)
        except RefusedRequest as refusal:
            answers.refuse(conn, opaque, refusal)
            return
        except NotCompiled as found:
            self._compile_first(found, conn, opaque, fields, allowance)
            return
        if (
            self.compiled is not None
            and allowance is None
            and request.wanted.lasts
            and not is_system_group(fields.group)
        ):
            self.compiled.learn(fields, request)
        offsets = self._offsets
        if offsets.resets and self._path.answer_reset(request):
            return
        # While a queue's offset is being moved, the offset in a pull is the member's old one: it is not committed.
        moving = offsets.resets and (fields.group, fields.topic, fields.queue_id) in offsets.resets
        if fields.sys_flag & COMMIT_OFFSET and not moving:
            offsets.commit(fields.group, fields.topic, fields.queue_id, fields.commit_offset, conn.born_host)
        hold_ms = 0
        if fields.sys_flag & SUSPEND:
            hold_ms = fields.suspend_ms if config.long_polling_enable else config.short_polling_time_ms
        if allowance is None:
            self._path.pull(request, hold_ms)
        else:
            self._path.pull_metered(request, hold_ms)

    def answer_held(self, topic: str, group: str) -> None:
        """Answer a group's held pulls of a topic, so that its members pull again with the group's new filter."""
        self._path.answer_held(topic, group)

    def _compile_first(
        self, what: NotCompiled, conn: Connection, opaque: int, fields: PullFields, allowance: Allowance | None
    ) -> None:
        """Have a long expression compiled in the pool, and then serve the pull."""

        def compile_it() -> None:
            refusal = None
            try:
                # The reference is kept until the pull has been served: the table of known filters is a weak one.
                made: object = make_filter(what.kind, what.expression, conn.born_host)
            except RefusedRequest as error:
                made, refusal = None, RefusedRequest(error.code, error.remark)  # the error itself would keep this frame
            conn.post(lambda: again(made, refusal), 0)

        def again(made: object, refusal: RefusedRequest | None) -> None:
            if conn.closed:
                return
            if refusal is not None:
                self._answers.refuse(conn, opaque, RefusedRequest(refusal.code, f"{PARSE_FAILED}: {refusal.remark}"))
            else:
                self._pull(conn, opaque, fields, allowance)

        if not self._filter_pool.submit(compile_it, COLD_PULL_BYTES, conn):
            self._answers.refuse(conn, opaque, overloaded())

    # --- figures, for anyone

    @property
    def judged_count(self) -> int:
        """Number of records that were checked by filters that read records."""
        return self._filtering.judged + self._path.judged_now

    @property
    def found_count(self) -> int:
        return self._answers.found_count

    @property
    def miss_count(self) -> int:
        return self._answers.miss_count

    @property
    def message_count(self) -> int:
        return self._answers.message_count

    @property
    def message_bytes(self) -> int:
        return self._answers.message_bytes
