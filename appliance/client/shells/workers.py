"""Threads that handle messages: as many as have something to do, up to a number, and one that waits."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any


class Workers:
    def __init__(self, name: str, most: int, work: Callable[[Any], None]) -> None:
        """name: of the threads. work: called with each task; it raises nothing."""
        self._name = name
        self._most = most
        self._work = work
        self._tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # Guarded by _lock.
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._working: set[threading.Thread] = set()
        self._is_ending = False

    def start(self) -> None:
        with self._lock:
            self._add()

    def put(self, task: Any) -> None:
        """Have a thread work on a task; may be called with any lock."""
        self._tasks.put(task)

    def _add(self) -> None:
        thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _run(self) -> None:
        own = threading.current_thread()
        with self._lock:
            is_late = self._is_ending
            if own not in self._threads:  # a signal's handler raised as it was started
                self._threads.append(own)
        while not is_late:
            task = self._tasks.get()
            with self._lock:
                if self._is_ending:
                    return
                self._working.add(own)
                # The next task may find all of them at work.
                if len(self._working) == len(self._threads) < self._most:
                    with contextlib.suppress(RuntimeError):  # no further thread starts: those there are do the work
                        self._add()
            self._work(task)
            with self._lock:
                self._working.discard(own)

    def is_own(self) -> bool:
        """True if the calling thread is one of these."""
        with self._lock:
            return threading.current_thread() in self._threads

    def end(self, deadline: float) -> tuple[str, ...]:
        """End the threads; tasks that none has begun are dropped. Returns the names of those that work on at the
        deadline (monotonic)."""
        with self._lock:
            self._is_ending = True
            threads = list(self._threads)
        for _ in threads:
            self._tasks.put(None)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            return tuple(thread.name for thread in threads if thread in self._working)
