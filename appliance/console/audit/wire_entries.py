"""Copies the acts that administrators did over the remoting protocol into the audit log, each once.

The engine keeps these acts in a file, numbered. The number of the last one taken over is a setting, which changes in
the transaction that adds the entries. So a crash on either side repeats nothing and loses nothing.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, connection

from ... import runtime
from ...engine.errors import Unavailable
from ...engine.service_thread import ServiceThread
from ..models import AuditEntry, Setting
from ..serving.said_once import SaidOnce
from . import log as audit

if TYPE_CHECKING:
    from ...engine.wire_act import WireAct

logger = logging.getLogger(__name__)

KIND = "wire"
#: Keys in `after`: the number of acts that an entry stands for, and a mark that later acts of this minute are only
#: counted. Pages show both in words.
MARKS = ("more", "counted_from_here")
#: The setting that holds the number of the last act taken over, by series.
POSITION = "wire-audit"
INTERVAL_S = 1.0

#: A new series begins when the engine's files were removed; an old series may return with a restored copy.
SERIES_KEPT = 8

_lock = threading.Lock()
# Guarded by _lock: the series of the file that this process's engine writes.
_series = ""


def take_over() -> int:
    """Copy new acts into the audit log; return how many. Raises Unavailable, EngineNotRunning, DatabaseError."""
    global _series
    admin = runtime.window()
    count = 0
    with _lock:
        while True:
            positions = _positions()
            series, acts = admin.wire_audit.after(_series, positions.get(_series, 0))
            if series != _series:
                _series = series
                continue
            if not acts:
                return count
            audit.append([_entry(series, act) for act in acts], also=partial(_move, series, acts[-1].n))
            admin.wire_audit.taken(series, acts[-1].n)
            count += len(acts)


def take_over_if_possible() -> None:
    """Copy new acts before the log is shown. If that fails, as on a full disk, the log is shown without them."""
    with contextlib.suppress(Unavailable, runtime.EngineNotRunning, DatabaseError, OSError):
        take_over()


def _positions() -> dict[str, int]:
    """Return the number of the last act taken over, by series: two processes may share the database, each with its own
    file."""
    found: Any = Setting.objects.filter(key=POSITION).values_list("value", flat=True).first()
    return found if isinstance(found, dict) else {}


def _move(series: str, n: int) -> None:
    """Store the number of the last act taken over, in the entries' transaction. The newest series are last."""
    positions = _positions()
    positions.pop(series, None)
    kept = dict([*positions.items(), (series, n)][-SERIES_KEPT:])
    Setting.objects.update_or_create(key=POSITION, defaults={"value": kept})


def _entry(series: str, act: WireAct) -> AuditEntry:
    """Return the entry of an act; one that stands for many has {"more": how many} as its `after`."""
    after = act.after
    if act.more:
        after = {"more": act.more}
    return AuditEntry(
        at_ms=act.at_ms,
        actor=f"remoting client {act.peer}"[:80] if act.host else "RocketBox",
        actor_kind=KIND,
        address=act.host[:64],
        action=act.action[:64],
        target=act.target[:512],
        before=act.before,
        after=after,
        result=act.result,
        request_id=f"{series}-{act.n}"[:32],
    )


class Follower(ServiceThread):
    """The thread `take-over-acts` of the console: checks the seals once, then takes over new acts and late entries each
    second."""

    def __init__(self) -> None:
        super().__init__("take-over-acts")
        # One for each function that is tried: the success of one says nothing about the others.
        self._failures: dict[Any, SaidOnce] = defaultdict(SaidOnce)

    def run(self) -> None:
        self._try(audit.check_and_note)
        while not self.stopped:
            self.wait(INTERVAL_S)
            self._try(audit.take_over_late)
            self._try(take_over)

    def _try(self, act: Any) -> None:
        """Call a function. A database or disk failure is logged once and tried again the next time."""
        try:
            act()
            self._failures[act].went_well()
        except (Unavailable, runtime.EngineNotRunning):
            pass  # it starts or stops
        except (DatabaseError, OSError) as error:
            connection.close()
            if self._failures[act].is_new(error):
                logger.error("audit log: administrative requests are taken over later: %s", error)
