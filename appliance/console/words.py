"""The engine's sentences, and the values that pages show as words, in the reader's language.

The engine speaks English and knows no catalogue; what it may say is repeated here so that `make messages` finds it,
and a test compares the two tables. Stored values are never translated, only shown by another word.
"""

from __future__ import annotations

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

WORDS: dict[str, str | Promise] = {
    # what needs a person
    "act": _("act today"),
    "stuck": _("stuck"),
    "watch": _("watch"),
    # checks
    "ok": _("ok"),
    "warning": _("warning"),
    "failed": _("failed"),
    "io": _("Network"),
    "store": _("Message log"),
    "queues": _("Queue files"),
    "index": _("Key index"),
    "tables": _("Tables"),
    "namesrv": _("Name server"),
    "disk": _("Disk"),
    "flush": _("Durability"),
    "flow": _("Flow control"),
    "findings": _("Damage"),
    "cleaning": _("Cleaning"),
    "address": _("Address for clients"),
    "audit": _("Audit log"),
    "wire_audit": _("Administration over the wire"),
    # topics
    "NORMAL": _("normal"),
    "FIFO": _("in order"),
    "DELAY": _("delayed"),
    "TRANSACTION": _("transactional"),
    "MIXED": _("mixed"),
    "UNSPECIFIED": _("unspecified"),
    "user": _("user"),
    "system": _("system"),
    "retry": _("retry"),
    "dlq": _("dead letters"),
    # groups
    "CLUSTERING": _("clustering"),
    "BROADCASTING": _("broadcasting"),
    "consumed": _("consumed"),
    "waiting": _("waiting"),
    "filtered": _("filtered"),
    "unknown": _("not known"),
    # what a search found
    "place": _("topic/queue/offset"),
    "offset_id": _("offset id"),
    "unique_id": _("unique id"),
    "key": _("key"),
    # fields of changes
    "kind": _("Type"),
    "queue_id": _("Queue"),
    "read_queues": _("Read queues"),
    "write_queues": _("Write queues"),
    "readable": _("Readable"),
    "writable": _("Writable"),
    "order": _("Ordered"),
    "reserve_hours": _("Kept for, in hours"),
    "reserve.time": _("Kept for, in hours"),
    "consume_enable": _("Consumption"),
    "consume_broadcast_enable": _("May broadcast"),
    "consume_message_orderly": _("In order"),
    "retry_queue_nums": _("Retry queues"),
    "retry_max_times": _("Retries before a dead letter"),
    "true": _("yes"),
    "false": _("no"),
    # audit
    "done": _("done"),
    "refused": _("refused"),
}

