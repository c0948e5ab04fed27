"""Faults that the broker once had, a line each, for the world to find; none of its parts knows of them.

`python -m tests.world --plant "words of its name"` runs with the fault: the module is read with the other line. Nothing
on the disk changes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

from tests.mutants.faults import FAULTS

ROOT = Path(__file__).parents[2]
ENGINE = "appliance/engine/"


class Planted(NamedTuple):
    """name: what goes wrong. before: in its file once. seeds: within so many the world finds it.
    of_set: it is a fault of members that fail over, and their stories find it."""

    name: str
    file: str
    before: str
    after: str
    seeds: int = 50
    of_set: bool = False


#: Of the faults that tests are checked with (`tests/mutants`) those that the world finds, too.
OF_TESTS = (
    "a tick is published when the first watermark has reached it, not the last",
    "the log goes on after a failed sync",
    "a send whose sync is slow is answered as stored",
    "what a failed sync left in the page cache is believed",
    "the queues' files are not durable when the position is saved",
    "a key of a file's first second is not found",
    "a lease that ran out keeps its queue",
    "a pull at the queue's end is not woken by the next message",
    "a pull whose tags do not match moves one message too far",
    "a delayed message is delivered a second before it is due",
    "a transaction is decided twice",
    "the last of several tags is not wanted",
)

PLANTED = (
    Planted(
        "a recall handle names a key up to its first blank",
        ENGINE + "protocol/recall_handle.py",
        'words = raw.split(" ", 4)',
        'words = raw.split(" ")[:5]',
    ),
    Planted(
        "after a step back of the clock what waits is called delivered",
        ENGINE + "broker/timers/recall.py",
        "if out_ms < self._claims.reached_ms and self._delivery and not self._delivery.waits(key, out_ms):",
        "if out_ms < self._claims.reached_ms:",
    ),
    Planted(
        "queues of a topic that was made again begin at 0",
        ENGINE + "store/message_store.py",
        "            if queue.next_offset:\n                deletion.ends",
        "            if queue.next_offset < 0:\n                deletion.ends",
    ),
    Planted(
        "an offset beyond the end is kept",
        ENGINE + "broker/offsets.py",
        "return offset if offset <= end else end if self.cuts else -1",
        "return offset",
    ),
    Planted(
        "a search for now believes times that are yet to come",
        ENGINE + "store/time_search.py",
        "if is_ahead(stored_ms, now_ms) and abs(asked_ms - now_ms) < NEAR_MS:",
        "if is_ahead(stored_ms, now_ms) and asked_ms < 0:",
    ),
    Planted(
        "what was written during a sync counts as durable",
        ENGINE + "store/log/commit_log.py",
        "self.durable = max(self.durable, target)",
        "self.durable = max(self.durable, self.written)",
    ),
    Planted(
        "a mark is looked for where the clock is now",
        ENGINE + "broker/timers/delivery.py",
        "self.index.add(found, last, usual_ms, others, stretches)",
        "self.index.add([*found, *(one for some in others.values() for one in some)], last)",
    ),
    Planted(
        "a retry does not count",
        ENGINE + "broker/sending/send_back.py",
        "min(tries + 1, MOST_RETRIES)",
        "tries",
    ),
    Planted(
        "each retry waits as long as the first one",
        ENGINE + "broker/sending/send_back.py",
        "asked.level or _FIRST_LEVEL + tries",
        "asked.level or _FIRST_LEVEL",
    ),
    Planted(
        "a message is tried once more than its limit",
        ENGINE + "broker/sending/send_back.py",
        "record.reconsume_times >= limit",
        "record.reconsume_times > limit",
    ),
    Planted(
        "a consumer that gives up at once gets its message once more",
        ENGINE + "broker/sending/send_back.py",
        "is_dead = asked.level < 0 or",
        "is_dead =",
    ),
    Planted(
        "a queue in order goes to whoever asks last",
        ENGINE + "broker/queue_locks.py",
        "if until > now and other.is_there(now):",
        "if until > now and not other.is_there(now):",
    ),
    Planted(
        "a queue that was given back stays its consumer's",
        ENGINE + "broker/queue_locks.py",
        "lease is not None and lease[0].client_id == client_id",
        "lease is not None and lease[0].client_id != client_id",
    ),
    Planted(
        "BETWEEN leaves out its upper end",
        ENGINE + "filter/sql92/parser.py",
        'second = self._relation(">" if negated else "<=", value, high, token)',
        'second = self._relation(">" if negated else "<", value, high, token)',
    ),
    Planted(
        "with flushes now and then the log is synced once a minute",
        ENGINE + "store/log/flush.py",
        "ASYNC_INTERVAL_S = 0.5",
        "ASYNC_INTERVAL_S = 60.0",
    ),
    Planted(
        "a change of a topic is answered before it is durable",
        ENGINE + "broker/topic_service.py",
        "        if changed:\n            self._topics.wait_durable(ticket)",
        "        if changed:\n            assert ticket",
    ),
    Planted(
        "only the first key of a message is found",
        ENGINE + "store/dispatch.py",
        'return keys + [word for word in words.split(" ") if word]\n',
        'return keys + [word for word in words.split(" ") if word][:1]\n',
    ),
    Planted(
        "an offset that an administrator moved is not in the journal",
        ENGINE + "broker/offset_resets/service.py",
        "            self.journal.append(record)\n",
        "            pass\n",
    ),
    Planted(
        "what waited for its producer is not asked about when one comes",
        ENGINE + "broker/transactions/check.py",
        "if self._halves.unpark(group, self.now_ms() + APPEARED_MS):",
        "if not group:",
    ),
    Planted(
        "what a slave was sent counts as its own",
        ENGINE + "replication/slave_link.py",
        "            self.acknowledged = offset\n",
        "            self.acknowledged = max(offset, self.sent)\n",
    ),
    Planted(
        "a slave reports what it has not synced",
        ENGINE + "replication/log_copy.py",
        "kept = 0 if self._empty else self._store.kept()",
        "kept = 0 if self._empty else self._store.log.written",
    ),
    Planted(
        "a master sends what it may lose",
        ENGINE + "replication/master.py",
        "self._sendable = store.kept",
        "self._sendable = lambda: log.written",
    ),
    Planted(
        "a pull commits where it was not asked to",
        ENGINE + "broker/processors/pull.py",
        "if fields.sys_flag & COMMIT_OFFSET and not moving:",
        "if not moving:",
    ),
    Planted(
        "who is behind the beginning of a queue is sent to its end",
        ENGINE + "store/message_reader.py",
        "GetResult(GetStatus.OFFSET_TOO_SMALL, low,",
        "GetResult(GetStatus.OFFSET_TOO_SMALL, high,",
    ),
    Planted(
        "when one of two clients with one id goes both are gone",
        ENGINE + "broker/clients.py",
        "        return not left\n",
        "        return True\n",
    ),
    Planted(
        "a group of two members ends when one of them goes",
        ENGINE + "broker/clients.py",
        "        if not info.channels:\n",
        "        if len(info.channels) < 2:\n",
    ),
    Planted(
        "cleaning by hand takes what is not old",
        ENGINE + "store/retention/clean_service.py",
        "if now_ms - self._last_written_ms(segments, at, now_ms, spans) < reserved_ms:",
        "if not self._rounds and now_ms - self._last_written_ms(segments, at, now_ms, spans) < reserved_ms:",
    ),
    Planted(
        "what waits in a file that goes is not stored once more",
        ENGINE + "store/retention/clean_service.py",
        "        if not reasons:\n            return end, reasons\n",
        "        if end:\n            return end, reasons\n",
    ),
    Planted(
        "a backup leaves out the last file of the log",
        ENGINE + "backup/making.py",
        "        if kept > 0:\n",
        "        if kept == size:\n",
    ),
    Planted(
        "a backup leaves out the tables of topics and groups",
        ENGINE + "backup/making.py",
        '"lock", "timerwheel",',
        '"lock", "config", "timerwheel",',
    ),
    Planted(
        "a backup leaves out the offsets of groups",
        ENGINE + "backup/making.py",
        'r"queue-ledger-|',
        'r"consumerOffset|queue-ledger-|',
    ),
    Planted(
        "with long polling off a pull is held all the same",
        ENGINE + "broker/processors/pull.py",
        "hold_ms = fields.suspend_ms if config.long_polling_enable else config.short_polling_time_ms",
        "hold_ms = fields.suspend_ms",
        100,
    ),
    Planted(
        "pulls give as many messages as before their limit was changed",
        ENGINE + "broker/open_store.py",
        "max_count_in_memory=store.max_transfer_count_on_message_in_memory,",
        "max_count_in_memory=32,",
    ),
    Planted(
        "a send that no slave has in time is answered as stored",
        ENGINE + "broker/durability.py",
        "code, timeout_ms = ResponseCode.FLUSH_SLAVE_TIMEOUT, slaves.timeout_ms",
        "code, timeout_ms = ResponseCode.SUCCESS, slaves.timeout_ms",
    ),
    Planted(
        "timers run before what has come is read",
        ENGINE + "remoting/event_loop.py",
        "            self.monotonic = monotonic()\n            for fd",
        "            self.monotonic = monotonic()\n            self._run_timers()\n            for fd",
    ),
    Planted(
        "a purge is answered and not noted",
        ENGINE + "store/retention/clean_service.py",
        "                self._files.purged_queues.remember(purge.places, self._log.min_offset)\n",
        "                assert purge.places\n",
    ),
    Planted(
        "a purge leaves the last message",
        ENGINE + "window/topics/purge.py",
        "begin, end, entries[0][0] + 1)",
        "begin, end, entries[0][0])",
    ),
    Planted(
        "a purge up to a time takes all",
        ENGINE + "window/topics/purge.py",
        "queue.max_offset if before_ms is None else reader.offset_at(queue, before_ms)",
        "queue.max_offset",
    ),
    Planted(
        "what waits for a topic that was deleted comes into the next one",
        ENGINE + "broker/delays/levels.py",
        "    return record.physical_offset < deleted.below(topic) or",
        "    return",
    ),
    Planted(
        "an open transaction of a topic that was deleted comes into the next one",
        ENGINE + "broker/transactions/decisions.py",
        "return is_of_deleted(half.record, half.target.topic, self._store.files.deleted_topics)",
        "return False",
        150,
    ),
    Planted(
        "a slave passes over the open half messages that it copies",
        ENGINE + "broker/broker.py",
        "        if self.role.appends:  # a slave knows",
        "        if self.role.appends or self.role.kind is Kind.SLAVE:  # a slave knows",
        150,
    ),
    Planted(
        "a slave does not learn how far delays are",
        ENGINE + "broker/slave_sync.py",
        "        if self._saved.get(path) != body and self._is_ripe(address):\n            save_json",
        "        if not path:\n            save_json",
        150,
    ),
    Planted(
        "a leader acknowledges a record that no other member has",
        ENGINE + "failover/brokers.py",
        "position=limit if self._settings.synchronous else in_time)",
        "position=in_time)",
        of_set=True,
    ),
    Planted(
        "a follower that shows nothing yet shows later what was deleted",
        ENGINE + "broker/slave_sync.py",
        "            if not self._comes_to(1, lambda: int(self._may_begin_behind(news))):",
        "            if not news:",
        150,
        of_set=True,
    ),
    Planted(
        "a follower does not purge",
        ENGINE + "broker/slave_sync.py",
        "        if places:\n            self._store.cleaner",
        "        if not places:\n            self._store.cleaner",
        of_set=True,
    ),
    Planted(
        "a deletion does not wait for the members in sync",
        ENGINE + "broker/topic_service.py",
        "        while not self.all_have(changes):",
        "        while not changes:",
        150,
        of_set=True,
    ),
    Planted(
        "a new leader keeps its number at the name servers",
        ENGINE + "failover/brokers.py",
        "Role(Kind.LEADER, 0, epoch,",
        "Role(Kind.LEADER, self._files.slot, epoch,",
        of_set=True,
    ),
    Planted(
        "a change of a user does not wait for the members in sync",
        ENGINE + "access/parts.py",
        '                    here.topic_service.tell_members("changed")\n',
        "                    assert here\n",
        150,
        of_set=True,
    ),
    Planted(
        "a member keeps users whom the leader does not have",
        ENGINE + "access/book.py",
        "for name in self._users if name not in given}",
        "for name in () if name not in given}",
        150,
        of_set=True,
    ),
    Planted(
        "a member learns no change of a user that is there",
        ENGINE + "access/book.py",
        "                if account == before or (before is None and account.gone):\n",
        "                if before is not None or account.gone:\n",
        of_set=True,
    ),
    Planted(
        "who is over a quota of sends waits as long as it takes",
        ENGINE + "access/brake.py",
        "LONGEST_S = 1.0",
        "LONGEST_S = 60.0",
    ),
    Planted(
        "sends do not count",
        ENGINE + "access/brake.py",
        "            self.sent.take(size, now)\n",
        "            self.sent.take(0, now)\n",
    ),
    Planted(
        "what is pulled does not count",
        ENGINE + "access/brake.py",
        "        self.pulled.take(size, self.brake.loop.monotonic)\n",
        "        self.pulled.take(0, self.brake.loop.monotonic)\n",
    ),
    Planted(
        "a send goes before those of its connection that wait",
        ENGINE + "access/brake.py",
        "        return not (self._sends if is_send else self._others) and not (",
        "        return self._meter is not None and not (",
        100,
    ),
    Planted(
        "a new leader takes no recall into account",
        ENGINE + "broker/timers/delivery.py",
        "                if not skip.holds(timed.out_ms, offset, timed.cancels is not None):\n",
        "                if timed.cancels is None and not skip.holds(timed.out_ms, offset):\n",
        of_set=True,
    ),
    Planted(
        "a member of a set takes what is not old for old",
        ENGINE + "store/retention/clean_service.py",
        "if now_ms - self._last_written_ms(segments, at, now_ms, spans) < reserved_ms:",
        "if now_ms - self._last_written_ms(segments, at, now_ms, spans) < reserved_ms / 1e6:",
        of_set=True,
    ),
    Planted(
        "the next leader does not know which half messages were decided",
        ENGINE + "broker/transactions/decisions.py",
        'store.put(queue, _OP_FIELD, b"%d" % offset,',
        'store.put(queue, _OP_FIELD, b"%d" % (offset + 1_000_000),',
        of_set=True,
    ),
    Planted(
        "of an old leader's tail one epoch too much stays",
        ENGINE + "failover/truncation.py",
        "            return min(end, starts[one.epoch][1])",
        "            return max(end, starts[one.epoch][1])",
        150,
        of_set=True,
    ),
    Planted(
        "a change of topics is noted a minute later",
        ENGINE + "broker/followed.py",
        "        if topics != self._topics or self._clock",
        "        if self._clock",
        300,
    ),
    Planted(
        "requests do not count",
        ENGINE + "access/brake.py",
        "        self.asked.take(1, now)\n        if is_send:\n",
        "        self.asked.take(0, now)\n        if is_send:\n",
    ),
    Planted(
        "work of a client that is over its quota is refused",
        ENGINE + "access/brake.py",
        "        if not one.is_send and kind_of(one.request.code) == CLIENT:\n",
        "        if one.is_send and kind_of(one.request.code) == CLIENT and one.conn.closed:\n",
    ),
    Planted(
        "a user has one connection more than its quota",
        ENGINE + "access/brake.py",
        "len(held) >= most",
        "len(held) > most",
    ),
    Planted(
        "a connection that closed goes on counting",
        ENGINE + "access/brake.py",
        "if held is not None and held.pop(conn, self) is None and not held:",
        "if held is not None and conn not in held and not held:",
    ),
    Planted(
        "a lower quota of connections leaves those that are there",
        ENGINE + "access/brake.py",
        "for conn in list(held)[most:] if most else ():",
        "for conn in list(held)[:0] if most else ():",
    ),
    Planted(
        "an entry that denies allows",
        ENGINE + "access/policies.py",
        "return Verdict(line.entry.decision == ALLOW, line.entry)",
        "return Verdict(bool(line.entry.decision), line.entry)",
    ),
    Planted(
        "default entries go before a user's own",
        ENGINE + "access/policies.py",
        "self._lines = (_in_order(custom), _in_order(default))",
        "self._lines = (_in_order(default), _in_order(custom))",
    ),
    Planted(
        "a slave copies no users",
        ENGINE + "broker/slave_sync.py",
        "        if users is None or greeting is None:\n",
        "        if users is None or greeting is not None:\n",
    ),
    Planted(
        "a schema is answered before it is on the disk",
        ENGINE + "window/topics/schemas.py",
        '        save_json_atomically(self._path, msgspec.json.encode({"schemas": table}), self._disk)\n',
        "        assert self._path\n",
    ),
    Planted(
        "after a kill dead letters are sent again that were sent",
        ENGINE + "broker/replay/run.py",
        "        self.checking = bool(state.targets)\n",
        "        self.checking = False\n",
        100,
    ),
    Planted(
        "a follower takes no schemas over",
        ENGINE + "broker/schema_copies.py",
        "        if told == self._known and self._is_compared:\n            return False\n",
        "        if told:\n            return False\n",
        of_set=True,
    ),
    Planted(
        "a move of offsets is repeated when its broker leads again",
        ENGINE + "broker/slave_sync.py",
        "            self._offsets.pending.end(moved_here)\n",
        "            assert moved_here\n",
        150,
        of_set=True,
    ),
    Planted(
        "the leader of an asynchronous set acknowledges though another may have been elected",
        ENGINE + "failover/brokers.py",
        "return _EVERYTHING if self._clock.steady() <= self.release_until() else -1",
        "return _EVERYTHING",
        150,
        of_set=True,
    ),
    Planted(
        "a subscription counts only if its client's clock is ahead of the one before",
        ENGINE + "broker/clients.py",
        "            elif not _want_the_same(data, known):\n",
        "            elif data.sub_version > known.sub_version:\n",
    ),
    Planted(
        "who comes first takes all leases",
        ENGINE + "shares.py",
        "        return max(self.few - own, 0) + share(left, max(own - self.few, 0))\n",
        "        return max(free, 0)\n",
    ),
    Planted(
        "what an administrator delivers takes out all messages of its key and time",
        ENGINE + "broker/timers/recall.py",
        'TIMER_OF: "" if takes_out < 0 else str(takes_out),',
        'TIMER_OF: "",',
    ),
    Planted(
        "a full disk takes no copies that would let a file go",
        ENGINE + "broker/sending/own_appends.py",
        "with self._store.log.freeing() if batch.frees else nullcontext():",
        "with nullcontext():",
    ),
    Planted(
        "what is due keeps its file on a full disk, and is not delivered",
        ENGINE + "broker/timers/rolling.py",
        'return True if is_far or self._store.log.refused_by("disk") else None',
        "return True if is_far else None",
    ),
    Planted(
        "anybody moves the offsets that are the broker's own",
        ENGINE + "broker/offsets.py",
        "    return group == CHECK_GROUP\n",
        '    return group == ""\n',
    ),
    Planted(
        "a follower does not learn how far its clock is ahead of its leader's",
        ENGINE + "replication/leader_clock.py",
        "            self._steps.stamped(self._begin, ahead_ms, self._log_begin())\n",
        "            assert self._steps\n",
        100,
        of_set=True,
    ),
    *(Planted(one.name, one.file, one.before, one.after) for one in FAULTS if one.name in OF_TESTS),
)


def planted_text(fault: Planted, text: str) -> str:
    """The file with the fault. Raises ValueError when the line is not there once."""
    if text.count(fault.before) != 1:
        raise ValueError(f"{fault.file} has the line of {fault.name!r} {text.count(fault.before)} times")
    return text.replace(fault.before, fault.after)


class _Loader(SourceFileLoader):
    fault: Planted

    def get_code(self, fullname: str) -> CodeType:
        text = planted_text(self.fault, Path(self.path).read_text())
        return compile(text, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, fault: Planted) -> None:
        self._fault = fault

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin != str(ROOT / self._fault.file):
            return None
        loader = _Loader(fullname, spec.origin)
        loader.fault = self._fault
        spec.loader = loader
        return spec


def plant(words: str) -> None:
    """Before the engine is imported."""
    [fault] = [one for one in PLANTED if words in one.name]
    planted_text(fault, (ROOT / fault.file).read_text())
    assert fault.file[:-3].replace("/", ".") not in sys.modules, "the engine is there already"
    sys.meta_path.insert(0, _Finder(fault))
