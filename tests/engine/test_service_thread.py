"""A thread ends when it is stopped, however often it still waits."""

from __future__ import annotations

import threading

from appliance.engine.service_thread import ServiceThread


class WaitsTwice(ServiceThread):
    """Waits twice without looking at `stopped` in between, as in a slice's pause and then a round's."""

    def __init__(self) -> None:
        super().__init__("waits-twice")
        self.waits = threading.Event()

    def run(self) -> None:
        self.waits.set()
        self.wait(None)
        self.wait(30.0)


def test_a_stop_ends_every_wait_and_not_only_the_next() -> None:
    thread = WaitsTwice()
    thread.start()
    assert thread.waits.wait(60)
    assert thread.stop(5.0)


def test_a_wakeup_ends_one_wait() -> None:
    thread = WaitsTwice()
    assert not thread.wait(0.0)
    thread.wakeup()
    thread.wakeup()
    assert thread.wait(0.0)
    assert not thread.wait(0.0), "two wake-ups are one"
