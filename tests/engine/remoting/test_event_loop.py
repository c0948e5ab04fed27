"""The loop's wake-ups and its errors."""

import threading

from appliance.engine.remoting.event_loop import EventLoop
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
    thread.join(5)
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
