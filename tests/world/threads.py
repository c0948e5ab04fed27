"""Threads that run one at a time, in an order that a seed decides, on a clock that moves when all of them wait.

The engine's threads are real to the engine: it starts them, wakes them, joins them. Here each is a greenlet, and what
it waits with (`Lock`, `Event`, `Condition`, `SimpleQueue`, `time.sleep`, futures) hands the processor to the scheduler.
A thread that does not wait is not interrupted; the simulated disk waits in every sync, so that others run meanwhile.
"""

from __future__ import annotations

import calendar
import concurrent.futures._base as futures
import functools
import heapq
import importlib
import pkgutil
import queue
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

from greenlet import GreenletExit, getcurrent, greenlet

from appliance.engine.clock import Clock

#: Length of a thread's turn: a thread that waits for a moment too short for the clock goes on, too.
TURN_S = 0.000005


class Killed(BaseException):
    """The process ends here, as by SIGKILL. No `except Exception` takes it."""


class Task:
    """One thread of a broker. owner: the machine that it runs on; the network."""

    def __init__(
        self, scheduler: Scheduler, target: Callable[[], object], name: str, ident: int, owner: object
    ) -> None:
        self.name = name
        self.owner = owner
        self.ident = ident
        self.ended = False
        self.sleeping = False
        self.woken = False
        #: Counts its waits, so that a timer knows whether the wait is still the one that it was for.
        self.wait = 0
        self.joiners: deque[Task] = deque()
        self._scheduler = scheduler
        self._target = target
        self.greenlet = greenlet(self._main, parent=scheduler.hub)

    def _main(self) -> None:
        try:
            self._target()
        except Killed:
            self._scheduler.killed = True
        except GreenletExit:
            pass
        finally:
            self.ended = True
            for other in self.joiners:
                self._scheduler.wake(other)


class Moved(NamedTuple):
    """How far the wall clock moved against the time that passed, in ms: either way, of that forward, and of that as it
    ran too fast."""

    either_way: float = 0.0
    forward: float = 0.0
    ran_ahead: float = 0.0


#: Two looks of a broker at its clock are so far apart at most.
LOOK_S = 1.0


class WallClock:
    """The wall clock of a world: it is set, and it runs too fast or too slowly."""

    def __init__(self, scheduler: Scheduler, ms: int) -> None:
        self._scheduler = scheduler
        #: What it shows at `_since`, and how many ms it goes on in a millisecond from there.
        self._ms = float(ms)
        self._since = scheduler.now
        self._rate = self._slowest = 1.0
        self._moved = Moved()
        #: (when, by how many ms) it was set.
        self.steps: list[tuple[float, int]] = []

    @property
    def ms(self) -> float:
        return self._ms + (self._scheduler.now - self._since) * 1000.0 * self._rate

    @property
    def moved(self) -> Moved:
        """Return how far it has moved since it was made."""
        drift = (self._scheduler.now - self._since) * 1000.0 * (self._rate - 1.0)
        ahead = max(0.0, drift)
        before = self._moved
        return Moved(before.either_way + abs(drift), before.forward + ahead, before.ran_ahead + ahead)

    def step(self, ms: int) -> None:
        """Set it, as an administrator does."""
        before = self.moved
        self.steps.append((self._scheduler.now, ms))
        self._moved = before._replace(either_way=before.either_way + abs(ms), forward=before.forward + max(0, ms))
        self._ms = self.ms + ms
        self._since = self._scheduler.now

    def run_at(self, rate: float) -> None:
        """Go on at this rate; 1 is that of the monotonic clock."""
        self.step(0)
        self._rate = rate
        self._slowest = min(self._slowest, rate)

    def lost_at_a_step(self, at: float) -> float:
        """Return how many ms it may have lost about a time at which it was set, else 0. Between two looks at it a step
        and what it lost are one."""
        was_set = any(ms and abs(when - at) <= LOOK_S for when, ms in self.steps)
        return 1000.0 * LOOK_S * (1.0 - self._slowest) if was_set else 0.0


