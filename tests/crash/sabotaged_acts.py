"""Faults put into what administrators and producers do with messages that wait, are timed or half: see sabotage.py."""

from __future__ import annotations

from pathlib import Path

from appliance.engine.broker.delays.settled import How, Settled
from appliance.engine.broker.timers import early
from tests.crash.life import Life

# --- delayed messages


def settle_first(life: Life) -> None:
    """A message is settled before its copy is in the log."""
    acts = life.acts
    append, settle = acts._append, acts._settled.settle

    def settle_then_append(copies, work, ended, claimed):
        settle(
            [
                Settled(
                    one.chosen.level,
                    one.chosen.queue_offset,
                    one.record.physical_offset,
                    one.record.store_time_ms,
                    How.DELIVERED,
                )
                for one in work.values()
            ]
        )
        return append(copies, work, ended, claimed)

    acts._append = settle_then_append


def do_not_wait(life: Life) -> None:
    """Do not wait until the log is durable."""
    life.acts._durable = lambda end: True


def forget_the_sync(life: Life) -> None:
    """The list of what was settled is written, not synced."""
    disk, sync = life.disk, type(life.disk).fdatasync

    def fdatasync(fd):
        if Path(disk._open[fd][1]).name.startswith("settled-delays"):
            return
        sync(disk, fd)

    disk.fdatasync = fdatasync


def hold_everything(life: Life) -> None:
    """Take one message too many as held after the file is read at a start."""
    holds = life.settled.holds
    life.settled.holds = lambda level, offset: holds(level, offset) or holds(level, offset - 1)


# --- timed messages


def mark_first(life: Life) -> None:
    """The mark is in the log before the copy."""
    acts = life.acts
    do = acts._do

    def mark_and_do(work, ended, claimed):
        marks = {n: early.mark_of(one.topic, one.unique_key, one.timed.out_ms, 1) for n, one in work.items()}
        acts._append(marks, work, {}, dict(claimed))
        do(work, ended, claimed)

    acts._do = mark_and_do


def answer_at_once(life: Life) -> None:
    """A recall is answered when it is staged."""
    appends = life.appends
    put = appends.put

    def answer_and_put(message, reply_to):
        if message.body == b"0":
            life.disk.mark(("kept", f"settled {message.unique_key}"))
        put(message, reply_to)

    appends.put = answer_and_put


def mark_another(life: Life) -> None:
    """The mark names another time."""
    make = early.mark_of
    life.acts._do = lambda work, ended, claimed: _do_with(
        life,
        lambda topic, key, out, *rest, **named: make(topic, key, out + 1000, *rest, **named),
        work,
        ended,
        claimed,
    )


def _do_with(life, make, work, ended, claimed):
    kept, early.mark_of = early.mark_of, make
    try:
        type(life.acts)._do(life.acts, work, ended, claimed)
    finally:
        early.mark_of = kept


# --- transactions


def forget_the_log(life: Life) -> None:
    """Do not look for messages that a crash left without op message."""
    rebuild = life.rebuild

    def blind():
        found = rebuild()
        found._speaking = lambda begin: iter(())
        return found

    life.rebuild = blind


def save_early(life: Life) -> None:
    """The offsets of CID_RMQ_SYS_TRANS do not wait for the log."""
    save = life.checks._save

    def hasty():
        life.checks._progress = (0, *life.decisions.progress())
        save()

    life.checks._save = hasty


def acknowledge_early(life: Life) -> None:
    """One that is rolled back is acknowledged before its op message is there."""
    decisions = life.decisions
    end_tick, ticks = decisions.end_tick, [0]

    def late():
        life.store.tick.acks += decisions._rolled_back
        decisions._rolled_back = []
        ticks[0] += 1
        if ticks[0] % 10 == 0:
            end_tick()

    decisions.end_tick = late


def op_first(life: Life) -> None:
    """The op message is staged before the copy, and another tick holds that."""
    decisions = life.decisions
    stage = decisions._stage

    def late(half, place, properties, sys_flag, reply_to):
        decisions._put_op(half.record.queue_offset)
        type(life.store).end_tick(life.store)
        return stage(half, place, properties, sys_flag, reply_to)

    decisions._stage = late


def keep_the_old_place(life: Life) -> None:
    """A half that was put back stays open where it lay."""
    put_back, halves = life.decisions.put_back, life.halves

    def twice(half, checks, waited):
        done = put_back(half, checks, waited)
        halves.open(half.record.queue_offset, 0, checks)
        return done

    life.decisions.put_back = twice


DELAY_ACT_SABOTAGES = [settle_first, do_not_wait, forget_the_sync, hold_everything]
TIMER_ACT_SABOTAGES = [mark_first, do_not_wait, answer_at_once, mark_another]
TRANSACTION_SABOTAGES = [forget_the_log, save_early, acknowledge_early, op_first, keep_the_old_place]
