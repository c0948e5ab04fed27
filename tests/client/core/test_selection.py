"""The choice of a queue for a send: brokers that were slow or failed are avoided by 5.3.3's table."""

import pytest

from appliance.client.core.selection import Faults, RoundRobin
from appliance.client.message import MessageQueue

NOW = 100.0


@pytest.mark.parametrize(
    ("latency", "avoided"),
    [(0.549, 0), (0.55, 2), (1.799, 2), (1.8, 5), (3.0, 6), (5.0, 10), (14.999, 10), (15.0, 30), (99.0, 30)],
)
def test_a_slow_broker_is_avoided_as_long_as_javas(latency, avoided):
    faults = Faults()
    faults.answered("a", latency, NOW)
    assert faults.is_available("a", NOW) is not bool(avoided)
    assert faults.is_available("a", NOW + avoided)
    assert not avoided or not faults.is_available("a", NOW + avoided - 0.01)


def test_a_broker_that_failed_is_avoided_for_ten_seconds_and_never_for_less_than_it_was():
    faults = Faults()
    faults.failed("a", NOW)
    faults.answered("a", 0.6, NOW + 1)
    assert not faults.is_available("a", NOW + 9.9)
    assert faults.is_available("a", NOW + 10)
    faults.answered("b", 15.0, NOW)
    faults.failed("b", NOW + 1)
    assert not faults.is_available("b", NOW + 29.9)


def test_queues_of_other_brokers_take_turns_until_all_are_avoided():
    queues = [MessageQueue("T", broker, number) for broker in "ab" for number in range(2)]
    faults, turns = Faults(), RoundRobin(0)
    faults.failed("a", NOW)
    assert {turns.choose(queues, faults, NOW, None).broker_name for _ in range(8)} == {"b"}
    assert {turns.choose(queues, faults, NOW + 10, None).broker_name for _ in range(8)} == {"a", "b"}
    faults.failed("b", NOW)
    assert {turns.choose(queues, faults, NOW, None).broker_name for _ in range(8)} == {"a", "b"}