class Scheduler:
    """Runs tasks until something has happened or some time has passed. Everything happens on one thread of the system.

    now: seconds of the monotonic clock. wall: the wall clock. chance: decides who runs next.
    """

    def __init__(self, wall_ms: int) -> None:
        self.now = 1000.0
        self.wall = WallClock(self, wall_ms)
        self.chance = random.Random(0)
        self.hub = getcurrent()
        self.current: Task | None = None
        self.killed = False
        #: True if a loop has ended a turn, and so may have answered, since the world last looked.
        self.stirred = True
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Task, int]] = []
        self._tasks: dict[int, Task] = {}
        #: Owner -> until when none of its threads runs.
        self._still: dict[object, float] = {}
        self._next = 2  # 1 is the world itself

    @property
    def wall_ms(self) -> float:
        """The clock of the machine whose thread runs; a machine may have a clock of its own."""
        owner = None if self.current is None else self.current.owner
        return (getattr(owner, "wall", None) or self.wall).ms  # type: ignore[no-any-return]

    # --- tasks

    def spawn(self, target: Callable[[], object], name: str, owner: object = None) -> Task:
        """owner: that of the thread that starts it, unless told otherwise."""
        if owner is None and self.current is not None:
            owner = self.current.owner
        task = Task(self, target, name, self._next, owner)
        self._next += 1
        self._tasks[task.ident] = task
        self._ready.append(task)
        return task

    def wake(self, task: Task) -> None:
        """End its wait."""
        if task.sleeping:
            task.sleeping = False
            task.woken = True
            self._ready.append(task)

    def block(self, waiters: deque[Task] | None, seconds: float | None) -> bool:
        """Wait to be woken; False when the time is over."""
        task = self.current
        assert task is not None, "the world waits for one of its own threads"
        if waiters is not None:
            waiters.append(task)
        task.wait += 1
        task.sleeping, task.woken = True, False
        if seconds is not None:
            heapq.heappush(self._timers, (self.now + max(0.0, seconds), self._next, task, task.wait))
            self._next += 1
        self.hub.switch()
        if not task.woken and waiters is not None and task in waiters:
            waiters.remove(task)
        return task.woken

    def stand_still(self, owner: object, seconds: float) -> None:
        """None of its threads runs for so long, though its clocks go on: as a virtual machine that is moved."""
        self._still[owner] = self.now + seconds

    def stands_still(self, owner: object) -> bool:
        return self._still.get(owner, 0.0) > self.now

    def still_until(self, owner: object) -> float:
        """Return until when none of its threads runs or ran; 0.0 if it has not stood still in this life."""
        return self._still.get(owner, 0.0)

    def _set_aside(self, task: Task) -> None:
        """Let a thread go on when its machine does. How its wait ended stays as it is."""
        task.sleeping = True
        heapq.heappush(self._timers, (self._still[task.owner], self._next, task, task.wait))
        self._next += 1

    def run(self, done: Callable[[], bool], seconds: float) -> bool:
        """Let tasks run until `done()`, or for so long; False when it is not done. Stops when one was killed."""
        end = self.now + seconds
        ready, timers = self._ready, self._timers
        while not self.killed and not done():
            if ready:
                task = ready.pop(int(self.chance.random() * many) if (many := len(ready)) > 1 else 0)
                self.now += TURN_S
                if self._still and self.stands_still(task.owner):
                    self._set_aside(task)
                    continue
                if not task.ended:
                    self.current = task
                    task.greenlet.switch()
                    self.current = None
                    if task.ended:
                        self._tasks.pop(task.ident, None)
                continue
            while timers and not (timers[0][2].sleeping and timers[0][2].wait == timers[0][3]):
                heapq.heappop(timers)
            if not timers or timers[0][0] > end:
                self.now = max(self.now, end)
                return False
            self.now = max(self.now, timers[0][0])
            while timers and timers[0][0] <= self.now:
                _, _, task, wait = heapq.heappop(timers)
                if task.sleeping and task.wait == wait:
                    task.sleeping = False
                    ready.append(task)
        return not self.killed

    def end_all(self, owner: object) -> None:
        """End all tasks of a process: none of them runs again."""
        self._drop(owner)
        self._still.pop(owner, None)
        tasks = [task for task in self._tasks.values() if task.owner is owner]
        for task in tasks:
            del self._tasks[task.ident]
            task.ended = True
            for _ in range(100):  # what cleans up may wait, and is ended there as well
                if task.greenlet.dead:
                    break
                self.current = task
                task.greenlet.throw(GreenletExit)
        self.current = None
        self._drop(owner)
        self.killed = False

    def _drop(self, owner: object) -> None:
        self._ready[:] = [task for task in self._ready if task.owner is not owner]
        self._timers[:] = [timer for timer in self._timers if timer[2].owner is not owner]
        heapq.heapify(self._timers)


class Lock:
    """threading.Lock."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._held = False
        self._waiters: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if not self._held:
            self._held = True
            return True
        if not blocking or timeout == 0:
            return False
        scheduler = self._scheduler
        end = None if timeout < 0 else scheduler.now + timeout
        while self._held:
            if not scheduler.block(self._waiters, None if end is None else end - scheduler.now) and self._held:
                return False
        self._held = True
        return True

    def release(self) -> None:
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False
        if self._waiters:
            self._scheduler.wake(self._waiters.popleft())

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


class RLock:
    """threading.RLock."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lock = Lock(scheduler)
        self._owner: Task | str | None = ""
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._depth and self._owner is self._scheduler.current:
            self._depth += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner, self._depth = self._scheduler.current, 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = ""
            self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()


class Condition:
    """threading.Condition."""

    def __init__(self, scheduler: Scheduler, lock: Any = None) -> None:
        self._scheduler = scheduler
        self._lock = lock or RLock(scheduler)
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._waiters: deque[Task] = deque()

    def __enter__(self) -> bool:
        return bool(self._lock.acquire())

    def __exit__(self, *exc: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        self._lock.release()
        try:
            return self._scheduler.block(self._waiters, timeout)
        finally:
            self._lock.acquire()

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        end = None if timeout is None else self._scheduler.now + timeout
        while not (found := predicate()):
            left = None if end is None else end - self._scheduler.now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return found

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiters))):
            self._scheduler.wake(self._waiters.popleft())

    def notify_all(self) -> None:
        self.notify(len(self._waiters))


