"""Which copies of a job are stored already: looked for at the places that its journal names."""

import pytest

from appliance.engine.broker.replay.job import TO_GROUP, JobSpec, JobState, Span
from appliance.engine.broker.replay.proof import Proof, Unprovable
from appliance.engine.broker.replay.provenance import REPLAY_JOB, REPLAY_SEQ
from appliance.engine.broker.topic_config import new_topic
from tests.support.store import StoreUnderTest

TARGET = "%RETRY%G"
JOB = JobSpec("job-1", "G", TO_GROUP, TARGET, (Span(0, 0, 10),), 100, 3, "ann", 0)


@pytest.fixture
def store(tmp_path):
    under_test = StoreUnderTest(tmp_path).open()
    yield under_test
    under_test.stop()


def copies(store, queue_id: int, *numbers: int, job: str = JOB.id) -> None:
    for number in numbers:
        store.put(TARGET, queue_id, b"x", f"{REPLAY_JOB}\x01{job}\x02{REPLAY_SEQ}\x01{number}\x02".encode())
        store.tick()


def proof(store, *offsets: int, begin: int = 0) -> Proof:
    """Return the proof of a job whose journal says that copies lie behind these offsets of its target."""
    topics = {TARGET: new_topic(TARGET, 2, 6)}
    return Proof(store.store, topics, JobState(JOB, next=begin, targets={TARGET: offsets}), JOB.total)


def found(looking: Proof) -> set[int]:
    while not looking.step():
        pass
    looking.close()
    return looking.found


def test_copies_are_found_behind_the_places_of_the_journal(store):
    copies(store, 0, 0, 1, 2, 3)
    copies(store, 0, 4, job="another")
    assert found(proof(store, 2, begin=2)) == {2, 3}
    assert found(proof(store, 0, begin=3)) == {3}, "of the others the journal tells"


def test_copies_are_found_in_a_queue_that_came_to_be_since(store):
    copies(store, 0, 0)
    copies(store, 1, 1)
    assert found(proof(store, 0)) == {0, 1}


@pytest.mark.parametrize(("low", "offset"), [(1, 0), (0, 3)], ids=["its begin has expired", "its end was cut"])
def test_where_copies_may_have_gone_nothing_is_known(store, low, offset):
    copies(store, 0, 0, 1)
    store.store.find_queue(TARGET, 0).min_offset = low
    with pytest.raises(Unprovable):
        proof(store, offset)
