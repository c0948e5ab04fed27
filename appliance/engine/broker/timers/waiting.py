"""Decides from a message's properties where it waits: at a delay level, for a time of its own, or not at all.

Each message that may have to wait passes here before it is stored: those of sends, and the broker's own copies (of
committed transactions, for one). A message with a time of its own is stored in rmq_sys_wheel_timer, queue 0, with:

    TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS   what it asked for, as it came; the first of them counts
    TIMER_OUT_MS                                        one millisecond before it is due
    REAL_TOPIC, REAL_QID                                where it is to go

Apache rounds TIMER_OUT_MS down to `timerPrecisionMs`, less one precision when it is exact, and delivers when that span
is over. RocketBox follows the same rule with a precision of 1 ms. So Apache puts the message into the same slot of its
wheel and does not deliver it before its time, and TIMER_OUT_MS alone gives the exact due time (`due_of`).

A level takes precedence over a time. A message that is due already goes straight to its topic. TIMER_DEL_UNIQKEY makes
the message a mark that cancels earlier ones with this `topic+unique key` and the same TIMER_OUT_MS (`marks.py`), of its
own topic only: the sender may have no right to others.
Source: RocketMQ 5.3.3 `HookUtils.handleScheduleMessage`, `transformTimerMessage`; its refusals as recorded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ...config import StoreConfig
from ...errors import RefusedRequest
from ...named_tuple import NamedTuple
from ...protocol.codes import ResponseCode
from ...protocol.names import TIMER_TOPIC
from ...protocol.properties import (
    DELAY_TIME_LEVEL,
    OF_DELETED,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_FIRST,
    TIMER_NAMES,
    TIMER_OF,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
)
from ...store.dispatch import SCHEDULE_TOPIC
from ..delays.levels import DelayLevels, Place, make_wait, queue_of_level

#: Texts that Java's Long.parseLong takes.
_NUMBER = re.compile(r"[+-]?[0-9]{1,32}\Z", re.ASCII)
_I64 = 1 << 63
#: Room for the properties that are added until a message is delivered, kept free when the message is accepted.
ADDED_BYTES = 256
#: Properties that only a broker sets on a waiting message. A client's values are removed: by them the record of another
#: message would no longer count.
_BROKERS_OWN = (TIMER_ROLL_TIMES, TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS, TIMER_FIRST, TIMER_OF, OF_DELETED)


class TimerRules(NamedTuple):
    """`timerWheelEnable`, `timerMaxDelaySec`, `timerPrecisionMs`. The last is the precision of the times that Apache
    wrote into this store; those of RocketBox are exact."""

    enabled: bool = True
    max_delay_s: int = 259_200
    precision_ms: int = 1000


def timer_rules(config: StoreConfig) -> TimerRules:
    return TimerRules(config.timer_wheel_enable, config.timer_max_delay_sec, config.timer_precision_ms)


class Waits(NamedTuple):
    """The place where a message is stored until its time has come. level: its delay level; or 0, with due_ms, wall
    ms."""

    place: Place
    level: int = 0
    due_ms: int = 0


class WaitingPlaces:
    """Decides where messages wait. Any thread. rules: replaced whole when options change."""

    def __init__(self, levels: DelayLevels, rules: TimerRules, wall_ms: Callable[[], int]) -> None:
        self.levels = levels
        self.rules = rules
        self._wall_ms = wall_ms
        #: Called with the due time of each message with a time of its own, before it is stored.
        self.on_timer: Callable[[int], None] = lambda due_ms: None
        #: Called with the topic of each message that is about to wait.
        self.on_wait: Callable[[str], None] = lambda topic: None

    def place_of(self, properties: dict[str, str], target: Place) -> Waits | None:
        """Return where a message for `target` waits, and enter that in its properties; None if it goes there at once.

        Raises RefusedRequest: 13 for a time or a level that is no number, one too far away, and for a mark whose time
        has passed, or that is for another topic; 1 when timers are switched off.
        """
        level = self.levels.level_of(properties.get(DELAY_TIME_LEVEL))
        if level:
            for name in TIMER_NAMES:
                properties.pop(name, None)
            make_wait(properties, level, target)
            self.on_wait(target.topic)
            return Waits(Place(SCHEDULE_TOPIC, queue_of_level(level)), level)
        if TIMER_OUT_MS in properties or not has_time(properties):
            return None
        rules = self.rules
        if not rules.enabled:
            raise RefusedRequest(
                ResponseCode.SYSTEM_ERROR, "accurate timer message is not enabled, timerWheelEnable is false"
            )
        now_ms = self._wall_ms()
        due_ms, is_absolute = self._asked(properties, now_ms)
        cancels = properties.get(TIMER_DEL_UNIQKEY)
        if cancels is not None and not cancels.startswith(f"{target.topic}+"):
            raise RefusedRequest(
                ResponseCode.MESSAGE_ILLEGAL, f"the message is illegal: {TIMER_DEL_UNIQKEY} is not of its own topic"
            )
        if due_ms <= now_ms:
            if cancels is not None:
                raise self._illegal()
            return None
        if due_ms - now_ms > rules.max_delay_s * 1000:
            raise self._illegal()
        if not is_absolute and rules.precision_ms > 1 and (due_ms - 1) % rules.precision_ms == 0:
            due_ms += 1  # else it would look like a time that Apache rounded
        for name in _BROKERS_OWN:
            properties.pop(name, None)
        properties[TIMER_OUT_MS] = str(due_ms - 1)
        properties[REAL_TOPIC] = target.topic
        properties[REAL_QUEUE_ID] = str(target.queue_id)
        self.on_timer(due_ms)
        self.on_wait(target.topic)
        return Waits(Place(TIMER_TOPIC, 0), 0, due_ms)

    def _asked(self, properties: Mapping[str, str], now_ms: int) -> tuple[int, bool]:
        """Return (the time that a message asks for, True if it names a time and not a delay)."""
        for name, unit_ms in ((TIMER_DELAY_SEC, 1000), (TIMER_DELAY_MS, 1)):
            if name in properties:
                return now_ms + self._number(properties[name]) * unit_ms, False
        return self._number(properties[TIMER_DELIVER_MS]), True

    def _number(self, text: str) -> int:
        if _NUMBER.match(text) is None or not -_I64 <= (value := int(text)) < _I64:
            raise self._illegal()
        return value

    def _illegal(self) -> RefusedRequest:
        return RefusedRequest(
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{self.rules.max_delay_s * 1000}ms; or if set del msg, "
            "the delay time should be bigger than the current time",
        )


def has_time(properties: Mapping[str, str]) -> bool:
    """True if a message asks for a time of its own."""
    return TIMER_DELAY_SEC in properties or TIMER_DELAY_MS in properties or TIMER_DELIVER_MS in properties


class First(NamedTuple):
    """The first record of a message, which may have been rolled since. roll_times: of that record; above 0 if it is a
    copy that does not name its original."""

    roll_times: int
    queue_offset: int
    stored_ms: int


class Timed(NamedTuple):
    """Timer fields of a record of the timer topic. out_ms: its TIMER_OUT_MS, by which marks find their messages.

    due_ms: when it goes to its topic, wall ms. cancels: `topic+unique key` of the message that it cancels, or None;
    takes_out: queue offset of that message's first record, -1 for all messages of the key. roll_times: how often it was
    rolled. first: its message's first record; None if it is that itself, or does not name it. enqueued_ms: its
    TIMER_ENQUEUE_MS, or 0. ahead_ms: of a rolled one, by how much the clock that stamped it was ahead of the one that
    stamped the first record.
    """

    out_ms: int
    due_ms: int
    cancels: str | None
    roll_times: int
    takes_out: int = -1
    first: First | None = None
    enqueued_ms: int = 0
    ahead_ms: int = 0

    def first_of(self, queue_offset: int, stored_ms: int = 0) -> First:
        """Return the first record of the message whose record with these fields lies at `queue_offset`."""
        return self.first or First(self.roll_times, queue_offset, stored_ms)


def due_of(out_ms: int, deliver_ms: int, precision_ms: int) -> int:
    """Return when a message is due by its TIMER_OUT_MS, wall ms. deliver_ms: its TIMER_DELIVER_MS, or 0.

    A whole multiple of the precision was most likely rounded by Apache. Then the message is due at the exact time, if
    it names one that rounds to `out_ms`, else at the end of that span, when Apache would deliver it.
    """
    if precision_ms > 1 and out_ms % precision_ms == 0:
        return deliver_ms if out_ms < deliver_ms <= out_ms + precision_ms else out_ms + precision_ms
    return out_ms + 1
