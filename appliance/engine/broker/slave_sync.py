"""Copies of a master's tables on a slave: topics, groups, offsets, progress of delays and timers (21, 201, 43, 45, 60),
and the schemas of topics.

The slave asks again and again, and the master's tables replace those here. Follows RocketMQ `SlaveSynchronize`, which
keeps offsets that the master does not have: a group that was deleted and made again would skip messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..errors import ConnectError, FrameError, RefusedRequest, RemotingError
from ..fastjson import encode_pretty, loads
from ..json_file import save_json_atomically
from ..loop_calls import run_on_loop
from ..named_tuple import NamedTuple
from ..protocol.codes import RequestCode, ResponseCode
from ..protocol.command import RemotingCommand
from ..protocol.names import CHECK_GROUP
from ..remoting.client import RemotingClient
from ..remoting.event_loop import EventLoop
from ..replication.log_clock import LogClock
from ..replication.log_copy import read_last_record
from ..service_thread import ServiceThread
from ..store.message_store import MessageStore
from ..store.retention.deleted_topics import Begin, Deletion
from .config_table import ConfigTable
from .delays.progress import FILE_NAME as DELAY_PROGRESS
from .delays.settled import SettledDelays
from .offsets import LATELY_MOVED, QueueOffsets, is_brokers_own
from .processors.slave_tables import CLOCK_MS
from .role import NO_TIES, Ties
from .schema_copies import FILE as SCHEMAS_FILE
from .schema_copies import SchemaCopy
from .tables import Tables
from .timers.apache_files import checkpoint_path, copied_checkpoint, done_of_fields
from .topic_places import END, LEAVING, MOST_TOPICS, SETTLED, decode_ends, decode_places, differences, not_deleted

if TYPE_CHECKING:
    from ..store.retention.purged_queues import Places
    from .topic_places import TopicPlaces

T = TypeVar("T")
logger = logging.getLogger(__name__)

#: Period of the rounds. Apache's slaves ask for timers in this period, and for the rest once a minute: all of it is
#: little.
PERIOD_S = 3.0
ASK_MS = 3000
#: Offsets that are taken over in one turn of the I/O thread.
_OFFSETS_A_TURN = 2000
#: Time that reported progress waits for this log to come as far, with a look each LOOK_S; after it the next round asks
#: again.
RIPE_S, LOOK_S = 0.3, 0.01
#: Exceptions that a step may raise; the last four mean that an answer is malformed.
FAILURES = (RemotingError, FrameError, RefusedRequest, OSError, ValueError, KeyError, TypeError, AttributeError)
#: Bytes of a master's answer to 60.
TIMER_BYTES = 56


class Pace(NamedTuple):
    """thread: the name of the thread. period_s: of its rounds. ask_ms: time-out of a request, connecting included."""

    thread: str
    period_s: float
    ask_ms: int


SLAVES_PACE = Pace("sync-from-master", PERIOD_S, ASK_MS)


class SlaveSync(ServiceThread):
    """The thread `sync-from-master`. Owns: the connection for requests to the master."""

    def __init__(
        self,
        master: Callable[[], str],
        find_master: Callable[[], None],
        tables: Tables,
        loop: EventLoop,
        store: MessageStore,
        settled: SettledDelays | None = None,
        pace: Pace = SLAVES_PACE,
        ties: Ties = NO_TIES,
    ) -> None:
        """master: returns its address; "" while it is not known, and while no stream from it runs. find_master: has
        name servers asked for it.
        settled: what was handled early of delayed messages, to be copied as well. ties: how this broker proves itself,
        and the copying of users."""
        super().__init__(pace.thread, loop.clock)
        # Constant after construction.
        self._period_s = pace.period_s
        self._ask_ms = pace.ask_ms
        self._master = master
        self._find_master = find_master
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._loop = loop
        self._settled = settled
        self._store = store
        self._store_dir = store.paths.root
        self._disk = store.disk
        # Owned by this thread; `request_stop` ends a call of the client's that waits.
        self._client: RemotingClient | None = None
        self._greeting = ties.greeting()
        self._connect = ties.guard.connect
        self._users = ties.copy_users() if ties.copy_users is not None and self._greeting is not None else None
        self._saved: dict[Path, bytes] = {}
        self._schemas = SchemaCopy(store.paths.own / SCHEMAS_FILE, store.disk)
        # Number of this master's notes of deletions that are known, -1: none. _ends: where its log ended, and the ends
        # of queues that have no message here; None before they were asked for.
        self._seen = -1
        #: The number of the purges that are done here as well, -1: none.
        self._purged = -1
        #: Where the last answer about delayed messages ended; and one that waits for this log, with the end of the
        #: master's.
        self._settled_to = "0:0"
        self._settled_next: tuple[str, bytes, int] | None = None
        self._ends: tuple[int, list[Deletion]] | None = None
        self._ends_taken = False
        #: Topics whose deletion was taken over, until their next queues begin behind it: a round may end in between.
        self._to_begin: dict[str, None] = {}
        #: Topics that were deleted here, but not at the master.
        self.not_deleted: dict[str, Mapping[int, int]] = {}
        #: The failure of the last round; None if it had none. Read by any thread.
        self.failure: str | None = None
        #: End of the master's log when it was last asked for, None before that; and the ends seen, with times.
        self.master_end: int | None = None
        self.master_log = LogClock()

    def request_stop(self) -> None:
        super().request_stop()
        client = self._client
        if client is not None:
            client.hang_up()  # a master that does not answer must not delay the stop

    def run(self) -> None:
        while not self.stopped:
            address = self._master()
            if not address:
                self._find_master()
            else:
                self.work(address)
            self.rest(address)
        if self._client is not None:
            self._client.close()

    def rest(self, address: str) -> None:
        """Wait for the next round. address: of the master, "" while it is not known."""
        self.wait(self._period_s)

    def _on_loop(self, job: Callable[[], object]) -> None:
        run_on_loop(self._loop.call_soon, job, lambda: self.stopped)

    def steps(self) -> tuple[Callable[[str], None], ...]:
        """Return the steps of a round."""
        return (
            self._take_topics,
            self._look_at_log,
            self._take_tables,
            self._take_offsets,
            self._take_delays,
            self._take_timers,
            self._take_schemas,
        )

    def work(self, address: str) -> None:
        """Do one round. A step that fails is logged once, and tried again in the next."""
        failure = None
        for step in self.steps():
            if self.stopped:
                return
            try:
                step(address)
            except FAILURES as error:
                failure = f"{step.__name__.rpartition('_')[2]}: {error or type(error).__name__}"
                if isinstance(error, RemotingError):
                    break
        if failure is not None and failure != self.failure:
            logger.warning("replication: tables of the master=%s not taken over: %s", address, failure)
        self.failure = failure

    def _ask(self, address: str, code: int) -> bytes:
        return bytes(self._ask_whole(address, code).body)

    def _ask_whole(self, address: str, code: int) -> RemotingCommand:
        answer = self._invoke(address, RemotingCommand(code))
        if answer.code != ResponseCode.SUCCESS:
            raise ValueError(f"the master answers {code} with {answer.code}: {answer.remark}")
        return answer

    def _invoke(self, address: str, request: RemotingCommand) -> RemotingCommand:
        if self._client is None or self._client.address != address:
            if self._client is not None:
                self._client.close()
            self._client = RemotingClient(address, self._ask_ms, self.clock, greet=self._meet, connect=self._connect)
        if self.stopped:
            raise ConnectError("nobody is asked any more")
        answer = self._client.invoke_sync(request, self._ask_ms)
        if self._master() != address:
            raise ConnectError("the stream has ended, and another process may have answered")
        return answer

    def _meet(self, call: Callable[[RemotingCommand], RemotingCommand], channel: bytes) -> None:
        """Greet the process at the end of a new connection, and have it show the last record that is here.

        While this side believes that the stream runs, an empty machine may have taken the master's place, and its
        address. Raises ConnectError.
        """
        if self._greeting is not None:
            self._greeting(call, channel)
        offset, ours = read_last_record(self._store)
        until = self.clock.monotonic() + RIPE_S
        while offset >= 0:
            answer = call(RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields={"offset": str(offset)}))
            if answer.code == ResponseCode.SUCCESS and bytes(answer.body) == ours:
                return
            # A master that waits for slaves may show it a moment later.
            if answer.code == ResponseCode.SUCCESS or self.stopped or self.clock.monotonic() >= until:
                if answer.code != ResponseCode.SUCCESS and self._is_behind(call):
                    return
                raise ConnectError(f"it does not have the record at {offset} that is the last one here")
            self.wait(LOOK_S)

    def _is_behind(self, call: Callable[[RemotingCommand], RemotingCommand]) -> bool:
        """True if the process at the end of a connection does not show the last record here yet, and is the master
        nevertheless. Raises ValueError."""
        return False

    def _take_topics(self, address: str) -> None:
        """Copy the topics; from a RocketBox master also their deletions, which go first: no table contains them."""
        code, store = RequestCode.ROCKETBOX_TOPIC_PLACES, self._store
        needs = store.cleaner.leaders_needs
        known = {"seen": str(self._seen), "purged": str(self._purged), LEAVING: str(needs.wanted)}
        answer = self._invoke(address, RemotingCommand(code, ext_fields=known))
        if answer.code != ResponseCode.SUCCESS:  # an Apache broker
            needs.told(None)
            self._take_table(self._topics, loads(self._ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)))
            return
        told = decode_places(bytes(answer.body))
        # Copies of the messages that waited there have to be here first.
        needed = needs.told(told.free, told.end)
        if needed is not None and self._comes_to(needed, lambda: store.log.durable):
            needs.reached()
        deleted = store.files.deleted_topics
        first = self._seen < 0
        below, ends = deleted.load_all() if first or told.deletions else ({}, {})
        late = deleted.load_late() if told.deletions else {}
        if first:
            self.not_deleted = self._not_removed(told, not_deleted(told, below, ends, store.log.min_offset))
            if self.not_deleted:
                self.on_not_deleted(self.not_deleted)
        news = differences(told, {**below, **{topic: deleted.below(topic) for topic in late}}, ends)
        if news:
            if not self._comes_to(1, lambda: int(self._may_begin_behind(news))):
                # The next round asks again; until then the topics here are not those of the log's end.
                raise ValueError("a deleted topic has messages that are not shown here yet")
            store.take_deletions(news)
            self._to_begin.update(dict.fromkeys(deletion.topic for deletion in news))
            for deletion in news:
                if deletion.below:
                    self._offsets.remove_topic(deletion.topic)
            logger.info("replication: deletions taken over from the master: %s", [one.topic for one in news[:20]])
        self._seen = told.seen
        self._take_table(self._topics, told.topics)
        self._topics.make_durable()
        if self._to_begin:
            # The table shows no change of a topic that was made again as it was.
            names = [topic for topic in self._to_begin if self._topics.get(topic) is not None]
            self._on_loop(lambda: store.begin_queues(names))
            self._to_begin.clear()
        has_purged = self._take_purged(told.purged)
        self._take_users(address)
        if told.with_groups:
            self.take_counted(address, told.changes)
        has_settled = self._take_settled(address)
        if self.not_deleted:
            return  # this broker shows less than the master until the queues are there again
        names = [config.topic_name for config in self._topics.all()]
        if (not told.log_begin or self._take_ends(address, names)) and has_settled and has_purged:
            self.on_taken(told.changes)

    def _may_begin_behind(self, deletions: list[Deletion]) -> bool:
        """False while a queue that has messages of a deleted topic and of the next one does not show the former yet: it
        cannot begin behind its end, and would show them later."""
        return not any(
            queue.max_offset < begin.offset < queue.next_offset
            for deletion in deletions
            for queue in self._store.queues.of_topic(deletion.topic)
            if (begin := deletion.ends.get(queue.queue_id)) is not None
        )

    def _not_removed(self, told: TopicPlaces, topics: list[str]) -> dict[str, Mapping[int, int]]:
        """Return topics that were deleted here and not at the master, and those that were purged here and not there,
        with the master's notes on purged queues."""
        files, log = self._store.files, self._store.log
        if told.purged is None or not files.has_purged():
            return {topic: {} for topic in topics}
        from ..store.retention.purged_queues import not_purged

        theirs = told.purged[1]
        found = not_purged(theirs, files.purged_queues.places, max(told.log_begin, log.min_offset))
        return found | {topic: theirs.get(topic, {}) for topic in topics}

    def _take_purged(self, told: tuple[int, Places] | None) -> bool:
        """Purge what the master has purged. True if none of that is missing.

        A note waits until this log has the purged messages: were it made before, and the log went on without the
        master's, it would hide others.
        """
        if told is None:
            return True
        number, places = told
        end = max((place for queues in places.values() for place in queues.values()), default=0)
        if not self._comes_to(end, lambda: self._store.published):
            return False
        if places:
            self._store.cleaner.purge(places)
            logger.info("replication: purged queues of %d topics as at the master", len(places))
        self._purged = number
        return True

    def _take_users(self, address: str, wait_ms: int = 0) -> bool:
        """Copy users and policies; True if some have changed. After the topics, whose answer counts changes that must
        be here, too. wait_ms: how long the master may wait for a change."""
        users, greeting = self._users, self._greeting
        if users is None or greeting is None:
            return False
        return users.take(lambda request: self._invoke(address, request), lambda: greeting.session, wait_ms)

    def _take_settled(self, address: str) -> bool:
        """Copy which delayed messages the master handled before they were due: delivery steps over them here, should
        this broker become the master. True if none of that is missing.

        They wait until this log, durably, has what the master's had by then. It has the copies that were stored in
        their place, which the next master may lack; and no other message can come to the place of one of them.
        """
        while self._settled is not None and not self.stopped:
            if self._settled_next is None:
                request = RemotingCommand(RequestCode.ROCKETBOX_TOPIC_PLACES, ext_fields={SETTLED: self._settled_to})
                answer = self._invoke(address, request)
                if answer.code != ResponseCode.SUCCESS:
                    raise ValueError(f"delayed messages that were handled early: {answer.remark}")
                fields = answer.ext_fields or {}
                if SETTLED not in fields:  # an older version
                    return True
                self._settled_next = fields[SETTLED], bytes(answer.body), int(fields[END])
            place, records, end = self._settled_next
            if records:
                if not self._comes_to(end, lambda: self._store.log.durable):
                    return False
                self._settled.take_copies(records)
            self._settled_to, self._settled_next = place, None
            if not records:
                return True
        return True

    def _take_table(self, table: ConfigTable, document: Any) -> None:
        if table.take_copy(document):
            logger.info("replication: %s taken over from the master", table.table)

    def take_counted(self, address: str, changes: int) -> None:
        """Called with the number of the master's changes, some of which may be of groups and offsets."""

    def on_taken(self, changes: int) -> None:
        """Called when this many changes of topics by administrators are here."""

    def on_not_deleted(self, topics: Mapping[str, Mapping[int, int]]) -> None:
        """Called with topics that were deleted or purged here, but not at the master. topics: with the master's notes
        on their queues that were purged there."""
        logger.warning("replication: deleted or purged here, and at the master not: %s", list(topics)[:20])

    def _take_ends(self, address: str, topics: list[str]) -> bool:
        """Take over where queues go on whose messages had all left the master's log before this one began. True if
        none of that is missing."""
        store = self._store
        if self._ends_taken:
            return True
        if self._ends is None:
            found: list[Deletion] = []
            end = 0
            for at in range(0, len(topics), MOST_TOPICS):
                request = RemotingCommand(
                    RequestCode.ROCKETBOX_TOPIC_PLACES, body=msgspec.json.encode(topics[at : at + MOST_TOPICS])
                )
                end, ends = decode_ends(bytes(self._invoke(address, request).body))
                for topic, queues in ends.items():
                    missing = {
                        queue_id: Begin(offset, end)
                        for queue_id, offset in queues.items()
                        if store.queues.is_unused(topic, queue_id) and store.queues.begin_of(topic, queue_id) < offset
                    }
                    if missing:
                        found.append(Deletion(topic, 0, missing))
            self._ends = end, found
        end, found = self._ends
        if store.published < end and not self._comes_to(end, lambda: store.log.written):
            return False
        still = []
        for one in found:
            # Queues that have come with the log meanwhile stay: `take_deletions` would delete them.
            empty = {number: at for number, at in one.ends.items() if store.queues.is_unused(one.topic, number)}
            if empty:
                still.append(one._replace(ends=empty))
        if still:
            store.take_deletions(still)
            self._on_loop(lambda: store.begin_queues([one.topic for one in still]))
            logger.info("replication: %d topics have queues that go on behind what this log has", len(still))
        self._ends, self._ends_taken = None, True
        return True

    def _comes_to(self, end: int, position: Callable[[], int]) -> bool:
        """True if a position of this log comes to `end` within RIPE_S."""
        until = self.clock.monotonic() + RIPE_S
        while position() < end:
            if self.stopped or self.clock.monotonic() >= until:
                return False
            self.wait(LOOK_S)
        return True

    def _look_at_log(self, address: str) -> None:
        """Ask for the end of the master's log, from which the slave's lag follows."""
        end = log_end_in(self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO))
        self.master_log.saw(end, self.clock.monotonic())
        self.master_end = end

    def _take_tables(self, address: str) -> None:
        self._take_table(self._groups, loads(self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)))

    def _is_ripe(self, address: str) -> bool:
        """True when the progress that the master has just reported may be stored here.

        A master counts work as done whose records may not have come here yet. This broker would rely on that if it
        became the master, and have no copy, so this waits for the log, durably.
        """
        self._look_at_log(address)
        return self._comes_to(self.master_end or 0, lambda: self._store.log.durable)

    def _take_offsets(self, address: str) -> None:
        document = loads(self._ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET))
        table = document.get("offsetTable") if isinstance(document, dict) else None
        if not isinstance(table, dict):
            raise ValueError("there is no offsetTable")
        moved = document.get(LATELY_MOVED)
        gone = _lacking(self._offsets.all(), table)
        found: list[tuple[str, str, int, int]] = []
        by_hand: dict[tuple[str, str], set[int]] = {}
        for key, queues in table.items():
            topic, at, group = key.partition("@")
            if not at or not isinstance(queues, dict):
                continue
            for queue_id, offset in queues.items():
                number = int(queue_id)
                before = self._offsets.get(group, topic, number)
                if type(offset) is not int or before == offset:
                    continue
                found.append((group, topic, number, offset))
                sent = moved[key].get(queue_id) if moved and key in moved else None
                if sent is not None and before < sent <= offset:  # else it was taken over before
                    by_hand.setdefault((group, topic), set()).add(number)
        if any(one[0] == CHECK_GROUP for one in found) and not self._is_ripe(address):
            found = [one for one in found if one[0] != CHECK_GROUP]
        self._in_turns(found, lambda some: self._offsets.take_copies(some, by_hand))
        self._in_turns(gone, self._offsets.forget_copies)
        # Moved here when this broker was the master. What became of them since is in the table; when it is the master
        # again, they are not repeated.
        for moved_here in list(self._offsets.resets):
            self._offsets.pending.end(moved_here)

    def _in_turns(self, offsets: list[T], act: Callable[[list[T]], None]) -> None:
        """Have the loop's thread do something with offsets, a few at a time."""
        while offsets and not self.stopped:
            some, offsets = offsets[:_OFFSETS_A_TURN], offsets[_OFFSETS_A_TURN:]
            self._on_loop(partial(act, some))

    def _take_delays(self, address: str) -> None:
        """Write the file of delays for the case that this broker becomes the master; nothing on a slave reads it."""
        body = self._ask(address, RequestCode.GET_ALL_DELAY_OFFSET)
        document = loads(body)
        if not isinstance(document, dict) or not isinstance(document.get("offsetTable"), dict):
            raise ValueError("there is no offsetTable")
        path = self._store_dir / "config" / DELAY_PROGRESS
        if self._saved.get(path) != body and self._is_ripe(address):
            save_json_atomically(path, encode_pretty(document), self._disk)
            self._saved[path] = body
            if self._settled is not None:
                for level, offset in document["offsetTable"].items():
                    self._settled.trim(int(level), offset)

    def _take_timers(self, address: str) -> None:
        """Do the same with the checkpoint of timers, to which a RocketBox master adds what it has delivered. It adds
        nothing while it has not read all of the timer topic: it delivers nothing before that, so the file here stays
        true. A 4.9 master has no checkpoint."""
        try:
            answer = self._ask_timers(address)
        except ValueError:
            return
        body, fields = bytes(answer.body), answer.ext_fields or {}
        done = done_of_fields(fields)
        if len(body) != TIMER_BYTES or (CLOCK_MS in fields and done is None):
            return
        path = checkpoint_path(self._store_dir)
        news = body[:40] + repr(done).encode()
        if self._saved.get(path) != news and self._is_ripe(address):
            self._disk.replace(path, copied_checkpoint(body, done))
            self._saved[path] = news

    def _take_schemas(self, address: str) -> None:
        if self._schemas.take(lambda request: self._invoke(address, request)):
            logger.info("replication: schemas of topics taken over from the master")

    def _ask_timers(self, address: str) -> RemotingCommand:
        return self._ask_whole(address, RequestCode.GET_TIMER_CHECK_POINT)


def log_end_in(answer: bytes) -> int:
    """Return the end of the log in the body of an answer to 28. Raises ValueError."""
    document = loads(answer)
    table = document.get("table") if isinstance(document, dict) else None
    end = int(table.get("commitLogMaxOffset", "")) if isinstance(table, dict) else -1
    if end < 0:
        raise ValueError("there is no commitLogMaxOffset")
    return end


def _lacking(entries: Iterable[QueueOffsets], table: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str, int]]:
    """Return (group, topic, queue id) of offsets that a master's table lacks; the broker's own stay in any case."""
    found = []
    for entry in entries:
        if not is_brokers_own(entry.group):
            there = table.get(f"{entry.topic}@{entry.group}", {})
            found += [(entry.group, entry.topic, number) for number in entry.queues.copy() if str(number) not in there]
    return found
