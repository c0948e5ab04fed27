"""Calls that run on the loop while their caller waits."""

import threading
from collections.abc import Callable

import pytest

from appliance.engine.loop_calls import run_on_loop


def on_a_thread(job: Callable[[], None]) -> None:
    threading.Thread(target=job).start()


def test_it_is_waited_for_even_when_the_time_is_over():
    begun, over = threading.Event(), threading.Event()
    ran = []

    def job() -> None:
        begun.set()
        over.wait(60)
        ran.append(True)

    def gives_up() -> bool:
        assert begun.wait(60)
        over.set()
        return True

    assert run_on_loop(on_a_thread, job, gives_up)
    assert ran == [True]


def test_what_was_given_up_never_runs():
    calls: list[Callable[[], None]] = []
    assert not run_on_loop(calls.append, lambda: pytest.fail("ran"), lambda: True)
    calls[0]()


def test_one_that_fails_has_run():
    calls: list[BaseException] = []

    def call_soon(job: Callable[[], None]) -> None:
        try:
            job()
        except ValueError as error:
            calls.append(error)

    def fail() -> None:
        raise ValueError("no")

    assert run_on_loop(call_soon, fail, lambda: True)
    assert len(calls) == 1
