"""Topics made, deleted, made again and given queues, messages, retention, members that come empty, and changes of the
leader, in any order: the next leader shows every acknowledged message that was neither deleted nor expired, and no
offset of a queue is given twice."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.effort import effort
from tests.support.engine import pull_fields, records, send_fields
from tests.support.members_of_set import DELETE_TOPIC, FILE, PULL, SEND, Member, make, send, wait_for_same_log
from tests.support.waiting import wait_for

TOPICS = ("A", "B")


class Story:
    """Messages so far. acknowledged: topic -> queue -> offset -> (body, physical offset), without topics that do not
    exist. given: every (topic, queue, offset) that was answered."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.directory = directory
        self.epoch = self.made = self.number = 0
        self.leader = self.new_member()
        self.other = self.new_member(self.leader.engine.namesrv_address)
        self.queues: dict[str, int] = {}
        self.acknowledged: dict[str, dict[int, dict[int, tuple[bytes, int]]]] = {}
        self.given: set[tuple[str, int, int]] = set()
        self.lead(self.leader)
        self.join()

    def new_member(self, *namesrvs: str) -> Member:
        self.made += 1
        return Member(self.directory / str(self.made), self.made, namesrvs)

    def lead(self, member: Member) -> None:
        self.epoch += 1
        member.lead(self.epoch)

    def join(self) -> None:
        self.leader.take_in(self.other)

    # --- steps

    def make(self) -> None:
        topic = self.chance.choice(TOPICS)
        count = max(self.queues.get(topic, 0), self.chance.randint(1, 4))
        make(self.leader.peer(), topic, count)
        self.queues[topic] = count
        self.acknowledged.setdefault(topic, {})

    def delete(self) -> None:
        topic = self.chance.choice(TOPICS)
        assert self.leader.peer().ask(DELETE_TOPIC, {"topic": topic}).code == 0
        self.queues.pop(topic, None)
        self.acknowledged.pop(topic, None)

    def send(self) -> None:
        topic = self.chance.choice(TOPICS)
        if topic not in self.queues:
            return
        peer = self.leader.peer()
        for _ in range(self.chance.randint(1, 6)):
            self.number += 1
            queue, body = self.chance.randrange(self.queues[topic]), b"%d" % self.number
            physical = self.leader.store.log.written
            answer = peer.ask(SEND, send_fields(topic, queue), body)
            assert answer.code == 0
            offset = int(answer.ext_fields["queueOffset"])
            assert (topic, queue, offset) not in self.given
            self.given.add((topic, queue, offset))
            self.acknowledged[topic].setdefault(queue, {})[offset] = (body, physical)

    def expire(self) -> None:
        """Delete the leader's first log file."""
        store, peer = self.leader.store, self.leader.peer()
        begin = store.log.min_offset
        make(peer, "Filler", 1)
        while store.log.written < begin + FILE + 200_000:
            send(peer, "Filler", 0, b"x" * 60_000)
        position = store.files.recovery_position
        wait_for(lambda: position.position and position.position.record_offset > begin + FILE, "the recovery position")
        assert store.cleaner._take_first()
        store.cleaner._unlink_leaving()
        store.cleaner._look_at_queues()

    def come_empty(self) -> None:
        """Replace the follower by one with an empty store."""
        self.leader.await_only()
        self.other.stop()
        self.other = self.new_member(self.leader.engine.namesrv_address)
        self.join()

    def restart_other(self) -> None:
        """Close and open the follower's store, as a change of its role does."""
        self.leader.await_only()
        self.other.brokers.fence("a test")
        self.join()

    def fail_over(self) -> None:
        wait_for_same_log(self.leader, self.other)
        self.leader.brokers.fence("a test")
        self.leader, self.other = self.other, self.leader
        self.lead(self.leader)
        self.look()
        self.join()

    # --- judging

    def look(self) -> None:
        store, peer = self.leader.store, self.leader.peer()
        for topic in TOPICS:
            assert (self.leader.engine.broker.topics.get(topic) is not None) == (topic in self.queues)
            for queue in range(self.queues.get(topic, 0)):
                wanted = {
                    offset: body
                    for offset, (body, physical) in self.acknowledged[topic].get(queue, {}).items()
                    if physical >= store.log.min_offset
                }
                low, high = store.offset_range(topic, queue)
                found: dict[int, bytes] = {}
                at = low
                while at < high:
                    answer = peer.ask(PULL, pull_fields(topic, queue, at))
                    if answer.code == 0:
                        found |= {one.queue_offset: one.body for one in records(answer.body)}
                    at = int(answer.ext_fields["nextBeginOffset"])
                assert {offset: body for offset, body in found.items() if offset in wanted} == wanted
                known = self.acknowledged[topic].get(queue, {})
                assert all(known.get(offset, (b"",))[0] == body for offset, body in found.items()), (topic, queue)

    def stop(self) -> None:
        self.other.stop()
        self.leader.stop()


@pytest.mark.parametrize("seed", range(effort(2, 10, 100)))
def test_what_was_acknowledged_is_what_the_next_leader_shows(tmp_path, seed):
    story = Story(tmp_path, seed)
    steps = {
        story.make: 4, story.send: 10, story.delete: 2, story.fail_over: 3, story.come_empty: 0.5, story.expire: 0.7,
        story.restart_other: 0.5,
    }  # fmt: skip
    try:
        for _ in range(40):
            story.chance.choices(list(steps), list(steps.values()))[0]()
        story.fail_over()
        story.fail_over()
    finally:
        story.stop()
