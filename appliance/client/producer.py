"""`Producer`: sends messages of one group."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from . import twin
from .acts import Acts, finish
from .core.batches import by_size, encode_member, places
from .core.names import INSTANCE_ID
from .core.parcels import FULL_BYTES, Member, Parcels
from .core.quick import Fleet, Flight, complete, plain_text, tally
from .core.request_reply import Question, of_request, reply_to
from .core.selection import NoFaults
from .core.send_plan import Envelope, Sending, attempt_deadline
from .core.steps import CallFailed
from .errors import (
    ClientError,
    Closed,
    ForkedError,
    InvalidMessage,
    InvalidOption,
    RequestTimeout,
    SendError,
    TooMuchInFlight,
)
from .hooks import SendCall, after_send, before_send
from .message import Message, MessageQueue, ReceivedMessage, SendResult, TopicStats
from .options import ProducerOptions
from .packing import (
    MAX_MESSAGE_BYTES,
    SendOptions,
    Where,
    body_of,
    check_select,
    check_topic,
    envelope_of,
    properties_of,
    taken_apart,
    text_of,
    waiting_time,
)
from .session import Session
from .shells.threads import Pending
from .wire import TAGS, UNIQUE_KEY, WAIT_STORE, RemotingCommand, RequestCode

#: Own limit of tags whose properties are kept.
_MOST_TAGS = 1000
_BATCH = RequestCode.SEND_BATCH_MESSAGE


class ProducerActs:
    """A producer but for its calls: what it does, for threads and for asyncio."""

    #: True if `begin_anew` has it send in a fork.
    survives_forks = True

    def __init__(self, session: Session, group: str, options: ProducerOptions) -> None:
        # Constant after construction.
        self.group = group
        self._options = options
        self._begin(session)

    def _begin(self, session: Session) -> None:
        # Constant, but in a fork.
        group, options, core = self.group, self._options, session.core
        self._session = session
        faults = core.faults if options.avoid_slow_brokers else NoFaults()
        self._sending = Sending(
            core.directory,
            session.clock,
            faults,
            id(self) >> 4,
            options.retries,
            core.beat,
            options.accept_unconfirmed,
        )
        #: None if messages do not wait for others.
        self._parcels: Parcels | None = None
        if options.linger > 0:
            shell = session.shell
            self._parcels = Parcels(
                group,
                self._sending,
                options.linger,
                shell.run,
                shell.post,
                self._key,
                self._have_arrived,
                shell.lock,
            )
        #: None if something else looks at each message, or at each request.
        self._fleet: Fleet | None = None
        if not session.hooks and not session.namespace and session.security.sign is None:
            self._fleet = Fleet(group, self._sending, self._have_landed, self._diverted, self._was_slow)
        #: Properties of tags that were sent before.
        self._tails: dict[str | None, str] = {None: "", "": ""}
        #: Topics of requests, whose brokers know this producer.
        self._asked: set[str] = set()
        #: `quickly`, or its compiled twin, which calls it for messages that are not plain.
        self.launch: Callable[..., Any] = self.quickly
        self._callbacks = session.worker("rocketbox-callbacks")
        #: Rings when a message is no longer in flight.
        self._room = session.bell()
        #: Rings when none is.
        self._nothing_left = session.bell(self._room.lock)
        # Guarded by the lock of both.
        self._in_flight = 0
        self._in_flight_bytes = 0
        #: By topic: [confirmed, failed].
        self._counts: dict[str, list[int]] = {}
        if twin.compiled is not None and session.has_threads and self._fleet is not None and self._parcels is None:
            over = options.compress_over if options.compress is not None else 0
            self.launch = twin.compiled.Launcher(
                self, Message, self._fleet, attempt_deadline, options.retries > 0, MAX_MESSAGE_BYTES, over
            )

    def begin_anew(self, session: Session) -> None:
        """Send by a session of this process, which is a fork: what is in flight is the parent's."""
        self._begin(session)

    @property
    def in_flight(self) -> int:
        """Number of messages that are neither confirmed nor failed, or whose callback has not returned."""
        return self._in_flight

    # --- sends in their usual form

    def quickly(self, message: object, seconds: float, may_wait: bool = False) -> Any:
        """Begin a send; return its promise, or None if it has to take the long way: nothing has happened then.
        may_wait: as of `Link.launch`. Raises as `send`."""
        session, fleet = self._session, self._fleet
        if not isinstance(message, Message):
            return None
        body = message.body
        if type(body) is str:
            body = body.encode() if body.isascii() else body_of(message)
        if type(body) is not bytes or message.delay is not None or message.at is not None:
            return None
        size = len(body)
        if not 0 < size <= MAX_MESSAGE_BYTES or self._options.compresses(size):
            return None
        session.check_usable()
        if self._parcels is not None:
            return self._into_parcel(self._parcels, message, body, seconds)
        if fleet is None:
            return None
        clock, shell = session.clock, session.shell
        now, born_ms = clock.monotonic(), clock.wall_ms()
        shard = message.shard
        with shell.lock:
            stop = fleet.stop(message.topic, shard, now) if self.group in session.core.producers else None
            if stop is None:
                return None
            key = session.keys.next(born_ms)
        link = shell.open_link(stop.address)
        if link is None:
            return None
        text = self._text_of(message, key)
        until = now + seconds
        others = stop.has_others and shard is None and self._sending.retries > 0
        deadline = attempt_deadline(now, until, others)
        promised, complete = session.promise()
        flight = Flight(fleet, stop.queue, key, text, body, shard, now, deadline, until, complete)
        entered = launched = False
        try:
            with self._room.lock:
                entered = self._enters(size)
            launched = entered and link.launch(flight, stop, born_ms, may_wait)
        finally:  # a signal's handler may raise
            if entered and not launched and not flight.is_launched:
                self._landed(size)
        return promised if launched else None

    def _text_of(self, message: Message, key: str) -> str:
        """Return the text of a message's properties. Raises InvalidMessage."""
        try:
            tail = self._tails.get(message.tags)
        except TypeError:  # a list, which is refused below
            tail = None
        is_plain = tail is not None and not message.keys and not message.properties and message.delay_level is None
        if is_plain and message.shard is None:
            return plain_text(key, tail or "")
        text = text_of(properties_of(message, key))
        if tail is None and len(self._tails) < _MOST_TAGS:
            self._tails[message.tags] = text_of({TAGS: message.tags or ""})
        return text

    def _into_parcel(self, parcels: Parcels, message: Message, body: bytes, seconds: float) -> Any:
        """As `quickly`, for a message that may wait for others. A topic's first one takes the long way."""
        session, topic, size = self._session, message.topic, len(body)
        if session.hooks or session.namespace or message.delay_level is not None or size >= FULL_BYTES:
            return None
        if topic not in self._counts:
            return None
        deadline = session.clock.monotonic() + seconds
        promised, complete = session.promise()
        entered = False
        kept: list[None] = []
        try:
            with self._room.lock:
                entered = self._enters(size)
            if not entered:
                return None
            with session.shell.lock:
                key = self._key()
                text = self._text_of(message, key)
                parcels.put(topic, message.shard, Member(key, body, text, complete, True), deadline, kept)
            parcels.begin()
        except BaseException:  # a signal's handler may raise, too
            if kept:
                parcels.begin()
            elif entered:
                self._landed(size)
            raise
        return promised

    def _have_arrived(self, topic: str, members: list[Member], failed: int) -> None:
        with self._room.lock:
            counts = self._counts.setdefault(topic, [0, 0])
            counts[0] += len(members) - failed
            counts[1] += failed
            if members:
                self._leave(len(members), sum([len(one.body) for one in members]))

    def _close_parcels(self) -> None:
        """Have messages that wait for others go now."""
        if self._parcels is not None:
            with self._session.shell.lock:
                self._parcels.close_all()
            self._parcels.begin()

    def _write_now(self) -> None:
        """Have all leave that waits for more."""
        self._close_parcels()
        self._session.shell.write_now()

    def _have_landed(self, flights: list[Flight], places: list[SendResult], counted: list[None]) -> None:
        # First, or a caller that sees its results would send more beside these.
        size, topics = tally(flights)
        with self._room.lock:
            for topic, messages in topics.items() if not counted else ():
                self._counts.setdefault(topic, [0, 0])[0] += messages
            self._leave(len(flights), size, counted)
        complete(flights, places)

    def _diverted(self, flight: Flight, outcome: CallFailed | RemotingCommand) -> None:
        """Have a send go on whose first attempt came to something else than a plain "stored"."""

        def done(result: Any, error: BaseException | None) -> None:
            self._count(flight.queue.topic, 1, error)
            self._landed(len(flight.body))
            flight.complete(result, error)

        first = (flight.queue, flight.began, outcome)
        self._session.shell.run(self._sending.send(flight.fleet.envelope(flight), flight.until, first), done)

    def _was_slow(self, broker: str, latency: float, now: float) -> None:
        with self._session.shell.lock:
            self._sending.faults.answered(broker, latency, now)

    # --- sends

    def _submitting(
        self,
        message: Message,
        where: Where,
        callback: Callable[[SendResult | ClientError], None] | None = None,
        **packing: Any,
    ) -> Acts[Any]:
        """Begin a send; return the promise of its result. packing: further arguments for `envelope_of`."""
        self._session.check_usable()
        seconds = where.timeout or self._session.timeout
        if callback is None and not packing and where.queue is None and where.select is None:
            quick = self.launch(message, seconds)
            if quick is not None:
                return quick
        deadline = self._session.clock.monotonic() + seconds
        key = self._new_key()
        call = self._begins(message, key, packing.get("half", False))
        try:
            if call is not None:
                message = call.message
            lingers = not packing and message.delay_level is None
            if self._session.namespace:
                message, where, packing = self._in_namespace(message, where, **packing)
            queue = where.queue if where.select is None else (yield from self._choosing(message, where, deadline))
            envelope = envelope_of(self.group, message, key, queue, self._options, **packing)
            return (yield from self._launching(envelope, seconds, deadline, callback, call, lingers=lingers))
        except BaseException as error:
            self._has_ended(call, None, error)
            raise

    def _begins(self, message: Message, key: str, is_half: bool = False) -> SendCall | None:
        """Call the hooks; None without any."""
        if not self._session.hooks:
            return None
        call = SendCall(self.group, message, key, is_half)
        before_send(self._session.hooks, call)
        return call

    def _in_namespace(self, message: Message, where: Where, **packing: Any) -> tuple[Message, Where, dict[str, Any]]:
        """Return the arguments of a send for brokers. Replies go to brokers' own topic, which is in no namespace."""
        if packing.get("code") == RequestCode.SEND_REPLY_MESSAGE_V2:
            return message, where, packing
        if where.queue is not None:
            where = replace(where, queue=self._session.placed(where.queue))
        packing["own"] = dict(packing.get("own") or {}) | {INSTANCE_ID: self._session.namespace}
        return replace(message, topic=self._session.named(message.topic)), where, packing

    def _has_ended(self, call: SendCall | None, result: SendResult | None, error: BaseException | None) -> None:
        if call is not None:
            after_send(self._session.hooks, call, result, error)

    def _launching(
        self,
        envelope: Envelope,
        seconds: float,
        deadline: float,
        callback: Callable[[SendResult | ClientError], None] | None = None,
        call: SendCall | None = None,
        messages: int = 1,
        lingers: bool = False,
    ) -> Acts[Any]:
        """Begin a send; return the promise of its result. lingers: True if the message may wait for others."""
        size = len(envelope.body)
        promised, complete = self._session.promise()
        landed = partial(self._landed, size)
        entered: list[None] = []
        kept: list[None] = []
        ended: list[None] = []

        def enters() -> bool:
            if self._enters(size):
                entered.append(None)
            return bool(entered)

        def done(result: Any, error: BaseException | None) -> None:
            ended.append(None)
            self._count(envelope.topic, messages, error)
            if callback is None and call is None:
                landed()
                complete(result, error)
                return
            complete(result, error)

            def tell() -> None:
                try:
                    self._has_ended(call, result, error)
                    # What a signal's handler raises is the thread's that submitted, and no outcome.
                    if callback is not None and isinstance(error, Exception | None):
                        callback(result if error is None else error)  # type: ignore[arg-type]
                finally:
                    landed()

            self._session.call_later(self._callbacks, tell)

        parcels, topic, shard = self._parcels, envelope.topic, envelope.shard
        is_alone = not lingers or envelope.sys_flag or envelope.since or envelope.queue or size >= FULL_BYTES
        try:
            with self._room.lock:
                enters()
            if not entered:
                self._close_parcels()  # or there is no room before their time
            if not entered and not (yield self._room.wait_for(enters, seconds)):
                raise TooMuchInFlight(
                    f"{self._in_flight} messages of {self._in_flight_bytes} bytes are unconfirmed, and stayed so for "
                    f"{seconds:g} s: brokers are slower than this producer. The message was not sent."
                )
            self._register()
            sending = self._sending.send(envelope, deadline)
            if parcels is not None and not (is_alone and shard is None):
                with self._session.shell.lock:
                    if is_alone:
                        parcels.follow(topic, shard, sending, done, kept)
                    else:
                        member = Member(envelope.message_id, envelope.body, envelope.properties, done, False)
                        parcels.put(topic, shard, member, deadline, kept)
                parcels.begin()
            else:
                self._session.shell.run(sending, done)
            return promised
        except BaseException:  # a signal's handler may raise, too
            if parcels is not None and kept:
                parcels.begin()
            elif entered and not ended:
                landed()
            raise

    def _count(self, topic: str, messages: int, error: BaseException | None) -> None:
        with self._room.lock:
            self._counts.setdefault(topic, [0, 0])[error is not None] += messages

    def stats(self) -> list[TopicStats]:
        with self._room.lock:
            return [TopicStats(topic, self.group, *counts) for topic, counts in sorted(self._counts.items())]

    def _enters(self, size: int) -> bool:
        """Count a message as in flight if there is room for it. Called with the bell's lock."""
        options = self._options
        is_full = self._in_flight >= options.max_in_flight
        if self._in_flight and (is_full or self._in_flight_bytes + size > options.max_in_flight_bytes):
            return False
        self._in_flight += 1
        self._in_flight_bytes += size
        return True

    def _landed(self, size: int) -> None:
        with self._room.lock:
            self._leave(1, size)

    def _leave(self, messages: int, size: int, counted: list[None] | None = None) -> None:
        """Count messages of some bytes as no longer in flight, unless `counted` notes it. Called with the bell's
        lock."""
        if not counted:  # without a call, at which a signal's handler may raise
            self._in_flight -= messages
            self._in_flight_bytes -= size
            if counted is not None:
                counted += (None,)
        self._room.ring()
        if not self._in_flight:
            self._nothing_left.ring()

    def _choosing(self, message: Message, where: Where, deadline: float) -> Acts[MessageQueue]:
        """Return the queue that the caller's function chooses, in the caller's thread or task."""
        check_select(message, where)
        check_topic(message.topic)
        self._register()
        queues = yield self._session.wait(self._session.core.directory.publish_queues(message.topic, deadline))
        assert where.select is not None, "the caller chooses"
        return where.select(queues)

    def _attempting(self, message: Message) -> Acts[Any]:
        """Begin a send of many; return the promise of its result, or its error. Raises Closed and ForkedError."""
        try:
            return (yield from self._submitting(*taken_apart(message, None, {})))
        except (Closed, ForkedError):
            raise
        except ClientError as error:
            return error

    def _batching(self, messages: Sequence[Message], timeout: float | None) -> Acts[list[SendResult]]:
        calls: list[SendCall] = []
        found: list[SendResult] = []
        failed: BaseException | None = None
        try:
            yield from self._batching_in(messages, timeout, calls, found)
        except BaseException as error:
            failed = error
            raise
        finally:
            for number, call in enumerate(calls):
                is_sent = number < len(found)
                self._has_ended(call, found[number] if is_sent else None, None if is_sent else failed)
        return found

    def _batching_in(
        self, messages: Sequence[Message], timeout: float | None, calls: list[SendCall], found: list[SendResult]
    ) -> Acts[None]:
        """Send a batch; put the calls of hooks and the places where the caller has them if this fails."""
        envelopes, ids = self._packed(messages, calls)
        seconds = timeout or self._session.timeout
        queue: MessageQueue | None = None
        for envelope, count in envelopes:
            try:
                deadline = self._session.clock.monotonic() + seconds
                placed = replace(envelope, queue=queue)
                promised = yield from self._launching(placed, seconds, deadline, messages=count)
                sent = yield self._session.result(promised)
            except ClientError as error:
                if found:
                    if isinstance(error, SendError):
                        error.maybe_stored = True
                    error.add_note(f"The first {len(found)} of the {len(messages)} messages are stored.")
                raise
            queue = sent.queue
            found += places(sent, ids[len(found) : len(found) + count])

    def _packed(
        self, messages: Sequence[Message], calls: list[SendCall]
    ) -> tuple[list[tuple[Envelope, int]], list[str]]:
        """Return (the envelopes of a batch, each with the number of its messages; the messages' ids). calls: gets the
        calls of hooks."""
        if not messages:
            raise InvalidMessage("A batch has a message at least.")
        first = messages[0]
        if any((one.topic, one.shard) != (first.topic, first.shard) for one in messages):
            raise InvalidMessage("The messages of a batch have one topic, and the same shard or none.")
        self._session.check_usable()
        ids, members = [], []
        for given in messages:
            ids.append(self._new_key())
            message, call = given, self._begins(given, ids[-1])
            if call is not None:
                calls.append(call)
                message = replace(call.message, topic=given.topic, shard=given.shard)
            body = body_of(message)
            if waiting_time(message):
                raise InvalidMessage("A message of a batch has no delay.")
            own = {INSTANCE_ID: self._session.namespace} if self._session.namespace else {}
            members.append(encode_member(body, text_of(own | properties_of(message, ids[-1]))))
        envelopes = []
        for together in by_size(members, MAX_MESSAGE_BYTES):
            key = self._new_key()
            text = text_of({UNIQUE_KEY: key, WAIT_STORE: "true"})
            body = b"".join(together)
            envelope = Envelope(
                self.group, self._session.named(first.topic), body, text, 0, key, first.shard, code=_BATCH
            )
            envelopes.append((envelope, len(together)))
        return envelopes, ids

    def _telling(self, message: Message, where: Where) -> Acts[None]:
        self._session.check_usable()
        deadline = self._session.clock.monotonic() + (where.timeout or self._session.timeout)
        key = self._new_key()
        call = self._begins(message, key)
        failed: BaseException | None = None
        try:
            if call is not None:
                message = call.message
            packing: dict[str, Any] = {}
            if self._session.namespace:
                message, where, packing = self._in_namespace(message, where)
            queue = where.queue if where.select is None else (yield from self._choosing(message, where, deadline))
            envelope = envelope_of(self.group, message, key, queue, self._options, **packing)
            self._register()
            telling = self._sending.tell(envelope, deadline)
            if self._parcels is None or envelope.shard is None:
                yield self._session.wait(telling)
                return
            promised, complete = self._session.promise()
            with self._session.shell.lock:  # behind its shard's parcel
                self._parcels.follow(envelope.topic, envelope.shard, telling, complete, [])
            self._parcels.begin()
            yield self._session.result(promised)
        except BaseException as error:
            failed = error
            raise
        finally:
            self._has_ended(call, None, failed)

    def _requesting(self, message: Message, where: Where) -> Acts[ReceivedMessage]:
        """Send a request and wait for its reply."""
        session = self._session
        session.check_usable()
        if message.delay_level is not None or message.delay is not None or message.at is not None:
            raise InvalidMessage("A request has no delay.")
        check_topic(message.topic)
        seconds = where.timeout or session.timeout
        deadline = session.clock.monotonic() + seconds
        self._register()
        bell = session.bell(session.shell.lock)
        question, correlation_id = Question(bell.ring), str(uuid.uuid4())
        with bell.lock:
            session.core.questions[correlation_id] = question
        try:
            topic = session.named(message.topic)
            if topic not in self._asked:  # a broker pushes replies to those whose heartbeats it has
                yield session.wait(session.core.announce((topic,), deadline))
                self._asked.add(topic)
            own = of_request(correlation_id, session.client_id, seconds)
            where = replace(where, timeout=max(0.001, deadline - session.clock.monotonic()))
            sent = yield session.result((yield from self._submitting(message, where, own=own)))
            left = max(0.0, deadline - session.clock.monotonic())
            if not (yield bell.wait_for(lambda: question.reply is not None, left)):
                raise RequestTimeout(
                    f"No reply came within {seconds:g} s. The request is stored as {sent.message_id} in {sent.queue}: "
                    "does anybody consume it and reply?"
                )
        finally:
            with bell.lock:
                session.core.questions.pop(correlation_id, None)
        assert question.reply is not None, "the bell rang for it"
        session.shown([question.reply])
        return question.reply

    def _replying(self, asked: ReceivedMessage, body: bytes | str, options: SendOptions) -> Acts[SendResult]:
        topic, own = reply_to(asked)
        message, where = taken_apart(topic, body, options)
        promised = yield from self._submitting(message, where, own=own, code=RequestCode.SEND_REPLY_MESSAGE_V2)
        return (yield self._session.result(promised))

    def _recalling(self, sent: SendResult, timeout: float | None) -> Acts[None]:
        self._session.check_usable()
        if sent.recall_handle is None:
            raise InvalidOption(
                f"The message {sent.message_id} has no recall_handle: it was not sent with delay or at, or by a broker "
                "older than 5.3.2."
            )
        self._register()
        deadline = self._session.clock.monotonic() + (timeout or self._session.timeout)
        yield self._session.wait(self._sending.recall(self.group, sent, sent.recall_handle, deadline))

    def _register(self) -> None:
        """Have heartbeats name this group from now on."""
        self._session.begin()
        with self._session.shell.lock:
            self._session.core.producers.add(self.group)

    def _new_key(self) -> str:
        with self._session.shell.lock:
            return self._key()

    def _key(self) -> str:
        """Return a new unique key. Called with the client's lock."""
        return self._session.keys.next(self._session.clock.wall_ms())

    # --- the end

    def _flushing(self, timeout: float | None) -> Acts[int]:
        self._session.check_process()
        self._close_parcels()
        yield self._nothing_left.wait_for(lambda: not self._in_flight, timeout)
        return self._in_flight

    def retiring(self, deadline: float) -> Acts[None]:
        """Wait for what is in flight. For the client's end, as is `stopping`."""
        yield from self._flushing(max(0.0, deadline - self._session.clock.monotonic()))

    def stopping(self, deadline: float) -> Acts[tuple[str, ...]]:
        """Wait for the callbacks of what has just failed; return the names of those that did not end."""
        ended = yield self._callbacks.join(deadline - self._session.clock.monotonic())
        return () if ended else (self._callbacks.name,)


