"""Timers of a real store, driven by hand, with a clock that tests set."""

import pytest

from tests.support.clock import FakeClock
from tests.support.store import StoreUnderTest
from tests.support.timers import Timers


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def timers(tmp_path, clock):
    under_test = StoreUnderTest(tmp_path).open()
    timers = Timers(under_test, clock)
    yield timers
    timers.close()
    under_test.stop()
