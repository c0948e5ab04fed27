"""Retry topic or dead letters: the group's limit, the client's, and ordered consumers that give up."""

import pytest

from appliance.engine.broker.queue_locks import RebalanceLockManager
from appliance.engine.broker.sending.retry_policy import RetryPolicy
from appliance.engine.errors import RefusedRequest
from appliance.engine.protocol.codes import ResponseCode
from tests.support.clock import FakeClock
from tests.support.engine import send_fields, start_engine

LIMIT = 16  # a new group's
OLD, NEW = 120, 121  # versions: the second says its own limit


@pytest.fixture
def policy(engine):
    engine.window.group_commands.create("CG")
    return RetryPolicy(engine.broker.topics, engine.broker.groups, RebalanceLockManager(FakeClock()))


@pytest.mark.parametrize(
    ("times", "limit", "version", "dead"),
    [
        (0, None, NEW, False),
        (LIMIT, None, NEW, False),
        (LIMIT + 1, None, NEW, True),
        (3, 3, NEW, False),
        (4, 3, NEW, True),
        (4, 3, OLD, False),  # an old client's number means nothing
        (LIMIT + 1, 100, OLD, True),
        (LIMIT + 1, 100, NEW, False),
    ],
)
def test_past_the_limit_it_goes_to_the_dead_letters(policy, times, limit, version, dead):
    topic = policy.dead_letter_topic("%RETRY%CG", times, limit, version)
    assert (topic.topic_name if topic else None) == ("%DLQ%CG" if dead else None)


def test_an_ordered_consumer_sends_here_only_when_it_gives_up(engine):
    engine.window.group_commands.create("CG")
    locks = RebalanceLockManager(FakeClock())
    policy = RetryPolicy(engine.broker.topics, engine.broker.groups, locks)
    locks.is_locked = lambda group: group == "CG"
    assert policy.dead_letter_topic("%RETRY%CG", 0, None, NEW).topic_name == "%DLQ%CG"


def test_a_group_that_is_not_there_has_neither_topic(tmp_path):
    engine = start_engine(tmp_path, broker={"auto_create_subscription_group": False})
    policy = RetryPolicy(engine.broker.topics, engine.broker.groups, RebalanceLockManager(FakeClock()))
    for ask in (
        lambda: policy.retry_topic("%RETRY%Nobody"),
        lambda: policy.dead_letter_topic("%RETRY%Nobody", 0, 0, NEW),
    ):
        with pytest.raises(RefusedRequest) as refused:
            ask()
        assert refused.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert engine.broker.topics.get("%RETRY%Nobody") is engine.broker.topics.get("%DLQ%Nobody") is None
    engine.stop()


@pytest.mark.parametrize("prefix", ["%RETRY%", "%DLQ%"])
def test_a_batch_goes_to_neither(engine, peer, prefix):
    engine.window.group_commands.create("CG")
    member = b"\0\0\0\x17" + bytes(12) + b"\0\0\0\x01x\0\0"
    before = engine.broker.store.put_count
    assert peer.ask(320, send_fields(prefix + "CG", m="true"), member).code == ResponseCode.MESSAGE_ILLEGAL
    assert engine.broker.store.put_count == before
