"""Decides who leads: the decisions of one member of a broker set, as a pure function.

Each turn sees everything anew and decides what to do now: a lost event is no lost decision. An act counts when the next
sight shows it, never because it was asked for. No clock is read here, nothing is sent, nothing waits.

Acknowledged messages are in every log that may be elected, since
    an acknowledgement awaits all members in sync by the key, and by each swap whose outcome is unknown;
    a candidate is in sync by the revision that it replaces, and appends nothing before its swap is decided.
Time decides only when to try, and in an asynchronous set when to be silent.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from .decision import (
    Act,
    Answer,
    Await,
    BeginEpoch,
    CloseStream,
    Cut,
    Drain,
    Fence,
    Follow,
    Join,
    Lead,
    Memory,
    Note,
    Other,
    Pending,
    Read,
    Reign,
    Relay,
    Rules,
    See,
    SetAside,
    Sight,
    Slow,
    Swap,
    Swapped,
)
from .invariants import awaited_by, check
from .parts import Known, MemberReport
from .set_state import MAX_ELECTIONS, Election, Leader, SetState

#: Share of the election time-out after which a leader without a successful beat stops: clocks may differ by a quarter.
_OWN_SHARE = 0.8
#: A joiner that lacks at most this many published bytes is awaited, so that it can catch up.
_NEAR = 256 * 1024
#: A leader whose stream sent bytes within this time is alive, whatever the store says.
_HEARD_S = 1.0
#: Delay of a candidate for each rank before it, and the most that is added at random.
_RANK_S, _RANDOM_S = 0.1, 0.05
#: Reads of one revision before it counts as unchanged.
_READS = 3
#: Longest time until a slow member is tried again; its last wait is remembered for the same time after it.
_SLOW_WAIT_S = 600.0
_POLL_S = 0.25
#: A member of which nothing came for so long may follow another leader: it reports each second, and itself gives up a
#: leader that is silent for this time.
_GONE_S = 5.0

_Turn = tuple[Memory, tuple[Act, ...]]


def decide(memory: Memory, now: float, sight: Sight, rules: Rules) -> _Turn:
    """Return the new memory and the acts to do now, in order; after one that failed the rest is left out. Raises
    InvariantBroken instead of returning acts that would break an invariant."""
    after = _learn(memory, now, sight, rules)
    reign = after.reign
    lost = _lost(after, reign, now, sight, rules) if reign is not None else ""
    if lost:
        after = after._replace(reign=None, joining=frozenset(), role="fenced", why=lost)
    if reign is None or lost:
        after, acts = _serve(after, now, sight, rules)
    else:
        after, acts = _rule(after, reign, now, sight, rules)
    check(memory, after, acts, sight, rules)
    return after, acts


def wants_read(memory: Memory) -> bool:
    """True if the key has to be read. A leader learns the key from its own swaps, and while a swap is pending the key
    may still change."""
    return memory.pending is None and (memory.reign is None or memory.reign.orphaned)


def pause(memory: Memory, now: float, rules: Rules) -> float:
    """Return the seconds until the next turn when there was nothing to do in this one."""
    until = now + _POLL_S
    if memory.pending is not None:
        until = min(until, memory.pending.again)
    elif memory.reign is not None:
        until = min(until, memory.reign.sent_at + rules.beat_interval)
    elif memory.run_at is not None:
        until = min(until, memory.run_at)
    return max(0.01, until - now)


def release_until(memory: Memory, rules: Rules) -> float:
    """Return until when this leader may acknowledge; in an asynchronous set others may be elected after it."""
    reign, pending = memory.reign, memory.pending
    if reign is None:
        return -math.inf
    if not rules.synchronous and pending is not None and pending.swap.purpose == "resign":
        return -math.inf
    if rules.synchronous or not awaited_by(memory, rules.uuid):
        return math.inf
    return reign.sent_at + _OWN_SHARE * rules.elect_after


# --- what was learnt


def _learn(m: Memory, now: float, s: Sight, r: Rules) -> Memory:
    if s.cluster and not m.cluster:
        m = m._replace(cluster=s.cluster)
    if m.pending is not None and s.swapped is not None:
        m = _settle(m, m.pending, s.swapped, now, r)
    if s.read is not None:
        if m.key is not None and m.reads and s.read.revision == m.key.revision:
            m = m._replace(key=s.read, reads=m.reads + 1)
        else:
            m = m._replace(key=s.read, reads=1, since=s.read.at, run_at=None)
    elif s.unread:
        # While the store does not answer, no leader can have written its beat.
        m = m._replace(reads=0, run_at=None)
    if s.health.alive:
        m = m._replace(down_since=None) if m.down_since is not None else m
    elif m.down_since is None:
        m = m._replace(down_since=now)
    return m


def _settle(m: Memory, pending: Pending, swapped: Swapped, now: float, r: Rules) -> Memory:
    """Settle the pending swap: it was done, was not done, or stays pending, and then it may be done at any time."""
    swap, reign = pending.swap, m.reign
    if swapped.how == "unknown":
        return m._replace(pending=Pending(swap, pending.first or swapped.sent_at, now + r.retry))
    m = m._replace(pending=None, since=now, reads=1, run_at=None)
    own = swapped.how == "conflict" and swapped.state is not None and swapped.state.nonce == swap.state.nonce
    if swapped.how == "conflict" and not own:
        m = m._replace(key=Read(swapped.state, swapped.revision, now, swapped.absent))
        if reign is None:
            return m
        if swapped.state is None or swapped.state.epoch < reign.state.epoch:
            return m._replace(reign=reign._replace(orphaned=True))
        return m._replace(reign=None, joining=frozenset(), why="another member was elected")
    m = m._replace(key=Read(swap.state, swapped.revision, now))
    # If there were several attempts, the first may be the one that was done.
    sent_at = pending.first if own and pending.first else swapped.sent_at
    if swap.purpose == "elect":
        return m._replace(reign=Reign(swap.state, swapped.revision, sent_at), joining=frozenset(), slow={})
    if swap.purpose == "resign":
        return m._replace(reign=None, joining=frozenset(), relay=bool(swap.state.successor), why="it resigned")
    if reign is not None:
        m = m._replace(reign=reign._replace(state=swap.state, revision=swapped.revision, sent_at=sent_at))
    return m


# --- the leader


def _lost(m: Memory, reign: Reign, now: float, s: Sight, r: Rules) -> str:
    """Return why this reign is over, "" if it is not. It never resumes: the same member takes another epoch."""
    epoch = reign.state.epoch
    if s.seen > epoch:
        return f"epoch {s.seen} is known"
    if reign.led and s.role != "leader":
        return "the broker stopped leading"
    if reign.orphaned:
        state = m.key.state if m.key is not None else None
        if state is not None and state.epoch >= epoch and state.nonce != reign.state.nonce:
            return "another member was elected"
        if s.wish is not None and s.wish.kind == "adopt":
            return "the operator adopts"
    if now > reign.sent_at + _OWN_SHARE * r.elect_after:
        # A joiner is awaited as well, but may not be elected: while it comes and goes, this member leads alone.
        others = awaited_by(m._replace(joining=frozenset()), r.uuid)
        here = {report.uuid for report in s.members if now - report.heard_at <= max(_GONE_S, r.slave_silence)}
        if others and not (r.synchronous and others <= _live(s, now, r).keys() & here):
            return "the leader store takes no writes, and others may be elected"
    return ""


def _live(s: Sight, now: float, r: Rules) -> dict[str, MemberReport]:
    """Return, by uuid, the members whose stream of this epoch makes progress."""
    return {report.uuid: report for report in s.members if now - report.moved_at <= r.slave_silence}


def _rule(m: Memory, reign: Reign, now: float, s: Sight, r: Rules) -> _Turn:
    state = reign.state
    told = awaited_by(m, r.uuid) if r.synchronous else frozenset()
    if s.seen < state.epoch:
        return m, (See(state.epoch),)
    if state.id and not s.set_id:
        return m, (Join(state.id),)
    if s.epoch < state.epoch:
        return m, (BeginEpoch(state.epoch, s.closed_at),)
    if (note := _note(m, reign, s, r, {})) is not None and s.role != "leader":
        return m, (note,)
    if s.role != "leader":
        return m._replace(role="candidate", why="it takes office"), (Lead(state.epoch, told),)
    if not reign.led:
        reign = reign._replace(led=True)
        m = m._replace(reign=reign)
    m = m._replace(role="leader", why="")
    live = _live(s, now, r)
    if r.synchronous:
        # A joiner is awaited first, and proposed once it has all that was published without it.
        m = m._replace(slow=_slow(m, now, s, r))
        near = _reaching(live, s, _NEAR).union(live.keys() & set(state.isr))
        m = m._replace(joining=frozenset(_swift(m, now, near, live, state, r).difference(state.isr)))
        told = awaited_by(m, r.uuid)
    if (note := _note(m, reign, s, r, live)) is not None:
        return m, (note,)
    if told != s.awaited:
        return m, (Await(told),)
    if m.pending is not None:
        return m._replace(why="the leader store takes no writes"), _again(m, m.pending, now)
    wish = s.wish
    if reign.orphaned:
        why = "the key is gone or was restored: adopt"
        return m._replace(why=why), (Answer(wish.kind == "resign", why),) if wish is not None else ()
    refusal = _refusal(wish.uuid, state, live, r) if wish is not None and wish.kind == "switch" else ""
    if s.drained is not None:
        # There is no way back: a leader that has begun to refuse messages does not go on leading.
        return _resign(m, state, s, "" if wish is None or refusal else wish.uuid)
    if wish is not None:
        if refusal or wish.kind in ("adopt", "force"):
            return m, (Answer(not refusal, refusal or f"this member leads epoch {state.epoch}"),)
        return m, (Drain(r.drain),)
    ill = not s.health.electable or (m.down_since is not None and now - m.down_since > r.elect_after / 2)
    if ill and any(uuid in live for uuid in state.isr):
        return _resign(m, state, s, "")
    if not s.health.alive:
        return m._replace(why="its disk or its I/O stands still"), ()
    known = {uuid: report for uuid, report in live.items() if report.taken >= s.health.changes}
    joined = _reaching(known, s, 0 if r.synchronous else r.max_lag)
    stay = _swift(m, now, joined.union(live.keys() & set(state.isr)), live, state, r)
    in_sync = (r.uuid, *sorted(stay - {r.uuid}))
    if in_sync == state.isr and now < reign.sent_at + r.beat_interval:
        return m, ()
    floor = max(state.floor, s.health.published)
    after = replace(state, isr=in_sync, floor=floor, beat=state.beat + 1, nonce=s.nonce)
    return _send(m, Swap("keep", after, reign.revision))


def _slow(m: Memory, now: float, s: Sight, r: Rules) -> dict[str, Slow]:
    """Return the members whose acknowledgements come late, or did. Each late one begins the wait anew."""
    slow = {uuid: one for uuid, one in m.slow.items() if now < one.until + _SLOW_WAIT_S}
    for report in s.members:
        before = slow.get(report.uuid)
        out = before is not None and now < before.until
        if report.late_s >= r.slow_after and not out:
            wait = r.slow_wait if before is None else min(_SLOW_WAIT_S, 2 * before.wait)
            slow[report.uuid] = Slow(now + wait, wait, report.took_s)
        elif report.late_s > 0 and before is not None and out:
            slow[report.uuid] = before._replace(until=now + before.wait, took=max(before.took, report.took_s))
    return slow


def _swift(
    m: Memory, now: float, found: set[str], live: dict[str, MemberReport], state: SetState, r: Rules
) -> set[str]:
    """Return `found` without the slow members. If fewer than min_in_sync would be left, slow ones stay: first those
    that are in sync, then the least late."""
    slow = {uuid for uuid in found if uuid in m.slow and now < m.slow[uuid].until}
    fit = found - slow
    missing = r.min_in_sync - len(fit | {r.uuid})
    if missing > 0:
        fit |= set(sorted(slow, key=lambda uuid: (uuid not in state.isr, live[uuid].took_s, uuid))[:missing])
    return fit


def _note(m: Memory, reign: Reign, s: Sight, r: Rules, live: dict[str, MemberReport]) -> Note | None:
    """Return the note that has to be on disk first, None if it is there: which members may be in sync by the key from
    now on. It is written before that is true, and before the leader stops waiting for others, so that a restored key,
    and a leader elected by it, are recognised."""
    if s.known is None:
        return None
    may = awaited_by(m, r.uuid) | {r.uuid}
    if not r.synchronous:
        may |= _reaching(live, s, r.max_lag)
    if (s.known.epoch, s.known.may, s.known.led) == (reign.state.epoch, may, True):
        return None
    return Note(Known(reign.state.epoch, reign.state.beat, may, True))


def _reaching(live: dict[str, MemberReport], s: Sight, lag: int) -> set[str]:
    """Return the members that hold the whole log up to this epoch and lack at most `lag` of the published bytes."""
    least = max(s.health.published - lag, s.epoch_start)
    return {uuid for uuid, report in live.items() if report.durable >= least}


def _refusal(uuid: str, state: SetState, live: dict[str, MemberReport], r: Rules) -> str:
    """Return why there will be no switch to this member, "" if there may be one."""
    if uuid == r.uuid:
        return "this member leads already"
    if uuid not in state.isr or uuid not in live:
        return "that member is not in sync: it may not lead"
    return ""


def _resign(m: Memory, state: SetState, s: Sight, successor: str) -> _Turn:
    assert m.reign is not None
    floor = max(state.floor, s.health.published)
    after = replace(state, leader=None, floor=floor, beat=state.beat + 1, nonce=s.nonce, successor=successor)
    return _send(m, Swap("resign", after, m.reign.revision))


def _send(m: Memory, swap: Swap) -> _Turn:
    return m._replace(pending=Pending(swap)), (swap,)


def _again(m: Memory, pending: Pending, now: float) -> tuple[Act, ...]:
    """Repeat the swap whose outcome is unknown, unchanged, when it is due; no other swap may be sent before."""
    return (pending.swap,) if now >= pending.again else ()


# --- all others


def _serve(m: Memory, now: float, s: Sight, r: Rules) -> _Turn:
    if s.role == "leader":
        return m, (Fence(m.why),)
    if m.pending is not None:
        return m._replace(why="the leader store takes no writes"), _again(m, m.pending, now)
    key = m.key
    if key is None:
        return m._replace(role=s.role, why="the leader store was not read yet"), ()
    kind = s.wish.kind if s.wish is not None else ""
    if kind == "resign":
        return m._replace(run_at=None), (Answer(True, "this member does not lead"),)
    if not s.me.slot:
        return m._replace(role="fenced", why="it has no slot in the leader store yet"), ()
    foreign = key.state is not None and bool(s.set_id and key.state.id) and key.state.id != s.set_id
    if foreign:
        # Its epochs and offsets look like this set's but mean other bytes: nothing may be cut, and nothing adopted.
        why = "the key in the leader store is another set's of the same name: is haStore the right one?"
        return m._replace(role="frozen", why=why, run_at=None), (Answer(False, why),) if kind else ()
    frozen = _frozen(m, key, s, r)
    if frozen:
        if kind == "adopt" and s.cluster == m.cluster and not s.replaced:
            return _campaign(_candidate(m, now, "adopted"), now, s, r, key, forced=True)
        m = m._replace(role="frozen", why=frozen, run_at=None)
        return m, (Answer(False, frozen),) if kind else ()
    state = key.state
    if state is None:
        if r.bootstrap:
            fuller = sum(other.end > s.health.end for uuid, other in s.others.items() if uuid != r.uuid)
            if fuller and kind != "adopt":
                why = f"{fuller} of the other members have a longer log: begin the set there, or adopt here"
                return m._replace(role="frozen", why=why, run_at=None), (Answer(False, why),) if kind else ()
            return _campaign(_candidate(m, now, "bootstrap"), now, s, r, key, forced=bool(fuller))
        return m._replace(role="fenced", why="the set has no key: one member has to bootstrap it", run_at=None), ()
    if state.id and not s.set_id:
        return m, (Join(state.id),)
    if state.epoch > s.seen:
        return m, (See(state.epoch),)
    if s.known is not None and not (s.known.led and s.known.epoch == state.epoch):
        seen = Known(state.epoch, state.beat, frozenset(state.isr))
        if (s.known.epoch, s.known.may) != (seen.epoch, seen.may):
            return m, (Note(seen),)
    if kind == "adopt":
        return m, (Answer(False, "the key is sound: there is nothing to adopt"),)
    if kind == "switch":
        assert s.wish is not None
        done = s.wish.uuid == (state.leader.uuid if state.leader is not None else state.successor)
        return m, (Answer(done, "it resigned" if done else "this member does not lead"),)
    vacant = _vacant(m, key, now, s, r, state)
    unfit = _unfit(s, r, state)
    if kind == "force" and not vacant:
        return m, (Answer(False, "the set has a leader, or one may still be elected"),)
    if vacant and kind == "force":
        m = _candidate(m, now, f"forced: {vacant.removeprefix('forced: ')}")
        return _campaign(m, now, s, r, key, forced=bool(unfit))
    if vacant and not unfit:
        return _campaign(_candidate(m, now + _delay(s, r, state), vacant), now, s, r, key)
    m = m._replace(run_at=None)
    if state.leader is None or state.leader.uuid == r.uuid:
        return m._replace(role="fenced", why=unfit or "nobody leads"), ()
    return _follow(m, s, r, state, state.leader)


def _frozen(m: Memory, key: Read, s: Sight, r: Rules) -> str:
    """Return why the key cannot be believed, so that only the operator may go on; "" if it can."""
    if s.replaced or (m.cluster and s.cluster and s.cluster != m.cluster):
        return "another leader store answers than before, or an older state of it: adopt it"
    if key.absent:
        return "the set's key is gone from the leader store" if s.epoch or s.seen else ""
    if key.state is None or key.state.set != r.set:
        return "the key in the leader store is not this set's"
    if key.state.epoch < s.seen:
        return f"the leader store knows epoch {key.state.epoch}, this member has seen {s.seen}: was it restored?"
    return _put_back(key.state, s.known) if s.known is not None else ""


def _put_back(state: SetState, known: Known) -> str:
    """Return why the key must be older than what this member knows of it, "" if it need not be.

    A leader that went on alone acknowledged messages that no other member has. With a copy of the store from before,
    a member without them can be elected, and they would be cut off here.
    """
    if state.epoch == known.epoch and state.beat < known.beat:
        return f"the leader store holds an older state of epoch {state.epoch} than this member knows: was it restored?"
    if not known.led or state.epoch <= known.epoch:
        return ""
    later = [one for one in state.elections if one.epoch > known.epoch]
    if not later or (len(later) == len(state.elections) == MAX_ELECTIONS):
        return ""
    first = min(later, key=lambda one: one.epoch)
    if first.uuid in known.may or first.lost_bound >= 0:  # the operator answered for it
        return ""
    return (
        f"epoch {first.epoch} began at {first.start} with {first.uuid}, which was not in sync when this member led "
        f"epoch {known.epoch}: the leader store was restored, and this member has acknowledged what the set lacks"
    )


def _follow(m: Memory, s: Sight, r: Rules, state: SetState, leader: Leader) -> _Turn:
    in_sync, stream = r.uuid in state.isr, s.stream
    m = m._replace(role="in-sync" if in_sync else "follower", why=stream.why)
    if s.following != (leader.uuid, state.epoch):
        return m, (Follow(leader, state.epoch),)
    if m.relay:
        return m._replace(relay=False), (Relay(leader, r.relay),)
    if stream.stranger:
        why = "its log has no epoch in common with the leader's"
        if in_sync:
            return m._replace(role="frozen", why=f"{why}, although it is in sync by the key"), ()
        if stream.fuller:
            # The set was begun at the wrong member. A person decides whose messages count.
            return m._replace(role="frozen", why=f"{why}, and holds more: nobody sets it aside unasked"), ()
        return m._replace(role="stranger", why=why), (SetAside(why),)
    if stream.unplaced:
        if in_sync or stream.copied:  # the leader does not wait for it long
            return m, ()
        return m._replace(role="stranger", why=stream.unplaced), (SetAside(stream.unplaced),)
    if 0 <= stream.cut_at < s.health.end:
        return m, (Cut(stream.cut_at, leader, state.epoch),)
    return m, ()


# --- elections


def _vacant(m: Memory, key: Read, now: float, s: Sight, r: Rules, state: SetState) -> str:
    """Return why a leader has to be elected, "" if none has to be."""
    unchanged = key.at - m.since
    if m.run_at is not None and s.closed_at >= 0:
        return m.why  # found for this revision; with the stream closed nothing more is heard of the leader
    if state.leader is None:
        mine = state.successor in ("", r.uuid)
        return "the leader resigned" if mine or unchanged >= r.elect_after else ""
    if state.leader.uuid == r.uuid:
        return "this member led before it was restarted or fenced"
    silent = not r.synchronous or now - s.stream.heard_at >= _HEARD_S
    if silent and unchanged >= r.elect_after and m.reads >= _READS:
        return f"the leader was silent for {unchanged:.1f} s"
    asked = s.following == (state.leader.uuid, state.epoch)
    if r.synchronous and asked and s.stream.refused and not s.stream.leader:
        return "the leader's ports are closed"
    return ""


def _unfit(s: Sight, r: Rules, state: SetState) -> str:
    """Return why this member may not be elected, "" if it may."""
    health = s.health
    end = s.closed_at if s.closed_at >= 0 else health.end
    if r.uuid not in state.isr:
        return "this member is not in sync: it may not lead"
    if end < state.floor - (0 if r.synchronous else r.max_lag) or end < s.epoch_start:
        return "this member's log ends before what was acknowledged"
    if not health.electable:
        return health.why_not
    if not health.alive:
        return "its disk or its I/O stands still"
    if any(other.seen > state.epoch for other in s.others.values()):
        return "another member has seen a higher epoch: was the leader store restored?"
    return ""


def _delay(s: Sight, r: Rules, state: SetState) -> float:
    """Return the seconds to wait before being a candidate, by the announced logs of the members in sync: any of them
    may lead. A member that has deleted less, on a disk with more room, can show more, and comes first; then the one
    whose log reaches furthest, since it leaves the least to send again."""
    own = s.others.get(r.uuid, Other(s.seen, s.health.end, s.health.begin))

    def rank(uuid: str, one: Other) -> tuple[int, int, str]:
        return -one.begin, one.end, uuid

    ahead = (u for u in state.isr if u in s.others and rank(u, s.others[u]) > rank(r.uuid, own))
    return _RANK_S * sum(1 for _ in ahead) + _RANDOM_S * s.random


def _candidate(m: Memory, run_at: float, why: str) -> Memory:
    """Return the memory of a candidate, whose turn comes at `run_at` if it was none before."""
    return m._replace(role="candidate", why=why, run_at=run_at if m.run_at is None else m.run_at)


def _campaign(m: Memory, now: float, s: Sight, r: Rules, key: Read, forced: bool = False) -> _Turn:
    """Wait for this candidate's turn, close the stream, and only then request the epoch."""
    assert m.run_at is not None
    if now < m.run_at:
        return m, ()
    if s.closed_at != s.health.end or s.health.kept < s.closed_at:
        return m, (CloseStream(),)
    before = key.state
    known = [s.seen, before.epoch if before is not None else 0]
    ends = [before.floor if before is not None else 0]
    if forced:
        known += [other.seen for other in s.others.values()]
        ends += [other.end for other in s.others.values()]
    epoch, lost = max(known) + 1, max(0, max(ends) - s.closed_at) if forced else -1
    election = Election(epoch, r.uuid, s.closed_at, s.wall_ms, m.why, lost)
    after = SetState(
        set=r.set,
        epoch=epoch,
        leader=s.me,
        isr=(r.uuid,),
        floor=min(before.floor, s.closed_at) if before is not None else 0,
        beat=before.beat + 1 if before is not None else 0,
        nonce=s.nonce,
        id=before.id if before is not None else s.set_id or s.nonce,
        elections=((*before.elections, election) if before is not None else (election,))[-MAX_ELECTIONS:],
    )
    return _send(m._replace(cluster=s.cluster), Swap("elect", after, None if key.absent else key.revision, forced))
