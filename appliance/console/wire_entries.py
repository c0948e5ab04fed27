"""Takes what administrators did over the wire into the audit log, each act once.

The engine keeps these acts in a file, numbered; here the number of the last one taken over is a setting that changes in
the same transaction that adds the entries. So a crash on either side repeats nothing and loses nothing.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, connection

from .. import runtime
from ..engine.errors import Unavailable
from ..engine.service_thread import ServiceThread
from . import audit
from .models import AuditEntry, Setting
from .said_once import SaidOnce

if TYPE_CHECKING:
    from ..engine.wire_act import WireAct

logger = logging.getLogger(__name__)

KIND = "wire"
#: In `after`: how many acts an entry stands for; that later ones of this minute are counted. Pages say both in words.
MARKS = ("more", "counted_from_here")
#: The setting that holds the number of the last act taken over, by series.
POSITION = "wire-audit"
INTERVAL_S = 1.0

#: A series ends when somebody removes the engine's files; an old one may come back from a copy.
SERIES_KEPT = 8

_lock = threading.Lock()
# Guarded by _lock: of the file that the engine of this process writes.
_series = ""


def take_over() -> int:
    """Bring the audit log up to date; how many entries came. Raises Unavailable, EngineNotRunning, DatabaseError."""
    global _series
    admin = runtime.window()
    count = 0
    with _lock:
        while True:
            positions = _positions()
            series, acts = admin.wire_acts(_series, positions.get(_series, 0))
            if series != _series:
                _series = series
                continue
            if not acts:
                return count
            audit.append([_entry(series, act) for act in acts], also=partial(_move, series, acts[-1].n))
            admin.wire_acts_taken(series, acts[-1].n)
            count += len(acts)


def take_over_if_possible() -> None:
    """Before the log is shown: what cannot be taken over now is no reason not to show what there is (a full disk)."""
    with contextlib.suppress(Unavailable, runtime.EngineNotRunning, DatabaseError, OSError):
        take_over()


def _positions() -> dict[str, int]:
    """Series -> number of the last act taken over: two processes may share the database, each with its own file."""
    found: Any = Setting.objects.filter(key=POSITION).values_list("value", flat=True).first()
    return found if isinstance(found, dict) else {}


def _move(series: str, n: int) -> None:
    """In the entries' transaction. The newest series come last."""
    positions = _positions()
    positions.pop(series, None)
    kept = dict([*positions.items(), (series, n)][-SERIES_KEPT:])
    Setting.objects.update_or_create(key=POSITION, defaults={"value": kept})


def _entry(series: str, act: WireAct) -> AuditEntry:
    """One entry; an act that stands for many has {"more": how many} as its `after`."""
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
    """The thread `take-over-acts` of the console: checks the seals once, then takes over what there is each second."""

    def __init__(self) -> None:
        super().__init__("take-over-acts")
        # Each act has its own: one that succeeds says nothing of the others.
        self._failures: dict[Any, SaidOnce] = defaultdict(SaidOnce)

    def run(self) -> None:
        self._try(audit.check_and_note)
        while not self.stopped:
            self.wait(INTERVAL_S)
            self._try(audit.take_over_late)
            self._try(take_over)

    def _try(self, act: Any) -> None:
        """Never ends: what fails now is tried again the next time, and logged once."""
        try:
            act()
            self._failures[act].went_well()
        except (Unavailable, runtime.EngineNotRunning):
            pass  # it starts or stops
        except (DatabaseError, OSError) as error:
            connection.close()
            if self._failures[act].is_new(error):
                logger.error("audit log: administrative requests are taken over later: %s", error)
