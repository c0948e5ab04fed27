"""A member of a set of two is started on an old copy of its directory, while the other one is away."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.support.peer import send_fields
from tests.support.set_of_two import SEND, SetOfTwo
from tests.support.waiting import wait_for

CREATE_TOPIC, DELETE_TOPIC, ONE_TOPIC = 17, 215, 351
GONE = "Gone"


@pytest.fixture
def brokers(tmp_path) -> Iterator[SetOfTwo]:
    with SetOfTwo(tmp_path) as running:
        yield running


def has_topic(brokers: SetOfTwo, number: int, topic: str) -> bool:
    return brokers.peer(number).ask(ONE_TOPIC, {"topic": topic}).code == 0


def test_what_was_deleted_since_does_not_come_back_with_it(brokers, tmp_path):
    """The log is as long as what was acknowledged, and the member is in sync by the key. So it was elected, and the
    other one undid the deletion, as one that its leader never heard of."""
    assert brokers.peer(1).ask(SEND, send_fields(GONE, 0, ""), b"old").code == 0
    assert brokers.send(1, 20) == [0] * 20
    wait_for(lambda: has_topic(brokers, 2, GONE), "the topic at the second one")
    directory, kept = brokers.brokers[2].data_dir, tmp_path / "kept"
    brokers.hang_up(2)
    brokers.brokers[2].stop()
    shutil.copytree(directory, kept)
    brokers.brokers[2] = brokers.layout.start("machine-2.toml")
    brokers.wait_in_sync()
    assert brokers.peer(1).ask(DELETE_TOPIC, {"topic": GONE}).code == 0
    wait_for(lambda: not has_topic(brokers, 2, GONE), "the deletion at the second one")
    for number in (1, 2):
        brokers.hang_up(number)
        brokers.brokers[number].kill()
    before = brokers.state()
    own = directory / "rocketbox"
    shutil.rmtree(own)
    shutil.copytree(kept / "rocketbox", own)
    brokers.brokers[2] = brokers.layout.start("machine-2.toml")
    wait_for(lambda: "is an old copy of the member" in brokers.brokers[2].said(), "it to see that it is old")
    brokers.brokers[1] = brokers.layout.start("machine-1.toml")
    brokers.wait_led_by(1)
    # Until then the store still names those who were in sync before.
    wait_for(lambda: set(brokers.state().isr) - set(before.isr), "another member")
    brokers.wait_in_sync()
    for number in (1, 2):
        wait_for(lambda number=number: set(brokers.acknowledged) <= set(brokers.bodies_at(number)), "all messages")
        assert not has_topic(brokers, number, GONE)
    assert brokers.send(1, 5) == [0] * 5
