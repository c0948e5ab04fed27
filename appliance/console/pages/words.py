"""Words for values that pages show, in the reader's language.

Stored values are never translated, only shown as another word. The engine's sentences are in `window/sentences.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

WORDS: dict[str, str | Promise] = {
    # ways to sign in
    "password": _("password"),
    "oidc": _("OpenID Connect"),
    "proxy": _("proxy"),
    "set-up": _("set-up"),
    # levels of needs
    "act": _("act today"),
    "stuck": _("stuck"),
    "watch": _("watch"),
    # checks
    "ok": _("ok"),
    "warning": _("warning"),
    "failed": _("failed"),
    "io": _("Network"),
    # steps of a connection that is tried
    "host": _("Host name"),
    "port": _("Port"),
    "tls": _("TLS"),
    "route": _("Route"),
    "broker": _("Broker"),
    "access": _("Access"),
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
    "replay": _("Replay of dead letters"),
    "deliveries": _("Deliveries"),
    "delays": _("Delayed messages"),
    "transactions": _("Transactions"),
    "replication": _("Replication"),
    "leader_store": _("Store of leaders"),
    "copies": _("Copies"),
    # members of a set
    "leader": _("leader"),
    "follower": _("follower"),
    "fenced": _("fenced"),
    "frozen": _("frozen"),
    "address": _("Address for clients"),
    "audit": _("Audit log"),
    "certificate": _("TLS certificate"),
    "certificate_files": _("Files of the TLS certificate"),
    "console_certificate": _("TLS certificate of the console"),
    "console_certificate_files": _("Files of the console's TLS certificate"),
    "wire_audit": _("Administration over the wire"),
    # schemas
    "avro": "Avro",
    "protobuf": "Protobuf",
    "registry": _("by the schema registry"),
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
    # users of the wire
    "Super": _("Super"),
    "Normal": _("Normal"),
    "Custom": _("own"),
    "Default": _("default"),
    "Allow": _("allow"),
    "Deny": _("deny"),
    "decides": _("decides"),
    "outranked": _("fits, but another one decides"),
    "other_actions": _("has other actions"),
    "other_address": _("is for other addresses"),
    "no_user": _("signed by nobody"),
    "not_proved": _("another secret, or an unknown or disabled user"),
    "no_tls": _("in clear, and the user has to come over TLS"),
    "not_super": _("for Super users only"),
    "no_entry": _("no entry fits"),
    "denied": _("an entry denies"),
    "userType": _("Type"),
    "userStatus": _("State"),
    "secrets": _("Secrets"),
    "requireTls": _("Over TLS only"),
    "enable": _("enabled"),
    "disable": _("disabled"),
    # groups
    "CLUSTERING": _("clustering"),
    "BROADCASTING": _("broadcasting"),
    "consumed": _("consumed"),
    "waiting": _("waiting"),
    "filtered": _("filtered"),
    "delivered": _("delivered"),
    "delayed": _("delayed"),
    "retrying": _("retrying"),
    "dead": _("dead letter"),
    "uncommitted": _("not committed"),
    "unknown": _("not known"),
    # results of a search
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
    # replays
    "running": _("running"),
    "paused": _("paused"),
    "cancelled": _("cancelled"),
    "replayed": _("sent"),
    "skipped_by_guard": _("skipped"),
    "gone": _("expired"),
    "not_chosen": _("left out by the filter"),
    "chosen": _("all that were chosen"),
    "again": _("died again"),
    "not_reached": _("still to come"),
    # notices of alerts
    "fired": _("alert"),
    "resolved": _("over"),
    "reminder": _("still on"),
    "test": _("test"),
    # findings about a group
    "deleted_unread": _("messages deleted unread"),
    "deleted_soon": _("messages will be deleted unread"),
    "consumption_off": _("paused"),
    "no_consumer": _("no client connected"),
    "nobody_pulls": _("clients pull nothing"),
    "client_id_twice": _("one client id used twice"),
    "subscriptions_differ": _("subscriptions differ"),
    "expression": _("filter lets nothing through"),
    "silent_lock": _("queue locked, nobody pulls"),
    "queue_stuck": _("a queue is stuck"),
    "falls_behind": _("messages wait too long"),
    "slow_handler": _("listener slow or hung"),
    "retries_storming": _("many retries"),
    "dead_letters_growing": _("new dead letters"),
    "fewer_consumers": _("too few consumers"),
    "idle_consumers": _("idle consumers"),
    "uneven_share": _("uneven share"),
    # resets of offsets
    "reset": _("reset"),
    "undo": _("undo"),
    "clone": _("taken from another group"),
    "told": _("client told"),
    "reached": _("reached"),
    "given_up": _("clients do not follow"),
    "replaced": _("moved again since"),
    "forgotten": _("without an offset"),
    # acts on messages that wait, and on transactions
    "possible": _("can be done"),
    "done_for_now": _("done for now"),
    "handled": _("handled before"),
    "taken": _("being handled"),
    "another": _("another message"),
    "no_retry": _("no retry"),
    "no_topic": _("cannot go there"),
    "unsure": _("not certain"),
    "not_saved": _("not saved"),
    "asked": _("its producers were asked"),
    "decided_before": _("decided before"),
    "no_producer": _("no producer connected"),
    "busy": _("producers busy"),
    "committed": _("committed"),
    "rolled_back": _("rolled back"),
    "discarded": _("set aside"),
    "lost": _("lost"),
    "by_producer": _("by its producer"),
    "by_check": _("by a producer that was asked"),
    "by_administrator": _("by an administrator"),
    "by_broker": _("by the broker"),
    "definition_create": _("would be made"),
    "definition_change": _("would be changed"),
    "definition_same": _("as it is"),
    "definition_refused": _("refused"),
    "definition_done": _("done"),
    "definition_failed": _("failed"),
    "imported_new": _("would be made"),
    "imported_made": _("made"),
    "imported_exists": _("as it is"),
    "imported_refused": _("refused"),
    "section_topics": _("Topics"),
    "section_groups": _("Consumer groups"),
    "section_users": _("Users"),
    "section_alert_rules": _("Alert rules"),
    "section_schemas": _("Schemas of bodies"),
    # a support bundle
    "the program and the machine": _("the program and the machine"),
    "Spark, Java and memory for reports": _("Spark, Java and memory for reports"),
    "the last run of the reports": _("the last run of the reports"),
    "the end of what it said": _("the end of what it said"),
    "the checks of the page System": _("the checks of the page System"),
    "the options in force, and their defaults": _("the options in force, and their defaults"),
    "the figures of /metrics": _("the figures of /metrics"),
    "topics: names, queues, how many messages": _("topics: names, queues, how many messages"),
    "consumer groups: names, lag, clients": _("consumer groups: names, lag, clients"),
    "names, lengths and times of files, no contents": _("names, lengths and times of files, no contents"),
    "the newest lines of the log": _("the newest lines of the log"),
    "message bodies, keys and properties": _("message bodies, keys and properties"),
    "passwords and their hashes, API tokens, sessions, second factors": _(
        "passwords and their hashes, API tokens, sessions, second factors"
    ),
    "the keys of sessions and of the audit log": _("the keys of sessions and of the audit log"),
    "the audit log, users and their names": _("the audit log, users and their names"),
    "addresses and secrets of alert channels": _("addresses and secrets of alert channels"),
    "user names and passwords in URLs, and what follows a ? in them": _(
        "user names and passwords in URLs, and what follows a ? in them"
    ),
    "15m": _("15 minutes"),
    "2h": _("2 hours"),
    "1d": _("1 day"),
    "7d": _("7 days"),
    "1h": _("1 hour"),
    "6h": _("6 hours"),
    "24h": _("24 hours"),
    "30d": _("30 days"),
    "13mo": _("13 months"),
    "40d": _("40 days"),
    # jobs
    "interrupted": _("interrupted"),
    # audit
    "done": _("done"),
    "refused": _("refused"),
}

#: A setting of a topic or group -> the hint at its field.
HINTS: dict[str, str | Promise] = {
    "read_queues": _("Usually as many as write queues. To remove queues, lower this number last."),
    "write_queues": _(
        "Producers spread their messages over this many queues, and this many consumers can work at once."
    ),
    "order": _("Tells clients that its queues must stay where they are."),
    "reserve_hours": _(
        "0 means as long as the broker keeps messages (fileReservedTime). Older messages are not shown; a file is "
        "deleted once everything in it has expired."
    ),
    "consume_enable": _("When off, its clients get no messages; the messages wait where they are."),
    "consume_broadcast_enable": _("Each client may receive every message; clients then keep their own offsets."),
    "consume_message_orderly": _("For clients that leave ordering to the broker. Others keep order by locking queues."),
    "retry_max_times": _(
        "Sent back once more, a message becomes a dead letter. A limit that the client sends goes first."
    ),
}

#: Evidence of a finding -> its name.
EVIDENCE: dict[str, str | Promise] = {
    "lag": _("messages waiting"),
    "clients": _("clients"),
    "retries": _("retries ready"),
    "subscriptions": _("different subscriptions"),
    "looked_at": _("messages looked at"),
    "queues": _("queues"),
    "lease_left": _("lock ends in"),
    "idle": _("for so long"),
    "left": _("time left"),
    "lost": _("messages lost"),
    "since_last": _("since the last of them"),
    "offset": _("offset"),
    "queues_moving": _("queues that go on"),
    "delivered": _("times given out"),
    "in_flight": _("given out, not committed"),
    "rate": _("committed"),
    "oldest": _("the oldest of them waits for"),
    "held": _("longest with a client"),
    "work_left": _("work left at this rate"),
    "retry_rate": _("come back"),
    "retries_ready": _("retries ready"),
    "share": _("share of what is consumed"),
    "new": _("new ones"),
    "span": _("within"),
    "dead_letters": _("dead letters in all"),
    "most": _("queues of one client"),
    "least": _("queues of another"),
    "in_rate": _("come in"),
}

#: Kind of a finding about a group -> advice.
ADVICE: dict[str, str | Promise] = {
    "deleted_unread": _(
        "They cannot be read any more. Keep messages for longer, make room on the disk, or read faster, so that it "
        "does not go on."
    ),
    "deleted_soon": _(
        "Start more clients or make the listener faster; keep messages for longer, or make room on the disk, to "
        "win time."
    ),
    "consumption_off": _("Resume the group when its clients may go on."),
    "no_consumer": _("Start a consumer of the group; it goes on from the committed offsets."),
    "nobody_pulls": _("Ask a client what it does: it may be suspended, or its pulls are refused and its log says so."),
    "client_id_twice": _("Give each client an instanceName of its own."),
    "subscriptions_differ": _("Give all clients of the group the same subscription, or two groups."),
    "expression": _("Look at the expression that the clients subscribe with."),
    "silent_lock": _("Ask the client what it does; when it is gone, the lock ends by itself and another takes over."),
    "queue_stuck": _(
        "Look at the message that holds it up, and ask the client that has it for its threads. One that can never be "
        "consumed can be skipped: then the queue goes on behind it."
    ),
    "falls_behind": _("Start more clients, up to one for each queue, or make the listener faster."),
    "slow_handler": _("Ask the clients for their threads: the stack shows where the listener hangs."),
    "retries_storming": _("Look at what comes back; a fault of the listener or of what it calls sends it all round."),
    "dead_letters_growing": _("Look at the dead letters; once the fault is mended they can be replayed."),
    "fewer_consumers": _("Start more clients, up to one for each queue."),
    "idle_consumers": _("Nothing is lost. More queues or fewer clients would use them all."),
    "uneven_share": _("Nothing is lost. A number of queues that the clients divide evenly would spread the work."),
}


def in_readers_language(template: str | Sequence[str], values: Mapping[str, Any]) -> str:
    """Return a template from the catalogue in the reader's language, in the form for these values. template: a text, or
    an engine's `Plural`, which JSON turns into a list. KeyError without the value that chooses the form."""
    if isinstance(template, str):
        return gettext(template)
    one, many, number = template
    return ngettext(one, many, values[number])


