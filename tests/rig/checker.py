"""Invariants of a set of brokers after any faults: pure functions of the clients' histories and the brokers' contents.

Each returns its findings as sentences; all is well when every list is empty. A docstring that begins with a number
states the invariant that its function checks.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.rig.history import COMMIT, OK, ROLLBACK, Committed, Event, Seen, Send

Queue = tuple[str, int]  # topic, queue id

#: Findings of one kind that are listed; the others are counted.
TOLD = 8
#: Offsets go to followers once a second; a change of the leader itself, and a busy machine, come on top.
REPEATED_S = 3.0


class Entry(NamedTuple):
    """A message in a queue, from its record in the log or from a pull. at: physical offset of the record."""

    offset: int
    id: str
    at: int


class Replica(NamedTuple):
    """The contents of one broker when all is quiet.

    queues: from its pulls, from the minimum offset on. records: of the same topics, from the log's records, in the
    log's order. log: bytes from `log_start` on, to its end. epochs: (epoch, start) pairs. offsets: of consumer groups.
    quarantine: ids of messages that were cut off and set aside here.
    """

    name: str
    queues: Mapping[Queue, Sequence[Entry]]
    records: Mapping[Queue, Sequence[Entry]]
    log_start: int
    log: bytes
    epochs: tuple[tuple[int, int], ...] = ()
    offsets: Mapping[tuple[str, str, int], int] = {}
    quarantine: frozenset[str] = frozenset()


def check(events: Iterable[Event], replicas: Sequence[Replica]) -> list[str]:
    """Return all findings for a set in which every acknowledged message must be on every replica."""
    sends, seen, committed = _by_kind(events)
    found = []
    for replica in replicas:
        found += lost(sends, replica)
        found += invented(sends, replica)
        found += out_of_order(sends, replica)
        found += gaps(replica)
        found += queues_unlike_log(replica)
        found += offsets_too_far(committed, replica)
        found += transactions(sends, replica)
    found += moved(sends, seen, replicas)
    found += unlike_logs(replicas)
    found += unlike_epochs(replicas)
    found += early(sends, seen)
    found += offsets_went_back(committed, replicas)
    return found


def check_asynchronous(events: Iterable[Event], replicas: Sequence[Replica]) -> list[str]:
    """Return all findings for a set whose leader does not wait for followers: an acknowledged message is there, or was
    cut off and set aside by the broker that had it. Consumers may have received messages that are gone in the end."""
    sends, _, _ = _by_kind(events)
    aside = frozenset().union(*(replica.quarantine for replica in replicas))
    found = []
    for replica in replicas:
        found += lost(sends, replica._replace(quarantine=aside), quarantine=True)
        found += invented(sends, replica)
        found += gaps(replica)
        found += queues_unlike_log(replica)
        found += transactions(sends, replica)
    found += unlike_logs(replicas)
    found += unlike_epochs(replicas)
    return found


def _by_kind(events: Iterable[Event]) -> tuple[list[Send], list[Seen], list[Committed]]:
    kinds: dict[type, list[Event]] = {Send: [], Seen: [], Committed: []}
    for event in events:
        kinds[type(event)].append(event)
    return kinds[Send], kinds[Seen], kinds[Committed]  # type: ignore[return-value]


def lost(sends: Sequence[Send], replica: Replica, quarantine: bool = False) -> list[str]:
    """1: acknowledged messages are there. quarantine: messages that were cut off and set aside count as there."""
    present = {entry.id for entries in replica.queues.values() for entry in entries}
    if quarantine:
        present |= replica.quarantine
    gone = [send for send in sends if expected(send) and send.id not in present]
    return _told(
        f"{replica.name}: lost",
        [f"{s.id} of {s.topic}/{s.queue} at {s.offset}, acknowledged by {s.node or '?'} at {s.back:.3f}" for s in gone],
    )


def expected(send: Send) -> bool:
    """True if the message must be there: its send was acknowledged and, in a transaction, so was its commit."""
    if send.half:
        return send.outcome == OK and send.verdict == COMMIT and send.verdict_outcome == OK
    return send.outcome == OK


def invented(sends: Sequence[Send], replica: Replica) -> list[str]:
    """2: each message that is there was sent, and is there once. Exceptions: its client may send again by itself, or it
    was delayed: progress of delays is stored after the delivery, so the end of a process may repeat some."""
    known = {send.id: send for send in sends}
    counts = Counter(entry.id for entries in replica.queues.values() for entry in entries)
    wrong = [f"{id} was never sent" for id in counts if id not in known]
    once = {id for id, send in known.items() if not send.again and not send.due}
    wrong += [f"{id} is there {n} times" for id, n in counts.items() if n > 1 and id in once]
    return _told(f"{replica.name}: invented", wrong)


def out_of_order(sends: Sequence[Send], replica: Replica) -> list[str]:
    """3: the acknowledged messages of one producer lie in each queue in the order of its calls."""
    place: dict[tuple[Queue, str], int] = {}
    for queue, entries in replica.queues.items():
        for entry in entries:
            place.setdefault((queue, entry.id), entry.offset)
    lines: dict[tuple[str, Queue], list[Send]] = defaultdict(list)
    for send in sends:
        if send.outcome == OK and not send.due and not send.half:
            lines[send.producer, (send.topic, send.queue)].append(send)
    wrong = []
    for (producer, queue), line in lines.items():
        line.sort(key=lambda send: send.call)
        last = -1
        for send in line:
            # If the client may have sent several copies, the one whose offset it was given counts.
            at = send.offset if send.again else place.get((queue, send.id))
            if at is None:
                continue
            if at <= last:
                wrong.append(f"{send.id} of {producer} in {queue[0]}/{queue[1]}: at {at}, behind one at {last}")
            last = max(last, at)
    return _told(f"{replica.name}: out of order", wrong)


def moved(sends: Sequence[Send], seen: Sequence[Seen], replicas: Sequence[Replica]) -> list[str]:
    """4: a place in a queue has one message for ever, in all acknowledgements, deliveries and replicas."""
    final: dict[tuple[str, int, int], tuple[str, str]] = {}
    wrong = []

    def holds(place: tuple[str, int, int], id: str, who: str) -> None:
        other = final.setdefault(place, (id, who))
        if other[0] != id:
            topic, queue, offset = place
            wrong.append(f"{topic}/{queue} at {offset}: {other[0]} ({other[1]}), and {id} ({who})")

    minimum: dict[tuple[str, Queue], int] = {}
    for replica in replicas:
        for queue, entries in replica.queues.items():
            minimum[replica.name, queue] = entries[0].offset if entries else 0
            for entry in entries:
                holds((*queue, entry.offset), entry.id, f"in the end on {replica.name}")
    for send in sends:
        if send.outcome == OK and send.offset >= 0:
            holds((send.topic, send.queue, send.offset), send.id, f"acknowledged by {send.node or '?'}")
    ends = {queue: len(entries) + minimum[replica.name, queue] for replica in replicas for queue, entries in
            replica.queues.items()}  # fmt: skip
    for one in seen:
        holds((one.topic, one.queue, one.offset), one.id, f"given to {one.consumer} by {one.node} at {one.time:.3f}")
        end = ends.get((one.topic, one.queue))
        if end is not None and one.offset >= end:
            wrong.append(f"{one.topic}/{one.queue} at {one.offset}: {one.id} was given to {one.consumer} by {one.node} "
                         f"at {one.time:.3f}, and the queue ends at {end}")  # fmt: skip
    return _told("moved", wrong)


def gaps(replica: Replica) -> list[str]:
    """5, first half: queue offsets follow each other."""
    wrong = []
    for (topic, queue), entries in replica.queues.items():
        for before, after in itertools.pairwise(entries):
            if after.offset != before.offset + 1:
                wrong.append(f"{topic}/{queue}: {before.offset}, then {after.offset}")
            if after.at <= before.at:
                wrong.append(f"{topic}/{queue}: {after.offset} lies before {before.offset} in the log")
    return _told(f"{replica.name}: gap", wrong)


def queues_unlike_log(replica: Replica) -> list[str]:
    """5, second half: the queues show exactly the records of the log."""
    wrong = []
    for queue in replica.queues.keys() | replica.records.keys():
        shown, held = replica.queues.get(queue, ()), replica.records.get(queue, ())
        if list(shown) != list(held):
            differing = [(a, b) for a, b in zip(shown, held, strict=False) if a != b]
            wrong.append(
                f"{queue[0]}/{queue[1]}: {len(shown)} shown, {len(held)} in the log"
                + (f", first other {differing[0]}" if differing else "")
            )
    return _told(f"{replica.name}: queue unlike the log", wrong)


def unlike_logs(replicas: Sequence[Replica]) -> list[str]:
    """6, first half: logs are equal byte for byte where they overlap; when all is quiet they end together."""
    wrong = []
    for one, other in itertools.pairwise(replicas):
        begin = max(one.log_start, other.log_start)
        a, b = one.log[begin - one.log_start :], other.log[begin - other.log_start :]
        common = min(len(a), len(b))
        if a[:common] != b[:common]:
            at = next(i for i in range(common) if a[i] != b[i])
            wrong.append(f"{one.name} and {other.name} from {begin + at} on")
        elif len(a) != len(b):
            wrong.append(f"{one.name} ends at {begin + len(a)}, {other.name} at {begin + len(b)}")
    return _told("unlike logs", wrong)


def unlike_epochs(replicas: Sequence[Replica]) -> list[str]:
    """6, second half: of two epoch lists the shorter is the beginning of the longer; starts and epochs grow."""
    wrong = []
    for one in replicas:
        for before, after in zip(one.epochs, one.epochs[1:], strict=False):
            if after[0] <= before[0] or after[1] < before[1]:
                wrong.append(f"{one.name}: {before}, then {after}")
    for one, other in itertools.pairwise(replicas):
        common = min(len(one.epochs), len(other.epochs))
        if one.epochs[:common] != other.epochs[:common]:
            wrong.append(f"{one.name} {one.epochs}, {other.name} {other.epochs}")
    return _told("unlike epochs", wrong)


def offsets_too_far(committed: Sequence[Committed], replica: Replica) -> list[str]:
    """8, first half: no group's offset is beyond the end of a queue, nor beyond the largest that it committed."""
    furthest: dict[tuple[str, str, int], int] = {}
    for one in committed:
        key = (one.group, one.topic, one.queue)
        furthest[key] = max(furthest.get(key, 0), one.offset)
    wrong = []
    for (group, topic, queue), offset in replica.offsets.items():
        entries = replica.queues.get((topic, queue))
        end = entries[-1].offset + 1 if entries else 0
        if entries is not None and offset > end:
            wrong.append(f"{group} of {topic}/{queue}: {offset}, and the queue ends at {end}")
        if offset > furthest.get((group, topic, queue), offset):
            wrong.append(f"{group} of {topic}/{queue}: {offset}, and it never said more than "
                         f"{furthest[group, topic, queue]}")  # fmt: skip
    return _told(f"{replica.name}: offset too far", wrong)


