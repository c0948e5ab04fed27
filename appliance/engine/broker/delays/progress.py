"""The progress of each delay level's delivery: `store/config/delayOffset.json`, as Apache's brokers keep it.

    {"dataVersion":{...},"offsetTable":{1:7,16:0}}      level -> offset in queue level-1 of the next message to deliver

The file is never ahead of what is durable: a message counts as delivered when its copy in the log is durable, which
with async flush is later than the moment when consumers see it. So a crash repeats deliveries and loses none. It
repeats those that were not saved, and a save comes before the oldest of these is a second old.
Source: RocketMQ 5.3.3 `ScheduleMessageService`, `DelayOffsetSerializeWrapper`; 4.9 has no `dataVersion`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...clock import SYSTEM, Clock
from ...disk import Disk
from ...fastjson import encode_pretty
from ...json_file import load_at_start, save_json_atomically
from ...named_tuple import NamedTuple
from ...protocol.data_version import DataVersion
from ...service_thread import ServiceThread

logger = logging.getLogger(__name__)

FILE_NAME = "delayOffset.json"
#: Deliveries after which a save raises the version of the file, as in 5.x (delayOffsetUpdateVersionStep).
VERSION_STEP = 200
#: Age at which a delivery is saved, if it is durable by then, and the pause between two saves. With a log that is
#: synced twice a second and a save that takes a fifth of one, no delivery stays unsaved for a second.
SAVE_AFTER_S = 0.5
LOOK_S = 0.1
#: Pause after a failed save.
RETRY_S = 1.0
#: Most steps of a level; more are taken together, which delays the save of the older ones.
MOST_STEPS = 1000
_LEVEL_MAX = 1 << 31
_OFFSET_MAX = (1 << 63) - 1


class _Step(NamedTuple):
    """Messages of a level below `offset` count as delivered once the log is durable past `physical`."""

    offset: int
    physical: int
    at: float


class DelayProgress:
    """level -> queue offset below which everything is delivered, discarded or given up.

    `reached` is called by the thread that delivers, `save` by the one that saves; any thread may read.
    """

    def __init__(self, path: Path, durable: Callable[[], int], clock: Clock = SYSTEM, disk: Disk | None = None) -> None:
        """durable: the log's durable position. Reads the file; raises StartError."""
        # Constant after construction.
        self._path = path
        self._durable = durable
        self._clock = clock
        self._disk = disk
        #: Called by `reached` when there was nothing to save before.
        self.on_unsaved: Callable[[], None] = lambda: None
        #: Called with (level, offset) after a save: nothing below that offset will be looked up again.
        self.on_saved: Callable[[int, int], None] = lambda level, offset: None
        # Guarded by _lock.
        self._lock = threading.Lock()
        self._reached: dict[int, int] = {}
        self._durable_to: dict[int, int] = {}
        self._steps: dict[int, deque[_Step]] = {}
        self._deliveries = 0
        # Owned by whoever saves.
        self._saving = threading.Lock()
        self._saved: dict[int, int] = {}
        self.data_version = DataVersion(clock.wall_ms())
        load_at_start(self._path, "offsetTable", self._take, self._disk)

    def _take(self, document: dict[str, Any]) -> None:
        for level, offset in document["offsetTable"].items():
            known = level.isascii() and level.isdecimal() and 0 < int(level) < _LEVEL_MAX
            if not known or type(offset) is not int or not -_OFFSET_MAX <= offset <= _OFFSET_MAX:
                raise ValueError(f"offsetTable holds {level!r}:{offset!r}")
            self._saved[int(level)] = offset
        self._reached = dict(self._saved)
        self._durable_to = dict(self._saved)
        if document.get("dataVersion") is not None:
            self.data_version = DataVersion.decode(document["dataVersion"])

    # --- delivering

    def of(self, level: int) -> int:
        """Return the queue offset of the first message of a level that is not delivered; 0 for a level never seen."""
        return self._reached.get(level, 0)

    def durable_of(self, level: int) -> int:
        """Return the same, counting only messages whose copy was durable at the last `save`."""
        return self._durable_to.get(level, 0)

    def levels(self) -> list[int]:
        """Return the levels that have been seen, lowest first."""
        return sorted(self._reached.copy())

    def reached(self, level: int, offset: int, physical: int) -> None:
        """Note that messages of a level below `offset` are delivered. physical: offset of their last copy in the log;
        -1 if none was stored, so that they are saved with those before them."""
        with self._lock:
            steps = self._steps.setdefault(level, deque())
            step = _Step(offset, physical, self._clock.monotonic())
            if steps and (physical < 0 or len(steps) >= MOST_STEPS):
                last = steps.pop()
                step = _Step(offset, max(physical, last.physical), last.at)
            idle = not any(self._steps.values())
            steps.append(step)
            self._deliveries += max(0, offset - self._reached.get(level, 0))
            self._reached[level] = offset
        if idle:
            self.on_unsaved()

    # --- saving

    @property
    def unsaved_s(self) -> float | None:
        """Age of the oldest delivery that is not in the file, in seconds; None if all are."""
        with self._lock:
            oldest = [steps[0].at for steps in self._steps.values() if steps]
        return self._clock.monotonic() - min(oldest) if oldest else None

    def durable_text(self) -> bytes:
        """Return the content that the file has now, or will have, for slaves. Any thread."""
        with self._lock:
            table = dict(sorted(self._durable_to.items()))
        return encode_pretty({"dataVersion": self.data_version.as_dict(), "offsetTable": table}).encode()

    def save(self) -> bool:
        """Save the deliveries that are durable, if there are new ones; durable when this returns. Raises OSError.

        False if others are not durable yet.
        """
        with self._saving:
            durable = self._durable()
            taken: dict[int, list[_Step]] = {}
            with self._lock:
                for level, steps in self._steps.items():
                    ready = taken[level] = []
                    while steps and steps[0].physical < durable:
                        ready.append(steps.popleft())
                    if ready:
                        self._durable_to[level] = ready[-1].offset
                table, deliveries = dict(sorted(self._durable_to.items())), self._deliveries
            if table == self._saved:
                return not any(self._steps.values())
            version = self.data_version
            if deliveries >= VERSION_STEP:
                version = version.following(self._clock.wall_ms())
            text = encode_pretty({"dataVersion": version.as_dict(), "offsetTable": table})
            try:
                save_json_atomically(self._path, text, self._disk)
            except BaseException:
                with self._lock:
                    for level, ready in taken.items():
                        self._steps[level].extendleft(reversed(ready))
                raise
            self.data_version = version
            with self._lock:
                self._deliveries -= deliveries if deliveries >= VERSION_STEP else 0
            moved = [(level, offset) for level, offset in table.items() if self._saved.get(level) != offset]
            self._saved = table
        for level, offset in moved:
            self.on_saved(level, offset)
        return not any(self._steps.values())