#: Topics of the broker's own -> what they hold.
_OWN_TOPICS: dict[str, str | Promise] = {
    "SCHEDULE_TOPIC_XXXX": _("delayed messages"),
    "rmq_sys_wheel_timer": _("messages with a time of delivery"),
    "RMQ_SYS_TRANS_HALF_TOPIC": _("messages of open transactions"),
    "RMQ_SYS_TRANS_OP_HALF_TOPIC": _("ends of transactions"),
    "TRANS_CHECK_MAX_TIME_TOPIC": _("transactions that were set aside"),
    "RMQ_SYS_TRACE_TOPIC": _("traces of messages"),
}


def topic_words(topic: str) -> str:
    """Return what a topic of the broker's own holds, as "retries of fraud"; the name of any other topic."""
    if topic in ("%RETRY%", "%DLQ%"):
        return topic  # of no group
    if topic.startswith("%RETRY%"):
        # A plus, which no group may have, stands before the topic in retry topics of POP consumers.
        group, _plus, of = topic.removeprefix("%RETRY%").partition("+")
        return (
            gettext("retries of %(group)s in %(topic)s") % {"group": group, "topic": of}
            if of
            else gettext("retries of %(group)s") % {"group": group}
        )
    if topic.startswith("%DLQ%"):
        return gettext("dead letters of %(group)s") % {"group": topic.removeprefix("%DLQ%")}
    return str(_OWN_TOPICS.get(topic, topic))
