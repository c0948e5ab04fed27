"""Judge from a queue's records how messages were delivered that came while their broker was killed or stopped."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from appliance.engine.protocol.record import Record
from tests.support.engine import Peer, read_queue
from tests.support.server import Server
from tests.support.waiting import wait_for

TOPIC = "Later"
#: Time in ms that the saved progress may be behind, and time that a machine under load adds to a save.
REPEATED_MS, LOAD_MS = 1000, 1000


def delivered(server: Server) -> list[Record]:
    peer = Peer(server.broker)
    try:
        return read_queue(peer, TOPIC)
    finally:
        peer.close()


def wait_for_some(server: Server, count: int) -> None:
    wait_for(lambda: len(delivered(server)) > count, "some are delivered")


def all_of(server: Server, count: int) -> list[Record]:
    """All records, once so many different messages are there."""
    wait_for(lambda: len({record.body for record in delivered(server)}) == count, "all are delivered")
    return delivered(server)


def judge(found: Sequence[Record], in_order: list[bytes]) -> int:
    """Each message came in order; it came twice, if at all, within what the progress may be behind a kill. How many
    came twice."""
    copies = Counter(record.body for record in found)
    first: dict[bytes, Record] = {}
    for record in found:
        first.setdefault(record.body, record)
    assert list(first) == in_order, "in order"
    repeated = {body for body, count in copies.items() if count > 1}
    assert max(copies.values()) <= 2
    if repeated:
        times = [first[body].store_time_ms for body in repeated]
        assert max(times) - min(times) <= REPEATED_MS + LOAD_MS
    return len(repeated)


def judge_a_stop(server: Server, count: int) -> None:
    """A stop repeats nothing: messages 0 to `count` come once, some of them before it and the rest after it."""
    wait_for_some(server, 20)
    server.restart()
    wait_for(lambda: len(delivered(server)) >= count, "all are delivered")
    time.sleep(0.5)
    assert Counter(record.body for record in delivered(server)) == Counter(b"%d" % n for n in range(count))
