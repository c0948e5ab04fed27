"""What the window says in words: one table of English sentences with named places.

A page shows `str(sentence)`, or translates `template` and fills `args` in. Every template has a line here, so that a
catalogue of translations can be checked against the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..hotpath.choice import REASONS

#: code -> template.
TEMPLATES: dict[str, str] = {
    # checks
    "io_running": "The network thread is running.",
    "io_ended": "The network thread has stopped. Restart the broker.",
    "store_writable": "The message log accepts messages.",
    "store_broken": "The message log is read-only because a write failed: %(reason)s. Restart the broker.",
    "queues_written": "Queue files are being written.",
    "queues_failing": "Queue files cannot be written; trying again: %(reason)s.",
    "index_current": "The key index is up to date.",
    "index_behind": "The key index is %(size)d bytes behind the log; queries by key miss the newest messages.",
    "index_failing": "The key index cannot be written; trying again: %(reason)s.",
    "index_off": "messageIndexEnable is off: messages cannot be found by key.",
    "tables_saved": "Topics, groups and offsets are saved.",
    "tables_failing": "The table of %(table)s cannot be saved: %(reason)s.",
    "wire_audit_failing": "What admin tools did cannot be saved; it is kept in memory for now: %(reason)s.",
    "namesrv_registered": "Registered with name server %(address)s.",
    "namesrv_lost": "The last registration with name server %(address)s failed; its clients may not find this broker.",
    "no_namesrv": "This broker is not registered with any name server: clients cannot find it.",
    "disk_roomy": "%(free_bytes)d bytes of the disk are free (%(used_percent).1f %% used).",
    "disk_filling": "The disk is %(used_percent).1f %% full; diskMaxUsedSpaceRatio is %(limit_percent)d %%.",
    "disk_full": "The disk is %(used_percent).1f %% full: sends are refused until it is below %(limit_percent)d %%.",
    "cleaning_well": "Expired files are being deleted.",
    "cleaning_failing": "Expired files cannot be deleted: %(reason)s.",
    "clock_ahead": "The clock jumped %(hours).1f h ahead. Nothing expires until it has stayed there for an hour.",
    "disk_unreadable": "Free disk space cannot be read: %(reason)s.",
    "sync_flush": "Every acknowledged message is on disk.",
    "async_flush": "flushDiskType is ASYNC_FLUSH: a power cut can take the last half second of acknowledged messages.",
    "advertised_loopback": "Clients are given %(address)s, which works on this machine only.",
    "advertised": "Clients are given %(address)s.",
    "back_pressure": "The disk cannot keep up with the producers; nothing more is read from them until it catches up.",
    "flow_free": "The disk keeps up with the producers.",
    "nothing_found": "Nothing in the store was cut off, quarantined or set aside in the last week.",
    "found_lately": "Problems found in the store in the last week: %(count)d, the latest in %(place)s: %(reason)s",
    "bytes_changed": "Parts of closed log files that have changed since: %(count)d, the first in %(place)s.",
    # needs you
    "dead_letters": "Dead letters of %(group)s: %(count)d.",
    "nobody_consumes": "%(group)s has a backlog of %(lag)d, and none of its clients is connected.",
    "stuck": "%(group)s has a backlog of %(lag)d, and has committed nothing for %(minutes)d minutes.",
    "subscriptions_differ": "Clients of %(group)s subscribe to different things; some messages may reach nobody.",
    "more_needs": "More groups that need a look: %(count)d.",
    # why the hot path is pure Python
    **REASONS,
    # reasons why something is not known
    "broadcast_keeps_offsets": "A broadcasting group keeps its offsets on its clients.",
    "never_committed": "The group has not committed an offset yet.",
    "some_never_committed": (
        "Queues with messages but without a committed offset yet: %(queues)d; they are not counted."
    ),
    "not_measured_yet": "Not measured yet.",
    "no_messages": "There are no messages.",
    "message_gone": "The message at that offset is no longer in the log.",
    "entry_unreadable": "The record cannot be read: %(reason)s.",
    "no_consumer_online": "No consumer of the group is connected.",
    "never_heard": "This connection has sent no heartbeat.",
    "producers_name_no_topic": "Producers do not announce their topics; this shows who sent the newest messages.",
    "disk_not_filling": "The log is not growing at the moment.",
    "latency_not_measured": "The broker does not measure this yet.",
    # blockers and warnings of changes
    "group_unread": "Messages of %(topic)s that %(group)s has not read: %(count)d.",
    "group_online": "Connected clients of %(group)s: %(count)d.",
    "topic_has_messages": "Messages that can no longer be read: %(count)d.",
    "queues_taken_away": "Queues %(first)d to %(last)d can no longer be read; they hold %(count)d messages.",
    "fewer_write_queues": "Producers stop using queues %(first)d to %(last)d.",
    "leftover_topic": "The topic %(topic)s stays; messages in it: %(count)d.",
    "offsets_removed": "Its offsets are deleted; topics: %(count)d.",
    "offsets_kept": "Its offsets stay; topics: %(count)d.",
    "type_not_served": "This version refuses %(kind)s messages; the topic can be created, but not used for them yet.",
    "order_one_queue": "Messages are in order within one queue only; clients must consume each queue in order.",
    "unreadable": "While reading is off, nobody can consume from it.",
    "unwritable": "While writing is off, nobody can send to it.",
    "consumption_off": "Its clients get no messages while consumption is switched off.",
    "template_missing": "The template topic TBW102 is created as well.",
    # refusals
    "no_broker": "No broker is running in this process.",
    "no_name_server": "No name server is running in this process.",
    "too_busy": "The broker is stopping or too busy; try again.",
    "not_done_in_time": "It was not done within %(seconds)d s; it may still happen.",
    "no_answer_in_time": "There was no answer within %(seconds)d s; the message may have been stored.",
    "out_of_range": "%(field)s must be between %(low)d and %(high)d.",
    "one_of": "%(field)s must be one of %(choices)s.",
    "cannot_sort": "It cannot be sorted by %(key)s; choose one of %(choices)s.",
    "not_a_time": "%(field)s must be milliseconds since 1970.",
    "times_reversed": "The end time is before the start time.",
    "bad_cursor": "This cursor is not valid.",
    "foreign_cursor": "This cursor belongs to another topic.",
    "bad_place": "A message's place is written topic/queue/offset.",
    "bad_offset_id": "An offset id has 32 or 56 hex digits.",
    "topic_exists": "The topic %(name)s already exists.",
    "group_exists": "The group %(name)s already exists.",
    "changed_meanwhile": "%(name)s was changed in the meantime; look again.",
    "changed_since": "It has changed since you looked at it; look again.",
    "messages_would_be_lost": "Messages of %(name)s would become unreadable.",
    "in_use": "%(name)s is in use.",
    "system_topic": "%(name)s is a system topic.",
    "system_group": "%(name)s is a system group.",
    "made_with_group": "Retry and dead letter topics are created with their group.",
    "bad_topic_name": "A topic name has 1 to %(length)d of the characters a-z, A-Z, 0-9, _, -, %% and |.",
    "bad_group_name": "A group name has 1 to %(length)d of the characters a-z, A-Z, 0-9, _, -, %% and |.",
    "topic_kept": "This topic is reserved for the broker.",
    "topic_not_writable": "Writing to this topic is not allowed.",
    "body_missing": "A message needs a body.",
    "body_too_long": "The body has %(size)d bytes, maxMessageSize is %(limit)d.",
    "bad_tag": "A message has one tag, without spaces or |.",
    "bad_key": "A key must not be empty or contain spaces.",
    "bad_property": "A property needs a name and a value.",
    "property_reserved": "%(name)s is reserved for the broker and cannot be set here.",
    "properties_too_long": "The properties take %(size)d bytes, at most 32 KB are possible.",
    "separator_inside": "Properties must not contain the control characters 1 and 2.",
    "no_unicode": "This is not valid Unicode text.",
    "option_not_hot": "%(name)s cannot be changed while the broker runs.",
    "option_number": "%(name)s must be a whole number between %(low)d and %(high)d.",
    "option_choice": "%(name)s must be one of %(choices)s.",
    "option_refused": "%(name)s %(reason)s.",
    "not_saved": "The change cannot be saved, and was not made: %(reason)s.",
    # bodies
    "library_missing": "The body is %(kind)s; the Python package %(package)s that reads it is not installed.",
    "bad_compression": "The body is marked as %(kind)s, but cannot be decompressed: %(reason)s.",
    "bomb": "The body decompresses to more than %(limit)d bytes; the rest is not shown.",
    "too_long": "The first %(shown)d of %(total)d bytes are shown.",
    "not_utf8": "The body is not UTF-8 text.",
}


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence. code: its line in TEMPLATES, stable, for the API. args: what goes into its places."""

    code: str
    args: dict[str, object] = field(default_factory=dict)

    @property
    def template(self) -> str:
        return TEMPLATES[self.code]

    def __str__(self) -> str:
        return self.template % self.args


def say(code: str, **args: object) -> Sentence:
    """The sentence of that code; KeyError when there is none."""
    TEMPLATES[code]
    return Sentence(code, args)
