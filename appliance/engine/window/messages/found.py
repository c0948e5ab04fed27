"""Groups records that share a key into messages: a message and its copies by retries, delays, dead letters and
transactions are one. `copies.py` defines which record is a copy of which."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from ...protocol.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from ...protocol.properties import REAL_TOPIC, RETRY_TOPIC, TIMER_OUT_MS, UNIQUE_KEY
from ...protocol.record import Record
from . import snapshots as m
from .copies import DISCARDED_TOPIC, Copy, copy_of, origins
from .views import row_of

#: System topics in which messages wait for their own topic.
WAITING_TOPICS = frozenset((SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, DISCARDED_TOPIC))


class FoundMessage:
    """A message, of which at least one record was found. copies: its records, in the order of the log."""

    def __init__(self) -> None:
        self.copies: list[Copy] = []

    @property
    def original(self) -> Copy | None:
        """The record in the message's own topic; None if that was not found."""
        return next((copy for copy in self.copies if _is_original(copy)), None)

    @property
    def shown(self) -> Copy:
        """The record that represents the message: the original, else the newest."""
        return self.original or self.copies[-1]

    @property
    def place(self) -> int:
        """The message's position in a list by time: the physical offset of `shown`."""
        return self.shown.physical

    @property
    def topic(self) -> str:
        """The topic that the message is for."""
        return _topic_of(self.shown)

    @property
    def awaits(self) -> str:
        """The state that keeps the message from its topic, by its records: "half" or "delayed"; "" if it is there."""
        shown = self.shown
        if self.original is not None:
            return ""
        return "half" if shown.kind in ("half", "discarded") else "delayed" if shown.group is None else ""

    def hit(
        self, keys: Collection[str], is_over: bool = False, make_row: Callable[[Record], m.MessageRow] = row_of
    ) -> m.SearchHit:
        """Return the message as a hit of a search for any of `keys`. is_over: True if the broker has seen that it has
        stopped waiting for what `awaits` names. make_row: makes the row of a record."""
        shown = self.shown
        dead = self._dead_of()
        tries = max(copy.record.reconsume_times for copy in self.copies)
        state = "dead" if dead else "retried" if tries else "stored"
        due_ms = None
        if self.awaits and not is_over:
            state = self.awaits
            due_ms = _due_ms(shown) if state == "delayed" else None
        return m.SearchHit(
            matched="unique_id" if shown.properties.get(UNIQUE_KEY) in keys else "key",
            message=make_row(shown.record),
            for_topic=self.topic,
            state=state,
            failed_tries=tries,
            dead_letter_of=dead,
            due_at_ms=due_ms,
            copies=len(self.copies) - 1,
        )

    def _dead_of(self) -> tuple[str, ...]:
        """Return the groups whose newest copy is a dead letter that was not replayed since."""
        newest = {copy.group: copy for copy in self.copies if copy.group is not None}
        replayed = max(
            (copy.physical for copy in self.copies if copy.job is not None and copy.group is None), default=-1
        )
        return tuple(sorted(group for group, copy in newest.items()
                            if group is not None and copy.kind == "dead" and copy.physical > replayed))  # fmt: skip


def messages_of(
    records: Iterable[Record], levels: Sequence[int], origin: Callable[[Copy], Copy | None]
) -> list[FoundMessage]:
    """Return the messages that the records are copies of, the newest first.

    origin: called for a message whose original is not among the records; returns the original that the copy names,
    None if there is none or the caller may not see it.
    """
    found: list[FoundMessage] = []
    known: dict[tuple[str, object], FoundMessage] = {}
    for record in sorted(records, key=lambda record: record.physical_offset):
        _take(copy_of(record, levels), found, known)
    for message in list(found):
        if message.original is None and (first := origin(message.copies[-1])) is not None:
            message.copies.insert(0, first)
    return sorted(found, key=lambda message: message.place, reverse=True)


def _take(copy: Copy, found: list[FoundMessage], known: dict[tuple[str, object], FoundMessage]) -> None:
    unique_id = copy.properties.get(UNIQUE_KEY)
    message = None
    if unique_id is not None:
        born: object = (copy.record.born_time_ms, copy.record.born_host)
        names = [(unique_id, name) for name in (born, *origins(copy))]
        message = next((known[name] for name in names if name in known), None)
    if message is None:
        message = FoundMessage()
        found.append(message)
    message.copies.append(copy)
    if unique_id is not None:
        known.update((name, message) for name in names)


def _is_original(copy: Copy) -> bool:
    return copy.kind == "plain" and copy.record.topic != TIMER_TOPIC


def _topic_of(copy: Copy) -> str:
    if copy.kind in ("retry", "dead") or (copy.kind == "waiting" and copy.group is not None):
        return copy.properties.get(RETRY_TOPIC) or copy.record.topic
    return copy.record.topic if _is_original(copy) else copy.properties.get(REAL_TOPIC) or copy.record.topic


def _due_ms(copy: Copy) -> int | None:
    text = copy.properties.get(TIMER_OUT_MS, "")
    if copy.record.topic == TIMER_TOPIC:
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
    return copy.due_ms