#: code -> English template, as in the engine's own table.
SENTENCES: dict[str, str] = {
    "io_running": gettext_noop("The network thread is running."),
    "io_ended": gettext_noop("The network thread has stopped. Restart the broker."),
    "store_writable": gettext_noop("The message log accepts messages."),
    "store_broken": gettext_noop(
        "The message log is read-only because a write failed: %(reason)s. Restart the broker."
    ),
    "queues_written": gettext_noop("Queue files are being written."),
    "queues_failing": gettext_noop("Queue files cannot be written; trying again: %(reason)s."),
    "index_current": gettext_noop("The key index is up to date."),
    "index_behind": gettext_noop(
        "The key index is %(size)d bytes behind the log; queries by key miss the newest messages."
    ),
    "index_failing": gettext_noop("The key index cannot be written; trying again: %(reason)s."),
    "index_off": gettext_noop("messageIndexEnable is off: messages cannot be found by key."),
    "tables_saved": gettext_noop("Topics, groups and offsets are saved."),
    "tables_failing": gettext_noop("The table of %(table)s cannot be saved: %(reason)s."),
    "wire_audit_failing": gettext_noop(
        "What admin tools did cannot be saved; it is kept in memory for now: %(reason)s."
    ),
    "namesrv_registered": gettext_noop("Registered with name server %(address)s."),
    "namesrv_lost": gettext_noop(
        "The last registration with name server %(address)s failed; its clients may not find this broker."
    ),
    "no_namesrv": gettext_noop("This broker is not registered with any name server: clients cannot find it."),
    "disk_roomy": gettext_noop("%(free_bytes)d bytes of the disk are free (%(used_percent).1f %% used)."),
    "disk_filling": gettext_noop(
        "The disk is %(used_percent).1f %% full; diskMaxUsedSpaceRatio is %(limit_percent)d %%."
    ),
    "disk_full": gettext_noop(
        "The disk is %(used_percent).1f %% full: sends are refused until it is below %(limit_percent)d %%."
    ),
    "cleaning_well": gettext_noop("Expired files are being deleted."),
    "cleaning_failing": gettext_noop("Expired files cannot be deleted: %(reason)s."),
    "clock_ahead": gettext_noop(
        "The clock jumped %(hours).1f h ahead. Nothing expires until it has stayed there for an hour."
    ),
    "disk_unreadable": gettext_noop("Free disk space cannot be read: %(reason)s."),
    "sync_flush": gettext_noop("Every acknowledged message is on disk."),
    "async_flush": gettext_noop(
        "flushDiskType is ASYNC_FLUSH: a power cut can take the last half second of acknowledged messages."
    ),
    "advertised_loopback": gettext_noop("Clients are given %(address)s, which works on this machine only."),
    "advertised": gettext_noop("Clients are given %(address)s."),
    "back_pressure": gettext_noop(
        "The disk cannot keep up with the producers; nothing more is read from them until it catches up."
    ),
    "flow_free": gettext_noop("The disk keeps up with the producers."),
    "nothing_found": gettext_noop("Nothing in the store was cut off, quarantined or set aside in the last week."),
    "found_lately": gettext_noop(
        "Problems found in the store in the last week: %(count)d, the latest in %(place)s: %(reason)s"
    ),
    "bytes_changed": gettext_noop(
        "Parts of closed log files that have changed since: %(count)d, the first in %(place)s."
    ),
    "dead_letters": gettext_noop("Dead letters of %(group)s: %(count)d."),
    "nobody_consumes": gettext_noop("%(group)s has a backlog of %(lag)d, and none of its clients is connected."),
    "stuck": gettext_noop("%(group)s has a backlog of %(lag)d, and has committed nothing for %(minutes)d minutes."),
    "subscriptions_differ": gettext_noop(
        "Clients of %(group)s subscribe to different things; some messages may reach nobody."
    ),
    "more_needs": gettext_noop("More groups that need a look: %(count)d."),
    "pure_asked": gettext_noop("ROCKETBOX_PURE is set"),
    "pure_not_built": gettext_noop("the compiled part was not built"),
    "pure_other_sources": gettext_noop("the compiled part was built from other sources"),
    "pure_not_loaded": gettext_noop("the compiled part cannot be loaded: %(error)s"),
    "broadcast_keeps_offsets": gettext_noop("A broadcasting group keeps its offsets on its clients."),
    "never_committed": gettext_noop("The group has not committed an offset yet."),
    "some_never_committed": gettext_noop(
        "Queues with messages but without a committed offset yet: %(queues)d; they are not counted."
    ),
    "not_measured_yet": gettext_noop("Not measured yet."),
    "no_messages": gettext_noop("There are no messages."),
    "message_gone": gettext_noop("The message at that offset is no longer in the log."),
    "entry_unreadable": gettext_noop("The record cannot be read: %(reason)s."),
    "no_consumer_online": gettext_noop("No consumer of the group is connected."),
    "never_heard": gettext_noop("This connection has sent no heartbeat."),
    "producers_name_no_topic": gettext_noop(
        "Producers do not announce their topics; this shows who sent the newest messages."
    ),
    "disk_not_filling": gettext_noop("The log is not growing at the moment."),
    "latency_not_measured": gettext_noop("The broker does not measure this yet."),
    "group_unread": gettext_noop("Messages of %(topic)s that %(group)s has not read: %(count)d."),
    "group_online": gettext_noop("Connected clients of %(group)s: %(count)d."),
    "topic_has_messages": gettext_noop("Messages that can no longer be read: %(count)d."),
    "queues_taken_away": gettext_noop(
        "Queues %(first)d to %(last)d can no longer be read; they hold %(count)d messages."
    ),
    "fewer_write_queues": gettext_noop("Producers stop using queues %(first)d to %(last)d."),
    "leftover_topic": gettext_noop("The topic %(topic)s stays; messages in it: %(count)d."),
    "offsets_removed": gettext_noop("Its offsets are deleted; topics: %(count)d."),
    "offsets_kept": gettext_noop("Its offsets stay; topics: %(count)d."),
    "type_not_served": gettext_noop(
        "This version refuses %(kind)s messages; the topic can be created, but not used for them yet."
    ),
    "order_one_queue": gettext_noop(
        "Messages are in order within one queue only; clients must consume each queue in order."
    ),
    "unreadable": gettext_noop("While reading is off, nobody can consume from it."),
    "unwritable": gettext_noop("While writing is off, nobody can send to it."),
    "consumption_off": gettext_noop("Its clients get no messages while consumption is switched off."),
    "template_missing": gettext_noop("The template topic TBW102 is created as well."),
    "no_broker": gettext_noop("No broker is running in this process."),
    "no_name_server": gettext_noop("No name server is running in this process."),
    "too_busy": gettext_noop("The broker is stopping or too busy; try again."),
    "not_done_in_time": gettext_noop("It was not done within %(seconds)d s; it may still happen."),
    "no_answer_in_time": gettext_noop("There was no answer within %(seconds)d s; the message may have been stored."),
    "out_of_range": gettext_noop("%(field)s must be between %(low)d and %(high)d."),
    "one_of": gettext_noop("%(field)s must be one of %(choices)s."),
    "cannot_sort": gettext_noop("It cannot be sorted by %(key)s; choose one of %(choices)s."),
    "not_a_time": gettext_noop("%(field)s must be milliseconds since 1970."),
    "times_reversed": gettext_noop("The end time is before the start time."),
    "bad_cursor": gettext_noop("This cursor is not valid."),
    "foreign_cursor": gettext_noop("This cursor belongs to another topic."),
    "bad_place": gettext_noop("A message's place is written topic/queue/offset."),
    "bad_offset_id": gettext_noop("An offset id has 32 or 56 hex digits."),
    "topic_exists": gettext_noop("The topic %(name)s already exists."),
    "group_exists": gettext_noop("The group %(name)s already exists."),
    "changed_meanwhile": gettext_noop("%(name)s was changed in the meantime; look again."),
    "changed_since": gettext_noop("It has changed since you looked at it; look again."),
    "messages_would_be_lost": gettext_noop("Messages of %(name)s would become unreadable."),
    "in_use": gettext_noop("%(name)s is in use."),
    "system_topic": gettext_noop("%(name)s is a system topic."),
    "system_group": gettext_noop("%(name)s is a system group."),
    "made_with_group": gettext_noop("Retry and dead letter topics are created with their group."),
    "bad_topic_name": gettext_noop("A topic name has 1 to %(length)d of the characters a-z, A-Z, 0-9, _, -, %% and |."),
    "bad_group_name": gettext_noop("A group name has 1 to %(length)d of the characters a-z, A-Z, 0-9, _, -, %% and |."),
    "topic_kept": gettext_noop("This topic is reserved for the broker."),
    "topic_not_writable": gettext_noop("Writing to this topic is not allowed."),
    "body_missing": gettext_noop("A message needs a body."),
    "body_too_long": gettext_noop("The body has %(size)d bytes, maxMessageSize is %(limit)d."),
    "bad_tag": gettext_noop("A message has one tag, without spaces or |."),
    "bad_key": gettext_noop("A key must not be empty or contain spaces."),
    "bad_property": gettext_noop("A property needs a name and a value."),
    "property_reserved": gettext_noop("%(name)s is reserved for the broker and cannot be set here."),
    "properties_too_long": gettext_noop("The properties take %(size)d bytes, at most 32 KB are possible."),
    "separator_inside": gettext_noop("Properties must not contain the control characters 1 and 2."),
    "no_unicode": gettext_noop("This is not valid Unicode text."),
    "option_not_hot": gettext_noop("%(name)s cannot be changed while the broker runs."),
    "option_number": gettext_noop("%(name)s must be a whole number between %(low)d and %(high)d."),
    "option_choice": gettext_noop("%(name)s must be one of %(choices)s."),
    "option_refused": gettext_noop("%(name)s %(reason)s."),
    "not_saved": gettext_noop("The change cannot be saved, and was not made: %(reason)s."),
    "library_missing": gettext_noop(
        "The body is %(kind)s; the Python package %(package)s that reads it is not installed."
    ),
    "bad_compression": gettext_noop("The body is marked as %(kind)s, but cannot be decompressed: %(reason)s."),
    "bomb": gettext_noop("The body decompresses to more than %(limit)d bytes; the rest is not shown."),
    "too_long": gettext_noop("The first %(shown)d of %(total)d bytes are shown."),
    "not_utf8": gettext_noop("The body is not UTF-8 text."),
}

#: What the audit log's seals say; as `audit_seal.TEMPLATES`, which knows no catalogue either.
AUDIT_SENTENCES: dict[str, str] = {
    "audit_none": gettext_noop("There is no audit log yet."),
    "audit_whole": gettext_noop("The audit log is whole; entries: %(count)d."),
    "audit_cut": gettext_noop(
        "The newest entries of the audit log are missing, up to entry %(last)d; in all: %(missing)d. "
        "They were cut off, or an older copy of the settings database was restored."
    ),
    "audit_altered": gettext_noop(
        "Entry %(entry)d of the audit log does not match the one before it: something was changed, removed or inserted "
        "there."
    ),
    "audit_fewer": gettext_noop(
        "Entries of the audit log are missing: there were %(count)d, and there are %(found)d of them."
    ),
    "audit_no_head": gettext_noop("The file audit-head, which says where the audit log ends, is gone."),
    "audit_bad_head": gettext_noop("The file audit-head, which says where the audit log ends, was altered or damaged."),
    "audit_no_key": gettext_noop(
        "The file audit-key is gone: older entries of the audit log cannot be checked any more."
    ),
    "audit_unreadable": gettext_noop("The audit log cannot be checked: %(file)s cannot be read (%(reason)s)."),
}