class Producer(ProducerActs):
    """Made by `Client.producer`. Threads may share it."""

    def send(
        self, message: Message | str, body: bytes | str | None = None, **options: Unpack[SendOptions]
    ) -> SendResult:
        """Send a message, `send("orders", "paid")` or `send(Message(...))`, and return its place.

        options: `SendOptions`. With a shard or a queue there is one attempt.

        Raises InvalidMessage, NoNameServer, NoRoute, Unsupported, Closed: nothing was sent; and SendError, with
        `maybe_stored` True if the message may be stored nevertheless.
        """
        return self._submit(*taken_apart(message, body, options)).result()

    def submit(
        self,
        message: Message | str,
        body: bytes | str | None = None,
        *,
        callback: Callable[[SendResult | ClientError], None] | None = None,
        **options: Unpack[SendOptions],
    ) -> Pending[SendResult]:
        """Do the same without waiting for the answer: `result()` of the returned object waits, and raises.

        callback: called once with the result, or the error that `result()` raises, in a thread of this producer's, one
        message after the other; it must not wait for `flush`. A message is in flight until its callback has returned.

        This call waits only while the producer has as many messages in flight as allowed, and raises TooMuchInFlight if
        that lasts for the time-out. Raises InvalidMessage and Closed at once, and what `select` needs and cannot get.
        """
        return self._submit(*taken_apart(message, body, options), callback)

    def _submit(
        self,
        message: Message,
        where: Where,
        callback: Callable[[SendResult | ClientError], None] | None = None,
    ) -> Pending[SendResult]:
        return finish(self._submitting(message, where, callback))

    def send_many(self, messages: Iterable[Message], window: int = 256) -> Iterator[SendResult | ClientError]:
        """Send messages with up to `window` of them in flight; yield what became of each, in their order: its place, or
        its error.

        Messages are taken and sent while the results are iterated over; `list(producer.send_many(messages))` sends all.
        One that is not iterated to its end stops sending, and waits for what it has in flight when it is closed.
        Raises InvalidOption, Closed and ForkedError.
        """
        if window < 1:
            raise InvalidOption(f"window is 1 or more, not {window!r}.")
        return self._send_many(messages, window)

    def _send_many(self, messages: Iterable[Message], window: int) -> Iterator[SendResult | ClientError]:
        pending: deque[Pending[SendResult] | ClientError] = deque()
        session = self._session
        seconds, write_now = session.timeout, self._write_now
        launch, attempting = self.launch, self._attempting
        try:
            for message in messages:
                if session is not self._session:
                    session.check_process()
                try:
                    one: Any = launch(message, seconds, True) or finish(attempting(message))
                except (Closed, ForkedError):
                    raise
                except ClientError as error:
                    one = error
                pending.append(one)
                if len(pending) < window:
                    continue
                if not _is_done(pending[0]):
                    # For some more than the first, or each answer would have one message leave alone.
                    write_now()
                    _outcome(pending[window // 4])
                while pending and (len(pending) >= window or _is_done(pending[0])):
                    yield _outcome(pending.popleft())
            write_now()
            while pending:
                session.check_process()
                yield _outcome(pending.popleft())
        finally:
            if not session.is_parents:
                write_now()
                for one in pending:
                    _outcome(one)

    def send_batch(self, messages: Sequence[Message], timeout: float | None = None) -> list[SendResult]:
        """Send messages of one topic to one queue, in their order, in as few requests as their size allows; return
        their places. They are not compressed. timeout: seconds, for each request.

        Raises as `send`. If a request fails, the rest is not sent; a note of the error says how many messages are
        stored before it.
        """
        return finish(self._batching(messages, timeout))

    def send_oneway(
        self, message: Message | str, body: bytes | str | None = None, **options: Unpack[SendOptions]
    ) -> None:
        """Send without an answer, so it stays unknown whether the message was stored. Raises as `send` if there is no
        route or no connection."""
        finish(self._telling(*taken_apart(message, body, options)))

    def request(
        self, message: Message | str, body: bytes | str | None = None, **options: Unpack[SendOptions]
    ) -> ReceivedMessage:
        """Send a message as a request, and return the reply of whoever consumes it: see `reply`. timeout: seconds for
        both.

        Raises as `send`, and RequestTimeout if no reply came: the request was stored. InvalidMessage for one with a
        delay.
        """
        return finish(self._requesting(*taken_apart(message, body, options)))

    def reply(self, asked: ReceivedMessage, body: bytes | str, **options: Unpack[SendOptions]) -> SendResult:
        """Send the reply to a consumed request, and return its place: replies are stored, too. options: those of a
        message, and `timeout`.

        Raises as `send`; Refused with code 1 if the requester is gone. InvalidMessage if `asked` is no request.
        """
        return finish(self._replying(asked, body, options))

    def recall(self, sent: SendResult, timeout: float | None = None) -> None:
        """Take back a message that was sent with `delay` or `at` and is not delivered yet.

        Raises InvalidOption for another message; NotPermitted where brokers forbid it (recallMessageEnable);
        RequestRefused, which is also for one that was delivered; NoNameServer, NoRoute, BrokerAway, RequestTimeout: it
        is not known whether it was taken back.
        """
        finish(self._recalling(sent, timeout))

    def flush(self, timeout: float | None = None) -> int:
        """Wait until nothing is in flight; return how many messages still are after `timeout` seconds. Raises
        ForkedError: they are the parent's."""
        return finish(self._flushing(timeout))


def _is_done(pending: Pending[SendResult] | ClientError) -> bool:
    return isinstance(pending, ClientError) or pending.done()


def _outcome(pending: Pending[SendResult] | ClientError) -> SendResult | ClientError:
    if isinstance(pending, ClientError):
        return pending
    try:
        return pending.result()
    except ClientError as error:
        return error
