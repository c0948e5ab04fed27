"""Members of a set whose ports take nothing but TLS: streams, tables, relays and the death of the leader."""

from contextlib import closing

import pytest

from tests.support.engine import send_fields
from tests.support.members_of_set import Member
from tests.support.tls import TlsPeer, make_pair
from tests.support.waiting import wait_for


@pytest.fixture
def members(tmp_path):
    """`members(slot)` makes a member; all are stopped at the end."""
    files = [str(path) for path in make_pair(tmp_path)]
    options = {"tls_mode": "enforcing", "tls_cert_file": files[0], "tls_key_file": files[1]}
    made: list[Member] = []

    def member(slot: int, **store) -> Member:
        made.append(Member(tmp_path / f"member-{slot}", slot, broker=options, **store))
        return made[-1]

    yield member
    for one in reversed(made):
        one.engine.stop()


def send(member: Member, *bodies: bytes) -> None:
    with closing(TlsPeer(str(member.engine.broker_address))) as peer:
        for body in bodies:
            assert peer.ask(310, send_fields("Orders"), body).code == 0


def wait_for_log(one: Member, other: Member) -> None:
    wait_for(lambda: one.store.published == other.store.log.written, "the whole log")


def test_a_member_takes_over_from_a_leader_that_died_and_is_followed(members):
    first, second = members(1), members(2)
    first.lead(1)
    send(first, b"before")  # makes the topic
    first.take_in(second)
    send(first, *[b"%d" % n for n in range(20)])  # answered when the other has them
    wait_for(lambda: second.engine.broker.topics.get("Orders"), "the topic, asked for by TLS")
    end = first.store.log.written
    assert second.store.log.written == end
    # Its stream breaks as when the process dies: ports that refuse, no good-bye.
    first.engine.broker.replication.stop()
    wait_for(lambda: second.brokers.stream().epoch == 0, "the stream to end")
    second.lead(2)
    send(second, b"after")
    first.fence()
    first.follow(second, 2)
    wait_for_log(first, second)
    assert first.store.log.written > end
    assert [link.member for link in second.engine.broker.replication.slaves] == [first.files.uuid]


def test_sends_to_a_former_leader_are_relayed_by_tls(members):
    first, second = members(1), members(2)
    first.lead(1)
    send(first, b"before")
    first.take_in(second)
    second.lead(2)
    first.fence()
    first.brokers.relay_to(second.leader, 60.0)
    send(first, b"for the other")
    assert second.store.published == second.store.log.written > first.store.log.written
