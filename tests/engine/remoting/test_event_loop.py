"""The loop's wake-ups and its errors."""

import threading

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
