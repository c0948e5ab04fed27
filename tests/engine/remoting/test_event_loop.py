"""The loop's wake-ups and its errors."""

import itertools
import threading
from types import SimpleNamespace

import pytest

from appliance.engine.remoting import event_loop
from appliance.engine.remoting.event_loop import EventLoop
from tests.support.clock import FakeClock
from tests.support.waiting import wait_for


def test_a_thread_may_hand_in_thousands_of_calls_while_the_loop_is_busy(rig):
    busy, called, failed = threading.Event(), [], []
    rig.loop.call_soon(busy.wait)

    def hand_in():
        try:
            for n in range(5000):
                rig.loop.call_soon(lambda n=n: called.append(n))
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=hand_in)
    thread.start()
    thread.join(60)
    busy.set()
    wait_for(lambda: len(called) == 5000, "calls were lost")
    assert called == list(range(5000))
    assert not failed


def test_a_wake_up_pipe_that_is_full_is_a_wake_up_all_the_same():
    loop = EventLoop()
    try:
        import os

        os.write(loop._wake_write_fd, (2**64 - 2).to_bytes(8, "little"))
        loop.wake()
    finally:
        loop.close()


def test_timers_follow_the_clock_that_the_loop_was_given():
    clock = FakeClock()
    loop = EventLoop(clock)
    fired = threading.Event()
    loop.call_later(3600.0, fired.set)
    loop.start()
    ran = threading.Event()
    loop.call_soon(ran.set)
    assert ran.wait(60)
    assert not fired.is_set()
    clock.advance(3_600_000)
    loop.wake()
    assert fired.wait(60)
    assert loop.wall_ms == clock.wall_ms()
    loop.stop()
    loop.close()


class ScriptedEpoll:
    """epoll whose events come when it is asked for the n-th time after it found some; each time takes 10 us."""

    def __init__(self, comes_after):
        self.comes_after, self.asked, self.waited, self.clock = comes_after, 0, 0, 0.0

    def poll(self, timeout, most):
        self.clock += 10e-6
        self.asked += 1
        if timeout == 0 and self.asked <= self.comes_after:
            return []
        self.waited += timeout != 0
        self.asked = 0
        return [(5, 1)]


def usage_with(switches):
    """`resource` by whose word that many times another thread took the processor."""
    return SimpleNamespace(getrusage=lambda who: SimpleNamespace(ru_nivcsw=next(switches)), RUSAGE_THREAD=1)


@pytest.fixture
def lingering(monkeypatch):
    """Make a poller of the loop's on some processors, with an epoll whose events come that late."""
    made = []

    def make(comes_after, processors=2):
        poller = event_loop._Poller(processors, lambda: epoll.clock)
        made.append(poller.close)
        poller._epoll = epoll = ScriptedEpoll(comes_after)
        return poller, epoll

    monkeypatch.setattr(event_loop, "resource", usage_with(itertools.repeat(0)))
    yield make
    for close in made:
        close()


def polls(poller, epoll, number):
    """Poll so often; return how often it slept."""
    before = epoll.waited
    for _ in range(number):
        assert poller.poll(1.0) == [(5, 1)]
    return epoll.waited - before


def test_the_thread_asks_again_before_it_sleeps_while_that_pays(lingering):
    poller, epoll = lingering(comes_after=3)
    assert polls(poller, epoll, 1000) < 300
    epoll.comes_after = 1000  # the client has become slow
    assert polls(poller, epoll, 1000) > 980


@pytest.mark.parametrize(("comes_after", "processors"), [(3, 1), (1000, 2)])
def test_it_sleeps_at_once_on_one_processor_and_where_asking_again_does_not_pay(lingering, comes_after, processors):
    poller, epoll = lingering(comes_after, processors)
    begin = epoll.clock
    assert polls(poller, epoll, 1000) == 1000
    assert epoll.clock - begin < 1000 * 10e-6 * 1.1


def test_it_sleeps_at_once_while_others_want_the_processor(lingering, monkeypatch):
    monkeypatch.setattr(event_loop, "resource", usage_with(itertools.count(100, 100)))
    poller, epoll = lingering(comes_after=3)
    assert polls(poller, epoll, 5000) > 4000
