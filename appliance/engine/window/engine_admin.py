"""EngineAdmin: frozen snapshots out, named commands in.

A method copies a table with one C call, then touches frozen values only. It never locks remoting-io and never has it
build a list (D10, D11); it reads from the disk in the caller's thread. Errors: `errors.AdminError` and its subclasses.
The returned types are in `snapshots.py` here and in each folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..broker.admin_settings import GROUP_SETTINGS, TOPIC_SETTINGS, Setting
from ..broker.offset_resets.targets import Target
from ..errors import InvalidInput
from . import snapshots as s
from .clients import asking_snapshots as asking
from .figures.measurements import Measurement
from .groups import diagnosis_snapshots as diagnosis
from .messages import snapshots as m
from .messages.bodies import view_body
from .messages.draft import draft_of
from .messages.tail import Tail, Wanted
from .offsets.commands import target_of
from .offsets.snapshots import OffsetReset
from .process.retention import Retention
from .replication_window import ReplicationWindow
from .sentences import say
from .topics.views import route_of, settings_of


class EngineAdmin(ReplicationWindow):
    """Any thread. Without the broker role, methods that read or change the broker raise Unavailable."""

    # --- numbers

    def overview(self) -> s.Overview:
        """Return the front page: rates, needs, checks, the groups furthest behind. Made for each call: a page asks for
        it once, and follows `live_frame` from then on."""
        return self._running().overview.snapshot()

    def series(self, name: str, seconds: int = 600, topic: str | None = None, group: str | None = None) -> s.Series:
        """Return a rate over the last `seconds` (the last 598 at most), a point a second, for a chart.

        name: "in", "out" (messages/s), "in_bytes", "out_bytes" (bytes/s) of the broker; "in" or "out" of a topic; "out"
        of a group. NotFound for an unknown topic, InvalidInput for another name.
        """
        return self._running().charts.series(name, seconds, topic, group)

    def measurements(self, seconds: int) -> Iterator[list[Measurement]]:
        """Yield the present figures of the broker, its topics and its groups in short lists; `measurements.py` has the
        names. Rates are of the last `seconds` (at most 590). For one thread, which rests between the lists."""
        return self._running().measurements.take(seconds)

    def live_frame(self) -> tuple[int, bytes]:
        """Return (number, JSON object) of the newest sample: the same bytes for every viewer, encoded once a second.

        `live.py` describes the object; an unknown value is null. Cheap: a stream may call this every 250 ms and send
        when the number has grown. Only the first frame after a pause is made in the caller's thread (10 ms at 2,000
        topics).
        """
        return self._running().live.frame()

    # --- topics

    def look_ahead(self) -> bool:
        """Measure some queues before a list needs them, for a few milliseconds. Return True if there are more. For one
        thread, which rests between its calls."""
        return self._running().look_ahead.step()

    def topics(
        self,
        q: str = "",
        kind: str | None = None,
        show: str = "user",
        sort: str = "name",
        page: int = 1,
        page_size: int = 50,
    ) -> s.Page:
        """Return a page of TopicRow.

        q: part of the name, upper and lower case alike. kind: only this message.type. show: "user", "system", "retry",
        "dlq" or "all". sort: name, kind, queues, messages, in_rate, out_rate, consumers, bytes, oldest; "-" before it
        for the largest first. page_size: 1 to 500. InvalidInput for anything else.
        """
        return self._running().topics.page(q, kind, show, sort, page, page_size)

    def topic(self, name: str) -> s.TopicDetail:
        """Return one topic with its queues, consumers, producers and settings. NotFound."""
        return self._running().topics.detail(name)

    def topic_setting_list(self) -> tuple[Setting, ...]:
        """Return the settings that a topic has: name, default, limits, choices. Works without a broker, too."""
        return TOPIC_SETTINGS

    def topic_settings(self, name: str) -> s.TopicSettings:
        """Return a topic's configuration and its revision. NotFound."""
        return settings_of(self._running().topics.config(name))

    def topic_queues(self, name: str) -> tuple[s.QueueRow, ...]:
        """Return the topic's queues, by id. NotFound."""
        return self._running().topics.queue_rows(name)

    def topic_groups(self, name: str) -> tuple[s.TopicConsumer, ...]:
        """Return the groups that consume the topic, by name. NotFound."""
        return self._running().topics.consumer_rows(name)

    def route(self, name: str) -> s.Route:
        """Return the topic's route as the name server of this process sends it to clients. NotFound; Unavailable if no
        name server runs here."""
        return route_of(self._namesrv, name)

    def create_topic(
        self, name: str, *, force: bool = False, dry_run: bool = False, by: str = "", **settings: Any
    ) -> s.Change:
        """Make a topic; durable and registered with the name servers when it returns (`registered`: which took it).

        settings: those of `topic_setting_list`, with their defaults: kind ("NORMAL", "FIFO", "DELAY", "TRANSACTION";
        "UNSPECIFIED": no message.type), read_queues, write_queues (0 is legal), readable, writable, order, and
        reserve_hours: messages stored longer ago are hidden, though their files stay until all messages in them have
        expired; 0: as long as the broker keeps them. by: the user, for the log. dry_run: the same checks, nothing
        changes. InvalidInput (field), Conflict if the topic exists, Unavailable; Blocked without `force` if there are
        more write queues than read queues: messages sent to the others could not be read.
        """
        return self._changing().topic_commands.create(name, settings, force, dry_run, by)

    def edit_topic(
        self,
        name: str,
        *,
        revision: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        by: str = "",
        **settings: Any,
    ) -> s.Change:
        """Change the settings that are given and not None. As create_topic; also NotFound, Conflict (`revision` is not
        the present one), Blocked without `force` if messages would become unreadable."""
        return self._changing().topic_commands.edit(name, revision, settings, force, dry_run, by)

    def delete_topic(
        self, name: str, *, revision: str | None = None, force: bool = False, dry_run: bool = False, by: str = ""
    ) -> s.Change:
        """Delete a topic, its queues and all groups' offsets of it; its records leave the log when they expire.

        Blocked without `force` when a group has unread messages of it or clients of a consuming group are connected.
        NotFound, Conflict (revision), InvalidInput for a system topic.
        """
        return self._changing().topic_commands.delete(name, revision, force, dry_run, by)

    # --- groups

    def groups(
        self,
        q: str = "",
        system: bool = False,
        online: bool | None = None,
        sort: str = "name",
        page: int = 1,
        page_size: int = 50,
    ) -> s.Page:
        """Return a page of GroupRow.

        system: with the broker's own groups. online: only those with (True) or without (False) connected clients. sort:
        name, lag, lag_time, clients, topics, out_rate, retries, dead_letters; "-" before it for the largest first.
        """
        return self._running().groups.page(q, system, online, sort, page, page_size)

    def group(self, name: str, *, queues: bool = True) -> s.GroupDetail:
        """Return one group: its clients, subscriptions and their conflicts, and the progress of every queue. queues
        False: without the queues, of which `group_queues` returns pages. NotFound."""
        return self._running().groups.detail(name, queues)

    def group_queues(
        self,
        name: str,
        topic: str | None = None,
        q: str = "",
        sort: str = "-lag",
        page: int = 1,
        page_size: int = 50,
    ) -> s.Page:
        """Return a page of QueueNow: the queues of every topic that the group subscribes to or has offsets of, and of
        its retry topic. NotFound.

        topic: only the queues of this topic. q: part of the topic's name. sort: queue, lag, lag_time, committed, end,
        idle; "-" before it for the largest first.
        """
        return self._running().group_now.queues(name, topic, q, sort, page, page_size)

    def group_pace(self, name: str) -> s.GroupPace:
        """Return a group's rates, when it will have caught up, and its lag over the last ten minutes. NotFound."""
        return self._running().group_now.pace(name)

    def group_setting_list(self) -> tuple[Setting, ...]:
        """Return the settings that a consumer group has, as `topic_setting_list`."""
        return GROUP_SETTINGS

    def create_group(self, name: str, *, dry_run: bool = False, by: str = "", **settings: Any) -> s.Change:
        """Make a consumer group; durable when it returns. InvalidInput, Conflict if the group exists.

        settings: those of `group_setting_list`, with their defaults: consume_enable, consume_broadcast_enable,
        consume_message_orderly, retry_queue_nums, retry_max_times.
        """
        return self._changing().group_commands.create(name, settings, dry_run, by)

    def edit_group(
        self, name: str, *, revision: str | None = None, dry_run: bool = False, by: str = "", **settings: Any
    ) -> s.Change:
        """Change the settings that are given and not None. NotFound, Conflict (revision), InvalidInput."""
        return self._changing().group_commands.edit(name, revision, settings, dry_run, by)

    def delete_group(
        self,
        name: str,
        *,
        revision: str | None = None,
        offsets: bool = True,
        force: bool = False,
        dry_run: bool = False,
        by: str = "",
    ) -> s.Change:
        """Delete a group and (offsets=True) its offsets; its retry and dead letter topics stay, `warnings` name them.

        Blocked without `force` if it has unread messages or connected clients. NotFound, Conflict (revision).
        """
        return self._changing().group_commands.delete(name, revision, offsets, force, dry_run, by)

    def clean_up(
        self,
        kind: str,
        *,
        idle_hours: int = 24,
        q: str = "",
        revision: str | None = None,
        dry_run: bool = False,
        by: str = "",
    ) -> s.CleanUp:
        """Delete unused groups, topics or offsets, as `broker/clean_up.py` defines them; durable when it returns.

        kind: "groups" with their empty retry and dead letter topics, "topics", or "offsets" of topics and groups that
        are gone. idle_hours: hours without a sign of use; the count begins at the broker's start at the earliest.
        q: part of the name. InvalidInput, Conflict (revision: something else would be deleted than was shown),
        Unavailable if too many messages wait to find the topics that they are for.
        """
        return self._changing().clean_ups.clean(kind, idle_hours, q, revision, dry_run, by)

    def diagnosis(self, name: str, may_see: Callable[[str], bool] = lambda topic: True) -> diagnosis.Diagnosis:
        """Return what is wrong with a group by the broker's own records, each finding with its numbers.

        The kinds that were looked for and found in order, or could not be judged, are listed as well. `diagnosis.KINDS`
        has the kinds, and the thresholds beside it their reasons. may_see(topic): True if the caller may see a topic's
        messages; messages of other topics are not named. NotFound.
        """
        return self._running().diagnosis.of(name, may_see)

    # --- offsets

    @staticmethod
    def offset_target(
        to: str,
        *,
        at_ms: int | None = None,
        offset: int | None = None,
        by: int | None = None,
        queues: Sequence[int] | None = None,
    ) -> Target:
        """Return the target of `reset_offsets`. to: "earliest", "latest", "time" (at_ms), "shift" (by: number of
        messages, backwards if negative), "offset" (offset, and queues: each of them goes there) or "skip" (the same,
        behind the message at that offset). InvalidInput if an argument that it needs is missing."""
        return target_of(to, at_ms, offset, by, queues)

    def reset_offsets(
        self,
        group: str,
        topic: str | Sequence[str] | None,
        to: Target,
        *,
        queue_id: int | Sequence[int] | None = None,
        revision: str | None = None,
        dry_run: bool = False,
        by: str = "",
    ) -> OffsetReset:
        """Move a group's offsets of a topic, or of several (its %RETRY% topic, too), as one act: all queues or none.
        topic None: all topics that it subscribes to or has offsets of, its %RETRY% topic left out.

        to: `Earliest()`, `Latest()`, `AtTime(ms)`, `Exactly({queue: offset})`, `Skip({queue: offset})`, `Shift(n)` of
        `broker.offset_resets.targets`. queue_id: only this queue, or these. Durable when it returns. Connected members
        get the new offsets at once and start over from there (Java 5.x and C++ within a second, 4.9 and Go within some
        11 s); commits that they send for the time before do not count. The reset is kept for 24 h, for `undo_reset`.
        revision: of the preview; Conflict if there was another reset since, or if other queues or offsets would result.
        The group's own progress does not matter.

        An offset that has expired, or a shift beyond an end, becomes the nearest offset, which the queue's `note` says.
        NotFound (group, topic, queue), InvalidInput (to: outside of the queue; group: it consumes by broadcast),
        Unavailable (a queue's files are being rebuilt), Conflict (also of a `Skip` if the group has gone on).
        """
        return self._changing().offset_commands.reset(group, topic, to, queue_id, revision, dry_run, by)

    def clone_offsets(
        self,
        source: str,
        target: str,
        topic: str | None = None,
        *,
        revision: str | None = None,
        dry_run: bool = False,
        new: bool = False,
        by: str = "",
    ) -> OffsetReset:
        """Set the offsets of `target` to those of `source`, in a topic or in all that `source` has offsets of. As
        `reset_offsets`. new: a preview for a group that is still to be made."""
        return self._changing().offset_commands.clone(source, target, topic, revision, dry_run, new, by)

    def offset_resets(self, group: str) -> tuple[OffsetReset, ...]:
        """Return the resets of a group's offsets in the last 24 h, also those over the wire; newest first. NotFound."""
        return self._running().offset_commands.of_group(group)

    def offset_reset(self, reset_id: int) -> OffsetReset:
        """Return a reset as it is now: each queue's `state` shows if clients have come for it. NotFound; also after
        24 h."""
        return self._running().offset_commands.one(reset_id)

    def undo_reset(
        self, reset_id: int, *, revision: str | None = None, dry_run: bool = False, by: str = ""
    ) -> OffsetReset:
        """Move the queues of a reset, clone or undo back to where they were, as one act of its own.

        `move.before` is where the queue is now; `note` is set if that is not where the reset had moved it. A queue that
        had no offset has none again, unless the group is connected or has gone on from there. NotFound (reset; also
        after 24 h), Conflict (already undone; none of its queues exists now; revision), InvalidInput as
        `reset_offsets`.
        """
        return self._changing().offset_commands.undo(reset_id, revision, dry_run, by)

    # --- clients

    def clients(
        self,
        q: str = "",
        role: str | None = None,
        group: str | None = None,
        sort: str = "client_id",
        page: int = 1,
        page_size: int = 50,
    ) -> s.Page:
        """Return a page of ClientRow, one a connection that sent heartbeats.

        q: part of a client id, address or group. role: "producer" or "consumer". sort: client_id, address, language,
        version, heartbeat, connected.
        """
        if role not in (None, "producer", "consumer"):
            raise InvalidInput("role", say("one_of", field="role", choices="producer, consumer"))
        return self._running().clients.page(q, role, group, sort, page, page_size)

    def client(self, client_id: str) -> tuple[s.ClientRow, ...]:
        """Return the connections of one client id; a client may have several. Empty if none is connected."""
        return tuple(row for row in self._running().clients.all() if row.client_id == client_id)

    def running_info(self, group: str, client_id: str, *, stack: bool = False, by: str = "") -> asking.RunningInfo:
        """Return a connected consumer's report about itself: queues, rates, settings; `stack`: also its thread dump.

        Asks the client and blocks up to 12 s. by: the user, for the log. NotFound (client: it is no connected member
        of the group), Conflict (it is being asked already), Unavailable (its version is too old, it does not answer
        within 10 s, or its answer cannot be read).
        """
        return self._running().asking.running_info(group, client_id, stack, by)

    def consumers_for(self, ref: str, most: int = 200) -> tuple[tuple[str, str, str], ...]:
        """Return (group, client id, address) of the connected consumers that can consume a message: those of groups
        that subscribe to its topic, and of the group that it came back to. Errors as `message`."""
        return self._running().asking.consumers_for(ref, most)

    def consume_directly(self, group: str, client_id: str, ref: str, *, by: str = "") -> asking.DirectConsumption:
        """Have a connected consumer consume one message now, regardless of the group's offsets, which do not change.

        ref: as for `message`. The message may be consumed a second time, so have the user confirm it. by: the user, for
        the log. Errors as `running_info`, and NotFound (message), InvalidInput (ref). After Unavailable the message may
        have been consumed nevertheless.
        """
        return self._running().asking.consume_directly(group, client_id, ref, by)

    # --- messages

    def search(
        self,
        text: str,
        *,
        topic: str | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        cursor: str | None = None,
        limit: int = 50,
        may_see: Callable[[str], bool] = lambda topic: True,
        copies: bool = False,
    ) -> m.SearchPage:
        """Find messages by place (`topic/queue/offset`), offset id, unique id or key, all in one text.

        A text may be several of these at once; all are tried, keys over all topics or in `topic`. A message is one hit
        with the facts of its copies in retry topics, dead letters and system topics; copies: each record is a hit. The
        newest come first. from_ms and to_ms limit the store time, except for a message named by its place. A snapshot:
        `next_cursor` continues with the same text, topic, times and copies. A page ends after 250 ms or 500 records
        (truncated), so an empty page may have a next one. No bodies. may_see(topic): True if the caller may see a
        topic's messages. limit: 1 to 500. A blank text finds nothing. InvalidInput (limit, times, cursor), NotFound
        (topic). `hit.message.offset_id` is a ref for `message`.
        """
        return self._running().search.page(text, topic, from_ms, to_ms, cursor, limit, may_see, copies)

    def message(self, ref: str, story: bool = True) -> m.MessageDetail:
        """Return one message without its body: ref is an offset id, a unique id or `topic/queue/offset`.

        story: also what happened to it and to its copies, and which groups have it; that reads the key index, the files
        of delivery events and the groups' offsets, for less than a second.
        InvalidInput if ref is none of these; NotFound if no message is there (or it has expired).
        """
        parts = self._running()
        return parts.messages.detail(ref, parts.lag.snapshot() if story else None)

    def message_body(self, ref: str, max_bytes: int = 65_536) -> m.BodyView:
        """Return a message's body, decompressed, as JSON, text, hex and base64; at most `max_bytes` (1 MiB) of it.

        Needs the grant to read bodies; the caller checks that. Errors as `message`.
        """
        if not 1 <= max_bytes <= 1 << 20:
            raise InvalidInput("max_bytes", say("out_of_range", field="max_bytes", low=1, high=1 << 20))
        record = self._running().messages.record(ref)[0]
        return view_body(record.body, record.sys_flag, max_bytes)

    def message_bytes(self, ref: str) -> bytes:
        """Return a message's body as stored, for a download. Needs the grant to read bodies."""
        return self._running().messages.record(ref)[0].body

    def message_raw(self, ref: str, dump_bytes: int = 4096) -> m.RawRecord:
        """Return the record in the log, field by field, with a hex dump. It has the body: needs the grant, too."""
        return self._running().messages.raw(ref, dump_bytes)

    def message_draft(self, ref: str, body: bool = True) -> m.MessageDraft:
        """Return the input fields to send a message like this one. body: include the body, which needs the grant to
        read bodies. Errors as `message`."""
        return draft_of(self._running().messages.record(ref)[0], body)

    def tail(
        self,
        topic: str,
        *,
        tags: str = "",
        key: str = "",
        expression: str = "",
        one_in: int = 1,
        per_second: int = 50,
        body_chars: int = 0,
        dry_run: bool = False,
    ) -> Tail | None:
        """Watch the messages that are published in a topic from now on: call `look` from one thread, some times a
        second.

        No offset is committed. tags: a consumer's tag expression ("A || B"). key: one of the message's keys, exactly.
        expression: SQL92 over its properties. one_in: show one of this many matching messages (up to 1,000,000).
        per_second: show at most this many a second (up to 200). body_chars: number of characters of the body to show;
        needs the grant to read bodies, which the caller checks. dry_run: only the checks. NotFound (topic),
        InvalidInput (tags, key, expression, one_in, per_second).
        """
        wanted = Wanted(topic, tags, key, expression, one_in, per_second, body_chars)
        return self._running().tails.begin(wanted, dry_run)

    def send_test_message(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str = "",
        keys: Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        delay_level: int = 0,
        deliver_at_ms: int | None = None,
        half_of: str = "",
        sharding_key: str = "",
        timeout_s: float = 10.0,
        by: str = "",
    ) -> m.SentMessage:
        """Send one message on the same path as a client's; returns once it is published (durable in sync flush).

        Blocks up to `timeout_s`. queue_id None: the broker picks one. delay_level: one of `messageDelayLevel`, 0 for
        none. deliver_at_ms: a delivery time instead, wall ms; a time that has passed means now. With either, the result
        has the place where the message waits. half_of: a producer group; the message becomes a half message of it, and
        its transaction is left open on purpose: the broker checks it with the group's producers. sharding_key: messages
        with the same key go to the same queue, the one that the clients' SelectMessageQueueByHash chooses; not together
        with queue_id. NotFound (topic), InvalidInput, Unavailable if the log is read-only, too many sends are under
        way, or the time is over (the message may have been stored then).
        """
        return self._changing().sender.send(
            topic,
            body,
            tags,
            tuple(keys),
            dict(properties or {}),
            queue_id,
            delay_level,
            deliver_at_ms,
            half_of,
            sharding_key,
            timeout_s,
            by,
        )

    # --- options and retention

    def change_configuration(
        self, values: Mapping[str, object], *, revision: str | None = None, dry_run: bool = False, by: str = ""
    ) -> s.Change:
        """Change hot options (upstream name -> text or value; None: back to the configured value).

        In force and durable when it returns; kept over restarts in RocketBox's own directory, where it overrides the
        configuration file. All or none. NotFound (option), InvalidInput (field: the option; also if it is not hot),
        Conflict (revision).
        """
        return self._running().options.change(values, revision, dry_run, by)

    def retention(self) -> Retention:
        """Return the retention rules, and the cleaner's last state and acts."""
        return self._running().retention.snapshot()

    def clean(self, what: str, *, by: str = "") -> tuple[str, ...]:
        """Delete expired data now. Return the topics whose queues were deleted. by: the user, for the log.

        what: "log" (expired log files, at any hour), "queues" (entries of every queue whose records have left the log),
        "topics" (queues whose topic has no configuration). The first two continue after the call has returned.
        InvalidInput for anything else; Unavailable.
        """
        return self._running().retention.clean(what, by)
