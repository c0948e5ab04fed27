"""What the window says in words: one table of English sentences with named places.

A page shows `str(sentence)`, or translates `template` and fills `args` in. Every template has a line here, so that a
catalogue of translations can be checked against the table.
"""

from __future__ import annotations

from dataclasses import dataclass, field

#: code -> template.
TEMPLATES: dict[str, str] = {
    # checks
    "io_running": "The network thread runs.",
    "io_ended": "The network thread has ended; only a restart helps.",
    "store_writable": "The message log takes messages.",
    "store_broken": "The message log is read-only since a write failed: %(reason)s. Only a restart trusts it again.",
    "queues_written": "The queue files are written.",
    "queues_failing": "The queue files cannot be written and are retried: %(reason)s.",
    "index_current": "The key index has all messages.",
    "index_behind": "The key index is %(size)d bytes behind the log; queries by key miss the newest messages.",
    "index_failing": "The key index cannot be written and is retried: %(reason)s.",
    "index_off": "messageIndexEnable is off: messages are not found by key.",
    "tables_saved": "Topics, groups and offsets are saved.",
    "tables_failing": "The table of %(table)s cannot be saved: %(reason)s.",
    "wire_audit_failing": "Administration over the wire cannot be written down; it waits in memory: %(reason)s.",
    "namesrv_registered": "The name server %(address)s knows this broker.",
    "namesrv_lost": "The name server %(address)s did not take the last registration; its clients may not find us.",
    "no_namesrv": "No name server is told about this broker: clients cannot find it.",
    "disk_roomy": "%(free_bytes)d bytes of the disk are free (%(used_percent).1f %% used).",
    "disk_filling": "The disk is %(used_percent).1f %% full; diskMaxUsedSpaceRatio is %(limit_percent)d %%.",
    "disk_full": "The disk is %(used_percent).1f %% full: sends are refused until it is below %(limit_percent)d %%.",
    "cleaning_well": "What has expired is deleted.",
    "cleaning_failing": "What has expired cannot be deleted: %(reason)s.",
    "clock_ahead": "The clock was set %(hours).1f h forward; nothing expires before it has stayed so for an hour.",
    "disk_unreadable": "The disk's free space cannot be read: %(reason)s.",
    "sync_flush": "Every acknowledged message is on the disk.",
    "async_flush": "flushDiskType is ASYNC_FLUSH: a power cut can take the last half second of acknowledged messages.",
    "advertised_loopback": "Clients are told %(address)s, which leads to this machine only.",
    "advertised": "Clients are told %(address)s.",
    "back_pressure": "The disk is slower than the producers; they are not read from until it has caught up.",
    "flow_free": "The disk keeps up with the producers.",
    "nothing_found": "Nothing in the store was cut off, quarantined or set aside in the last week.",
    "found_lately": "Findings in the store in the last week: %(count)d, the newest in %(place)s: %(reason)s",
    "bytes_changed": "Ranges of closed log files that are not what was written: %(count)d, the first in %(place)s.",
    # needs you
    "dead_letters": "Dead letters of %(group)s: %(count)d.",
    "nobody_consumes": "%(group)s is %(lag)d messages behind and none of its clients is connected.",
    "stuck": "%(group)s is %(lag)d messages behind and has committed nothing for %(minutes)d minutes.",
    "subscriptions_differ": "Clients of %(group)s subscribe to different things; some messages may reach nobody.",
    "more_needs": "Groups that need a look besides: %(count)d.",
    # reasons why something is not known
    "broadcast_keeps_offsets": "A broadcast group keeps its offsets on its clients.",
    "never_committed": "The group has not committed an offset yet.",
    "some_never_committed": (
        "Queues with messages but without a committed offset yet: %(queues)d; they are not counted."
    ),
    "not_measured_yet": "Not measured yet.",
    "no_messages": "There are no messages.",
    "message_gone": "The message at that offset is not in the log any more.",
    "entry_unreadable": "The record cannot be read: %(reason)s.",
    "no_consumer_online": "No consumer of the group is connected.",
    "never_heard": "No heartbeat has come from this connection.",
    "producers_name_no_topic": "Producers do not announce their topics; shown is who sent the newest messages.",
    "disk_not_filling": "The log does not grow at present.",
    "latency_not_measured": "The broker does not measure this yet.",
    # blockers and warnings of changes
    "group_unread": "Messages of %(topic)s that %(group)s has not read: %(count)d.",
    "group_online": "Connected clients of %(group)s: %(count)d.",
    "topic_has_messages": "Messages that will not be readable any more: %(count)d.",
    "queues_taken_away": "Queues %(first)d to %(last)d can no longer be read; they hold %(count)d messages.",
    "fewer_write_queues": "Producers stop using queues %(first)d to %(last)d.",
    "leftover_topic": "The topic %(topic)s stays; messages in it: %(count)d.",
    "offsets_removed": "Its offsets are forgotten; topics: %(count)d.",
    "offsets_kept": "Its offsets stay; topics: %(count)d.",
    "type_not_served": "This version refuses %(kind)s messages; the topic can be made, but not used as such yet.",
    "order_one_queue": "Messages are in order within one queue only; consumers must take the queue in order.",
    "unreadable": "Nobody can consume from it while it may not be read.",
    "unwritable": "Nobody can send to it while it may not be written.",
    "consumption_off": "Its clients get no messages while consumption is switched off.",
    "template_missing": "The template topic TBW102 is made as well.",
    # refusals
    "no_broker": "No broker runs in this process.",
    "no_name_server": "No name server runs in this process.",
    "too_busy": "The broker is stopping, or has too much to do; try again.",
    "not_done_in_time": "It was not done within %(seconds)d s; it may still be.",
    "no_answer_in_time": "There was no answer within %(seconds)d s; the message may have been stored.",
    "out_of_range": "%(field)s must lie between %(low)d and %(high)d.",
    "one_of": "%(field)s must be one of %(choices)s.",
    "cannot_sort": "It cannot be sorted by %(key)s; it may be by one of %(choices)s.",
    "not_a_time": "%(field)s must be milliseconds since 1970.",
    "times_reversed": "The end of the span of time lies before its begin.",
    "bad_cursor": "This is no cursor of ours.",
    "foreign_cursor": "This cursor belongs to another topic.",
    "bad_place": "A message's place is written topic/queue/offset.",
    "bad_offset_id": "An offset id has 32 or 56 hex digits.",
    "topic_exists": "There is a topic %(name)s already.",
    "group_exists": "There is a group %(name)s already.",
    "changed_meanwhile": "%(name)s was changed meanwhile; look again.",
    "changed_since": "It was changed since you looked at it; look again.",
    "messages_would_be_lost": "Messages of %(name)s would become unreadable.",
    "in_use": "%(name)s is in use.",
    "system_topic": "%(name)s is a topic of the system's.",
    "system_group": "%(name)s is a group of the system's.",
    "made_with_group": "Retry and dead letter topics come to be with their group.",
    "bad_topic_name": "A topic's name has 1 to %(length)d of the characters a-z, A-Z, 0-9, _, -, %% and |.",
    "bad_group_name": "A group's name has 1 to %(length)d of the characters a-z, A-Z, 0-9, _, -, %% and |.",
    "topic_kept": "The broker keeps this topic for itself.",
    "topic_not_writable": "This topic may not be written.",
    "body_missing": "A message needs a body.",
    "body_too_long": "The body has %(size)d bytes, maxMessageSize is %(limit)d.",
    "bad_tag": "A message has one tag, without blanks and bars.",
    "bad_key": "A key is not empty and holds no blanks.",
    "bad_property": "A property has a name and a value.",
    "property_reserved": "%(name)s means something to the broker and cannot be set here.",
    "properties_too_long": "The properties take %(size)d bytes, at most 32 KB are possible.",
    "separator_inside": "The characters 1 and 2 separate properties and cannot be in one.",
    "no_unicode": "This is no Unicode text.",
    "option_not_hot": "%(name)s cannot be changed while the broker runs.",
    "option_number": "%(name)s must be a whole number between %(low)d and %(high)d.",
    "option_choice": "%(name)s must be one of %(choices)s.",
    "option_refused": "%(name)s %(reason)s.",
    "not_saved": "The change cannot be saved, and was not made: %(reason)s.",
    # bodies
    "library_missing": "The body is %(kind)s; the Python package %(package)s that reads it is not installed.",
    "bad_compression": "The body says it is %(kind)s, but does not decompress: %(reason)s.",
    "bomb": "The body decompresses to more than %(limit)d bytes; the rest is not shown.",
    "too_long": "The first %(shown)d of %(total)d bytes are shown.",
    "not_utf8": "The body is no UTF-8 text.",
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