class SaveDelays(ServiceThread):
    """The thread `save-delays`: saves the progress soon after something was delivered, and sleeps while nothing is."""

    def __init__(self, progress: DelayProgress, clock: Clock = SYSTEM) -> None:
        super().__init__("save-delays", clock)
        self._progress = progress
        progress.on_unsaved = self.wakeup
        #: Reason why the last save failed; None if it did not.
        self.failure: str | None = None

    def run(self) -> None:
        while not self.stopped:
            age = self._progress.unsaved_s
            if age is None:
                self.wait(None)
            elif age < SAVE_AFTER_S:
                self.wait(SAVE_AFTER_S - age)
            else:
                self.save_now()
                self.wait(LOOK_S if self.failure is None else RETRY_S)

    def save_now(self) -> None:
        """Save; a failure is logged and stays in `failure` until a save succeeds."""
        try:
            self._progress.save()
        except (OSError, ValueError) as error:
            text = str(error)
            if text != self.failure:
                logger.error("delays: the progress cannot be saved, will try again: %s", text)
            self.failure = text
            return
        self.failure = None

    def stop(self, deadline: float = 5.0) -> bool:
        """End the thread and save. The log is durable to its end by now, if all is well."""
        ended = super().stop(deadline)
        if ended:
            self.save_now()
        return ended