def offsets_went_back(committed: Sequence[Committed], replicas: Sequence[Replica]) -> list[str]:
    """8, second half: a group's offset is never below what it had committed REPEATED_S before its last commit."""
    last: dict[tuple[str, str, int], Committed] = {}
    for one in committed:
        key = (one.group, one.topic, one.queue)
        if key not in last or one.time >= last[key].time:
            last[key] = one
    wrong = []
    for replica in replicas:
        for key, one in last.items():
            before = [c for c in committed if (c.group, c.topic, c.queue) == key and c.time <= one.time - REPEATED_S]
            least = max((c.offset for c in before), default=0)
            now = replica.offsets.get(key)
            if now is not None and now < least:
                wrong.append(f"{replica.name}: {key[0]} of {key[1]}/{key[2]} is at {now}; it had said {least} more "
                             f"than {REPEATED_S} s before its last word")  # fmt: skip
    return _told("offset went back", wrong)


def transactions(sends: Sequence[Send], replica: Replica) -> list[str]:
    """9: messages of transactions that were rolled back or never decided are not visible."""
    present = {entry.id for entries in replica.queues.values() for entry in entries}
    wrong = [
        f"{send.id}, {'rolled back' if send.verdict == ROLLBACK else 'never decided'}"
        for send in sends
        if send.half and send.verdict != COMMIT and send.id in present
    ]
    return _told(f"{replica.name}: transaction visible", wrong)