class Event:
    """threading.Event."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False
        self._waiters: deque[Task] = deque()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        while self._waiters:
            self._scheduler.wake(self._waiters.popleft())

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set and (timeout is None or timeout > 0):
            self._scheduler.block(self._waiters, timeout)
        return self._set


class Thread:
    """threading.Thread."""

    def __init__(
        self,
        scheduler: Scheduler,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str = "",
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._target = target
        self._args, self._kwargs = args, kwargs or {}
        self.name = name
        self.daemon = daemon
        self._task: Task | None = None

    @property
    def ident(self) -> int | None:
        return None if self._task is None else self._task.ident

    def start(self) -> None:
        assert self._target is not None
        target = self._target
        self._task = self._scheduler.spawn(lambda: target(*self._args, **self._kwargs), self.name)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.ended

    def join(self, timeout: float | None = None) -> None:
        task = self._task
        if task is not None and not task.ended:
            self._scheduler.block(task.joiners, timeout)


class SimpleQueue:
    """queue.SimpleQueue."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._items: deque[Any] = deque()
        self._waiters: deque[Task] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._waiters:
            self._scheduler.wake(self._waiters.popleft())

    def get(self) -> Any:
        while not self._items:
            self._scheduler.block(self._waiters, None)
        return self._items.popleft()

    def qsize(self) -> int:
        return len(self._items)

    def empty(self) -> bool:
        return not self._items


class WorldClock(Clock):
    """The scheduler's, as the broker's parts ask it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def wall_ms(self) -> int:
        return int(self._scheduler.wall_ms)

    def monotonic(self) -> float:
        return self._scheduler.now

    steady = monotonic


class _InPlaceOf:
    """A module of which some names are others."""

    def __init__(self, module: ModuleType, **names: object) -> None:
        self.__dict__.update(vars(module) | names)


def _threading_of(scheduler: Scheduler) -> Any:
    def made(kind: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: kind(scheduler, *args, **kwargs)

    return _InPlaceOf(
        threading,
        Lock=made(Lock),
        RLock=made(RLock),
        Condition=made(Condition),
        Event=made(Event),
        Thread=made(Thread),
        get_ident=lambda: 1 if scheduler.current is None else scheduler.current.ident,
        current_thread=lambda: scheduler.current,
    )


def _time_of(scheduler: Scheduler) -> Any:
    def sleep(seconds: float) -> None:
        if scheduler.current is None:
            scheduler.run(lambda: False, seconds)
        else:
            scheduler.block(None, seconds)

    def now() -> float:
        return scheduler.now

    def local(seconds: float | None = None) -> time.struct_time:
        return time.gmtime(scheduler.wall_ms / 1000 if seconds is None else seconds)

    return _InPlaceOf(
        time,
        time=lambda: scheduler.wall_ms / 1000,
        time_ns=lambda: int(scheduler.wall_ms * 1e6),
        monotonic=now,
        perf_counter=now,
        clock_gettime=lambda clock: scheduler.now,
        monotonic_ns=lambda: int(scheduler.now * 1e9),
        sleep=sleep,
        localtime=local,
        gmtime=local,
        mktime=calendar.timegm,
    )


def engine_modules() -> list[ModuleType]:
    """All of the engine; what it would import when first used, as well."""
    _import_all()
    return [module for name, module in sys.modules.items() if name.startswith("appliance.engine")]


@functools.cache
def _import_all() -> None:
    import appliance.engine

    for found in pkgutil.walk_packages(appliance.engine.__path__, "appliance.engine."):
        if not found.name.endswith("_compiled"):
            importlib.import_module(found.name)


@functools.cache
def _users_of_threads() -> list[tuple[ModuleType, str, str]]:
    """Return (module, name in it, what it names) of the engine's modules that use threads, queues or clocks."""
    modules = {id(module): module.__name__ for module in (threading, time, queue)}
    return [
        (module, name, modules[id(value)])
        for module in engine_modules()
        for name, value in vars(module).items()
        if isinstance(value, ModuleType) and id(value) in modules
    ]


@contextmanager
def replaced(names: list[tuple[object, str, object]]) -> Iterator[None]:
    """Give attributes other values for a while."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in names]
    for owner, name, value in names:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)


@contextmanager
def simulated_threads(scheduler: Scheduler) -> Iterator[None]:
    """The engine gets its threads, locks, queues and clocks from the scheduler."""
    threads, clocks = _threading_of(scheduler), _time_of(scheduler)
    queues = _InPlaceOf(queue, SimpleQueue=lambda: SimpleQueue(scheduler))
    instead: dict[str, object] = {"threading": threads, "time": clocks, "queue": queues}
    names: list[tuple[object, str, object]] = [(futures, "threading", threads), (futures, "time", clocks)]
    names += [(module, name, instead[used]) for module, name, used in _users_of_threads()]
    state = random.getstate()
    try:
        with replaced(names):
            yield
    finally:
        random.setstate(state)
