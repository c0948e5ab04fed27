"""Acts of administrators, and the SIGKILL that comes in the middle of one of them."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress

from tests.support.engine import read_queue
from tests.support.engine_process import EngineProcess, Refused
from tests.support.waiting import wait_for


class Acts:
    """Acts on the messages 0 to `count`, `part` at a time, by each of `actions` in turns.

    handled: action -> messages whose act was answered. action, in_doubt: of what was under way when the process died;
    an act that deals with one message after the other calls `answered` for each.
    """

    def __init__(self, engine: EngineProcess, count: int, part: int, actions: Sequence[str]) -> None:
        self.engine, self.count, self.part, self.actions = engine, count, part, actions
        self.handled: dict[str, set[int]] = defaultdict(set)
        self.action = ""
        self.in_doubt: set[int] = set()

    def until_killed(self, act: Callable[[str, list[int]], None], delay_s: float = 0.005) -> None:
        """Half of the parts in peace; the process dies `delay_s` after the next one has begun."""
        with suppress(Refused, OSError, EOFError):
            for begin in range(0, self.count, self.part):
                self.action = self.actions[begin // self.part % len(self.actions)]
                self.in_doubt = set(range(begin, begin + self.part))
                if begin == self.count // 2:
                    threading.Timer(delay_s, self.engine.kill_it).start()
                act(self.action, sorted(self.in_doubt))
                self.answered(*self.in_doubt)
        self.engine.kill()
        assert self.in_doubt, "it died too late to tell anything"
        assert self.handled.keys() == set(self.actions)

    def answered(self, *numbers: int) -> None:
        self.handled[self.action].update(numbers)
        self.in_doubt -= set(numbers)


def numbers_in(engine: EngineProcess, topic: str) -> Counter[int]:
    """Return how often each message came. A message's body is its number."""
    peer = engine.peer()
    try:
        return Counter(int(record.body) for record in read_queue(peer, topic))
    finally:
        peer.close()


def wait_for_one_of(engine: EngineProcess, topic: str, due: set[int]) -> None:
    wait_for(lambda: due & numbers_in(engine, topic).keys(), "what is due begins to come")


def wait_for_all_of(engine: EngineProcess, topic: str, due: set[int]) -> None:
    wait_for(lambda: due <= numbers_in(engine, topic).keys(), "what is due comes")