def early(sends: Sequence[Send], seen: Sequence[Seen]) -> list[str]:
    """9: a delayed message is not delivered before its time."""
    due = {send.id: send.due for send in sends if send.due}
    return _told(
        "early",
        [
            f"{one.id} to {one.consumer}: {due[one.id] - one.time:.3f} s"
            for one in seen
            if one.time < due.get(one.id, 0)
        ],
    )


def changed(before: Sequence[Replica], after: Sequence[Replica]) -> list[str]:
    """10: a restart of all brokers removes nothing and changes nothing."""
    then = {replica.name: replica for replica in before}
    wrong = []
    for now in after:
        was = then[now.name]
        for queue, entries in was.queues.items():
            if list(now.queues.get(queue, ()))[: len(entries)] != list(entries):
                wrong.append(f"{now.name}: {queue[0]}/{queue[1]}")
        if now.log[: len(was.log)] != was.log:
            wrong.append(f"{now.name}: its log")
    return _told("changed by a restart", wrong)


def _told(what: str, wrong: Sequence[str]) -> list[str]:
    if not wrong:
        return []
    more = f" (and {len(wrong) - TOLD} more)" if len(wrong) > TOLD else ""
    return [f"{what}: {len(wrong)}: " + "; ".join(wrong[:TOLD]) + more]
