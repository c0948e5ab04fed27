"""The engine's sentences, and words for values that pages show, in the reader's language.

The engine's sentences are English, and it has no catalogue. They are repeated here so that `make messages` finds them;
a test compares the two tables. Stored values are never translated, only shown as another word.
"""

from __future__ import annotations

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

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
    "not_super": _("for Super users only"),
    "no_entry": _("no entry fits"),
    "denied": _("an entry denies"),
    "userType": _("Type"),
    "userStatus": _("State"),
    "secrets": _("Secrets"),
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
    "section_topics": _("Topics"),
    "section_groups": _("Consumer groups"),
    "section_users": _("Users"),
    "section_alert_rules": _("Alert rules"),
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
    "offset": _("offset"),
    "queues_moving": _("queues that go on"),
    "delivered": _("times given out"),
    "in_flight": _("given out, not committed"),
    "rate": _("committed"),
    "oldest": _("the oldest of them waits for"),
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
    "slow_handler": _("Ask the clients for their threads: where the listener hangs is in there."),
    "retries_storming": _("Look at what comes back; a fault of the listener or of what it calls sends it all round."),
    "dead_letters_growing": _("Look at the dead letters; once the fault is mended they can be replayed."),
    "fewer_consumers": _("Start more clients, up to one for each queue."),
    "idle_consumers": _("Nothing is lost. More queues or fewer clients would use them all."),
    "uneven_share": _("Nothing is lost. A number of queues that the clients divide evenly would spread the work."),
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
    "transactions_checked": gettext_noop("Producers are asked how open transactions end."),
    "transactions_failing": gettext_noop("Transactions wait for their end: %(reason)s."),
    "delays_delivered": gettext_noop("Delayed messages come when they are due."),
    "delays_failing": gettext_noop("Delayed messages that are due wait: %(reason)s."),
    "tables_failing": gettext_noop("The table of %(table)s cannot be saved: %(reason)s."),
    "deliveries_recorded": gettext_noop("Deliveries are being recorded."),
    "deliveries_off": gettext_noop("maxDeliveryEventBytes is 0: deliveries are not recorded."),
    "deliveries_failing": gettext_noop("Deliveries cannot be recorded; dropped so far: %(count)d: %(reason)s."),
    "wire_audit_failing": gettext_noop(
        "What admin tools did cannot be saved; it is kept in memory for now: %(reason)s."
    ),
    "namesrv_registered": gettext_noop("Registered with name server %(address)s."),
    "namesrv_lost": gettext_noop(
        "The last registration with name server %(address)s failed; its clients may not find this broker."
    ),
    "slave_follows": gettext_noop("This broker is a slave and copies its master at %(address)s."),
    "slave_alone": gettext_noop("This broker is a slave and does not follow its master: %(reason)s."),
    "slave_changes_at": gettext_noop(
        "This broker is a slave: what it has comes from its master at %(address)s, and is changed there."
    ),
    "slave_lags": gettext_noop("The slave at %(address)s is %(late_span)s behind: %(size)d bytes."),
    "slave_lags_far": gettext_noop("The slave at %(address)s is %(size)d bytes behind: it does not count as in sync."),
    "slave_gone": gettext_noop("The slave at %(address)s is gone since %(since_at_ms)s."),
    "slave_behind": gettext_noop("This slave is %(late_span)s behind its master at %(address)s: %(size)d bytes."),
    "slaves_missing": gettext_noop(
        "Sends time out, and consumers see no new messages: a SYNC_MASTER waits for slaves, and too few follow. "
        "Needed: %(needed)d, connected: %(count)d."
    ),
    "slaves_follow": gettext_noop("Slaves that follow this broker: %(count)d."),
    "slaves_none": gettext_noop("No slave follows this broker."),
    "slave_silent": gettext_noop("The slave has not said yet how far it is."),
    "master_not_asked": gettext_noop("The master has not been asked yet how far it is."),
    "lag_before_start": gettext_noop("It is longer than this broker has looked."),
    "set_store_answers": gettext_noop("The store that decides who leads answers: %(store)s."),
    "set_store_silent": gettext_noop(
        "The store that decides who leads does not answer: %(store)s. Nobody can be elected meanwhile."
    ),
    "set_store_short": gettext_noop("The store that decides who leads runs out of room: %(reason)s."),
    "set_leads": gettext_noop("This broker leads its set in epoch %(epoch)d."),
    "set_follows": gettext_noop("This broker follows the leader of its set at %(address)s in epoch %(epoch)d."),
    "set_no_leader": gettext_noop("The set %(set)s has no leader: sends are refused until one is elected."),
    "set_fenced": gettext_noop("This broker is fenced: it neither leads nor follows."),
    "set_frozen": gettext_noop(
        "This broker is frozen: the store contradicts what this member has seen. Find out why, then adopt the set."
    ),
    "set_too_few": gettext_noop(
        "Sends are refused: minInSyncReplicas is %(needed)d, and members that have all messages: %(count)d."
    ),
    "set_one_copy": gettext_noop(
        "Acknowledged messages are on this broker only: no other member of the set is in sync."
    ),
    "set_copies": gettext_noop("Members that have every acknowledged message: %(count)d."),
    "set_contradicts": gettext_noop(
        "The member at %(address)s has other settings than this one, and would lead by them: %(settings)s."
    ),
    "set_member_slow": gettext_noop(
        "The member at %(address)s takes %(late_span)s to acknowledge: it is left out and may not be elected until its "
        "disk and its network are quick again."
    ),
    "set_member_slow_kept": gettext_noop(
        "Each message waits for the member at %(address)s, which takes %(late_span)s to acknowledge. It is not left "
        "out, since too few others are in sync."
    ),
    "set_member_lost": gettext_noop("The member at %(address)s does not follow."),
    "set_member_lost_since": gettext_noop(
        "The member at %(address)s does not follow; it was last heard of at %(since_at_ms)s."
    ),
    "follower_changes": gettext_noop("This broker follows %(address)s, which leads the set: changes are made there."),
    "set_quarantined": gettext_noop(
        "Messages that were cut from this broker's log, and are kept: %(messages)d, in files: %(count)d. Look "
        "which of them were promised to somebody."
    ),
    "follower_changes_nowhere": gettext_noop(
        "This broker does not lead its set, and no leader is known: nothing can be changed."
    ),
    "quarantine_unreadable": gettext_noop("The file cannot be read: %(reason)s."),
    "quarantine_of_the_broker": gettext_noop("%(topic)s is the broker's own: what was stored there is not sent again."),
    "quarantine_refused": gettext_noop("The leader refuses it: %(reason)s."),
    "quarantine_nowhere": gettext_noop("No leader is known, so there is no broker to send it to."),
    "leader_silent": gettext_noop("The leader at %(address)s does not take it now: %(reason)s."),
    "slave_changes": gettext_noop("This broker is a slave: what it has comes from its master, and is changed there."),
    "no_set": gettext_noop("This broker is in no set with fail-over: haStore is not set."),
    "set_begins": gettext_noop("Fail-over has not begun yet; this process has just started."),
    "set_store_fails": gettext_noop("The store where it is decided who leads cannot be asked: %(reason)s."),
    "member_waits": gettext_noop("This member neither leads nor follows: %(reason)s."),
    "switch_elsewhere": gettext_noop("This member does not lead. Ask the one that does: %(leader)s."),
    "switch_nobody": gettext_noop(
        "There is no other member that is connected and in sync, so nobody could lead instead."
    ),
    "switch_leads": gettext_noop("%(member)s leads already."),
    "switch_gone": gettext_noop("%(member)s is not connected to the leader, so it cannot take over."),
    "switch_behind": gettext_noop(
        "%(member)s is connected but not in sync: what was acknowledged would be missing there."
    ),
    "adopt_elsewhere": gettext_noop("A member is adopted on its own machine: ask %(address)s."),
    "adopt_confirm": gettext_noop("Type the name of the set to confirm: %(set)s."),
    "adopt_leads": gettext_noop("This member leads already: there is nothing to adopt."),
    "adopt_may_lose": gettext_noop(
        "Up to %(bytes)d bytes that others hold or acknowledged are not in this member's log, and are lost to the set."
    ),
    "set_act_takes_long": gettext_noop("It was not done in 15 s. It may be done yet: look at the set again."),
    "set_act_refused": gettext_noop("Nothing was changed: %(reason)s."),
    "slaves_behind": gettext_noop("Sends are refused: %(reason)s."),
    "no_namesrv": gettext_noop("This broker is not registered with any name server: clients cannot find it."),
    "disk_roomy": gettext_noop("%(free_bytes)d bytes of the disk are free (%(used_percent).1f %% used)."),
    "disk_filling": gettext_noop(
        "The disk is %(used_percent).1f %% full; diskMaxUsedSpaceRatio is %(limit_percent)d %%."
    ),
    "disk_deletes": gettext_noop(
        "The disk is %(used_percent).1f %% full: the oldest messages are deleted whatever their age. From "
        "%(limit_percent)d %% on sends are refused."
    ),
    "disk_full": gettext_noop(
        "The disk is %(used_percent).1f %% full: sends are refused until it is below %(limit_percent)d %%."
    ),
    "replay_well": gettext_noop("Replay jobs are kept."),
    "replay_failing": gettext_noop("Replay jobs cannot be kept on disk: %(reason)s."),
    "access_off": gettext_noop("Access control is off: accessControl is off, and there are no wire users."),
    "wire_user_name": gettext_noop(
        "A wire user's name has 1 to 64 letters, digits and . _ -, and at least one letter or digit."
    ),
    "wire_user_exists": gettext_noop("There is already a wire user %(name)s."),
    "wire_users_most": gettext_noop("There are %(count)d wire users, which is the most."),
    "entries_most": gettext_noop("A wire user has at most %(count)d entries."),
    "last_super": gettext_noop(
        "This is the last Super user who is enabled: nobody could administer the broker over the wire any more."
    ),
    "two_secrets": gettext_noop("%(name)s has two secrets already. End the old one first."),
    "one_secret": gettext_noop("%(name)s has only one secret, and that one stays."),
    "entry_refused": gettext_noop("The entry is refused: %(reason)s."),
    "wire_user_hung_up": gettext_noop(
        "Connections on which %(name)s signed are closed; what they asked for is judged anew."
    ),
    "resource_literal": gettext_noop(
        "Name one topic, group or cluster: Topic:orders, Group:billing, Cluster:DefaultCluster."
    ),
    "bad_address": gettext_noop("This is no address like 10.0.0.5 or 2001:db8::5."),
    "decided_super": gettext_noop("%(name)s is a Super user, who may do everything."),
    "decided_disabled": gettext_noop("%(name)s is disabled: every request is refused."),
    "decided_allow": gettext_noop("The entry for %(resource)s decides: it allows."),
    "decided_deny": gettext_noop("The entry for %(resource)s decides: it denies."),
    "decided_nothing": gettext_noop("No entry fits, so it is refused."),
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
    "advertised_elsewhere": gettext_noop(
        "Clients are told %(address)s, but the ports listen on %(bind)s only, so they cannot connect. Restart with "
        "--bind 0.0.0.0 or --bind %(host)s."
    ),
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
    "stuck": gettext_noop("%(group)s has a backlog of %(lag)d, and has committed nothing for %(idle_span)s."),
    "client_id_twice": gettext_noop(
        "Several clients of %(group)s are called %(client)s; some of its queues are read by nobody."
    ),
    "subscriptions_differ": gettext_noop(
        "Clients of %(group)s subscribe to different things; some messages may reach nobody."
    ),
    "dead_letters_expire": gettext_noop(
        "Dead letters of %(group)s: %(count)d. The first may be deleted in %(left_span)s."
    ),
    "nobody_consumes_late": gettext_noop(
        "%(group)s is %(late_span)s behind, and none of its clients is connected. Messages waiting: %(lag)d."
    ),
    "consumption_is_off_behind": gettext_noop("Consumption is switched off for %(group)s. Messages waiting: %(lag)d."),
    "falls_behind": gettext_noop(
        "%(group)s is %(late_span)s behind and does not catch up: %(came)s messages come a second, it "
        "commits %(went)s. Messages waiting: %(lag)d."
    ),
    "catching_up": gettext_noop(
        "%(group)s is %(late_span)s behind and catches up in about %(eta_span)s. Messages waiting: %(lag)d."
    ),
    "queues_stuck": gettext_noop(
        "Queues of %(group)s that have not moved for %(idle_span)s: %(queues)s. Messages waiting there: %(lag)d."
    ),
    "queues_unread": gettext_noop(
        "Messages of %(topic)s that nobody can read: %(count)d. They are in queues from %(queues)d on, "
        "and the topic has %(queues)d read queues."
    ),
    "queues_unreadable": gettext_noop(
        "%(topic)s has %(write)d write queues and %(read)d read queues: messages sent to the others cannot be read."
    ),
    "deleted_unread_soon": gettext_noop(
        "At this rate messages of %(topic)s will be deleted in %(left_span)s, before %(group)s has read them."
    ),
    "disk_full_soon": gettext_noop("At the rate of the last ten minutes the disk reaches its limit on %(full_at_ms)s."),
    "disk_kept_by_retention": gettext_noop("At this rate old messages are deleted before the disk is full."),
    "unreadable_writes": gettext_noop("Messages that are sent to queues %(first)d to %(last)d can be read by nobody."),
    "more_needs": gettext_noop("More groups that need a look: %(count)d."),
    "diag_consumption_off": gettext_noop("Consumption is switched off: its consumers get no messages."),
    "diag_nobody_pulls": gettext_noop(
        "Its clients are connected, and have pulled none of the messages that wait for %(seconds)d s; "
        "messages waiting: %(count)d."
    ),
    "diag_no_consumer": gettext_noop("No consumer is connected; messages waiting: %(count)d."),
    "diag_expression_wrong": gettext_noop(
        "The filter of its clients on %(topic)s is refused, and so are their pulls: %(reason)s."
    ),
    "diag_expression_lets_nothing": gettext_noop(
        "Its expression for %(topic)s let none of the last messages through that were looked at: %(count)d."
    ),
    "diag_client_id_twice": gettext_noop(
        "Several clients are called %(client)s, at %(hosts)s: each believes that the other's queues are its own, and "
        "some are read by nobody."
    ),
    "diag_subscriptions_differ": gettext_noop(
        "Its consumers subscribe to %(topic)s in %(versions)d different ways; some messages may reach nobody."
    ),
    "diag_lock_of_nobody": gettext_noop(
        "%(client)s holds the locks of queues in order, and is not connected; queues: %(queues)d. The "
        "locks end in %(seconds)d s."
    ),
    "diag_lock_of_silent": gettext_noop(
        "%(client)s holds the locks of queues in order, and pulls nothing; queues: %(queues)d, for %(seconds)d s."
    ),
    "diag_queue_stuck": gettext_noop(
        "Queue %(queue)d of %(topic)s has stayed at offset %(offset)d for %(seconds)d s; messages waiting in it: "
        "%(count)d."
    ),
    "diag_slow_handler": gettext_noop(
        "Messages of %(topic)s its consumers have not finished: %(count)d; they consume %(rate).1f a second."
    ),
    "diag_retries_storming": gettext_noop(
        "%(retries).1f messages a second come back as retries, and %(rate).1f are consumed."
    ),
    "diag_dead_letters": gettext_noop("New dead letters in the last %(seconds)d s: %(count)d; in all: %(total)d."),
    "diag_fewer_consumers": gettext_noop(
        "%(comes).1f messages a second come into %(topic)s, and %(goes).1f are consumed; queues: "
        "%(queues)d, consumers: %(clients)d."
    ),
    "diag_idle_consumers": gettext_noop(
        "%(topic)s has %(queues)d queues for %(clients)d consumers; consumers without a queue: %(idle)d."
    ),
    "diag_uneven_share": gettext_noop(
        "%(topic)s has %(queues)d queues for %(clients)d consumers: one has %(most)d or more, another "
        "%(least)d or fewer."
    ),
    "pure_asked": gettext_noop("ROCKETBOX_PURE is set"),
    "pure_not_built": gettext_noop("the compiled part was not built"),
    "pure_other_sources": gettext_noop("the compiled part was built from other sources"),
    "pure_not_loaded": gettext_noop("the compiled part cannot be loaded: %(error)s"),
    "copies_no_id": gettext_noop("The message has no unique id, so copies of it cannot be found."),
    "copies_cut": gettext_noop("Not all topics were searched for copies of the message; there may be more."),
    "copies_many": gettext_noop(
        "There are %(count)d copies of the message; only the first and the last ones are shown."
    ),
    "story_long": gettext_noop("Lines left out in the middle: %(count)d."),
    "deliveries_not_kept": gettext_noop(
        "Deliveries are kept for a limited time: older ones of this message are not known."
    ),
    "no_deliveries_kept": gettext_noop("No deliveries have been recorded yet."),
    "deliveries_cut": gettext_noop("Not all delivery records were searched; there may be more deliveries."),
    "deliveries_lost": gettext_noop("Deliveries that were not recorded since the message was stored: %(count)d."),
    "story_passed": gettext_noop("Groups whose offset is past the message, beyond those shown here: %(count)d."),
    "deliveries_many": gettext_noop("Of each copy only the last %(count)d deliveries are shown."),
    "deliveries_gap": gettext_noop(
        "For some time after it was stored, deliveries were not recorded: maxDeliveryEventBytes was 0."
    ),
    "deliveries_unreadable": gettext_noop("The delivery records cannot be read: %(reason)s."),
    "offset_is_past": gettext_noop("The committed offset %(offset)d is past it."),
    "offset_is_past_retry": gettext_noop(
        "The retry topic's committed offset %(offset)d is past it; retry number %(times)d."
    ),
    "not_committed_yet": gettext_noop("It was delivered; the group's committed offset is not past it yet."),
    "delivered_never_committed": gettext_noop("It was delivered; the group has not committed an offset of this queue."),
    "held_back": gettext_noop(
        "It was delivered; the group's committed offset waits for the message at offset %(offset)d."
    ),
    "not_reached": gettext_noop("Messages ahead of it: %(count)d."),
    "nobody_pulls": gettext_noop("No client has pulled queue %(queue)d since the broker started."),
    "filtered_by_tag": gettext_noop('The group subscribes to %(expression)s; the tag is "%(tag)s".'),
    "expression_refused": gettext_noop("Its filter is refused, and so are its pulls: %(reason)s."),
    "filtered_by_expression": gettext_noop("The %(kind)s filter %(expression)s keeps it out."),
    "consumption_is_off": gettext_noop("Consumption is switched off for the group."),
    "group_is_gone": gettext_noop("This group no longer exists."),
    "topic_not_readable": gettext_noop("The topic may not be read."),
    "queue_not_readable": gettext_noop("Queue %(queue)d is not read: the topic has %(count)d read queues."),
    "not_subscribed": gettext_noop("The connected clients do not subscribe to the topic."),
    "waits_delayed": gettext_noop("It waits at delay level %(level)d."),
    "waits_to_retry": gettext_noop("It was sent back; retry %(times)d waits at delay level %(level)d."),
    "is_dead_letter": gettext_noop("It is a dead letter; attempts to consume it: %(times)d."),
    "handled_early": gettext_noop("It was taken out before it was due, and no copy of it was found: it was dropped."),
    "copy_not_found": gettext_noop("It was due, but its copy was not found: it may have expired or been dropped."),
    "broadcast_keeps_offsets": gettext_noop("A broadcasting group keeps its offsets on its clients."),
    "never_committed": gettext_noop("The group has not committed an offset yet."),
    "queue_never_committed": gettext_noop(
        "The group has committed offsets of other queues here, but none of queue %(queue)d."
    ),
    "filter_depends": gettext_noop(
        "Its members subscribe to different things: who has queue %(queue)d decides whether it is kept out."
    ),
    "past_or_filtered": gettext_noop(
        "The committed offset %(offset)d is past it, but its members subscribe to different things: it was "
        "consumed, or kept out by the filter of whoever had queue %(queue)d."
    ),
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
        "Queues %(first)d to %(last)d can no longer be read; messages in them: %(count)d."
    ),
    "fewer_write_queues": gettext_noop("Producers stop using queues %(first)d to %(last)d."),
    "leftover_topic": gettext_noop("The topic %(topic)s stays; messages in it: %(count)d."),
    "offsets_removed": gettext_noop("Its offsets are deleted; topics: %(count)d."),
    "offsets_kept": gettext_noop("Its offsets stay; topics: %(count)d."),
    "order_one_queue": gettext_noop(
        "Messages are in order within one queue only; clients must consume each queue in order."
    ),
    "unreadable": gettext_noop("While reading is off, nobody can consume from it."),
    "unwritable": gettext_noop("While writing is off, nobody can send to it."),
    "consumption_off": gettext_noop("Its clients get no messages while consumption is switched off."),
    "template_missing": gettext_noop("The template topic TBW102 is created as well."),
    "no_broker": gettext_noop("No broker is running in this process."),
    "role_changes": gettext_noop("This broker is changing its role; ask again in a moment."),
    "no_name_server": gettext_noop("No name server is running in this process."),
    "too_busy": gettext_noop("The broker is stopping or too busy; try again."),
    "not_done_in_time": gettext_noop("It was not done within %(seconds)d s; it may still happen."),
    "no_answer_in_time": gettext_noop("There was no answer within %(seconds)d s; the message may have been stored."),
    "client_too_old": gettext_noop(
        "%(client)s has version %(version)s, which does not know this question; V3_1_8 or later does."
    ),
    "client_silent": gettext_noop("%(client)s has left, or has not answered within %(seconds)d s."),
    "client_being_asked": gettext_noop("%(client)s is being asked already; wait for its answer."),
    "client_refused": gettext_noop("%(client)s answered with code %(number)d: %(reason)s"),
    "client_unreadable": gettext_noop("The answer of %(client)s cannot be read: %(reason)s."),
    "out_of_range": gettext_noop("%(field)s must be between %(low)d and %(high)d."),
    "one_of": gettext_noop("%(field)s must be one of %(choices)s."),
    "cannot_sort": gettext_noop("It cannot be sorted by %(key)s; choose one of %(choices)s."),
    "not_a_time": gettext_noop("%(field)s must be milliseconds since 1970."),
    "times_reversed": gettext_noop("The end time is before the start time."),
    "bad_cursor": gettext_noop("This page link is no longer valid."),
    "foreign_cursor": gettext_noop("This page link belongs to another topic."),
    "cursor_of_another_filter": gettext_noop("This page link belongs to another filter."),
    "bad_filter": gettext_noop("The filter is wrong at line %(line)d, column %(column)d: %(reason)s."),
    "bad_place": gettext_noop("A message's place is written topic/queue/offset."),
    "bad_offset_id": gettext_noop("This is neither an offset id nor a unique id; those have 32 or more hex digits."),
    "place_no_topic": gettext_noop("There is no topic %(topic)s."),
    "place_no_queue": gettext_noop("The topic %(topic)s has no queue %(queue)d. Queues: %(count)d."),
    "place_queue_empty": gettext_noop("Queue %(queue)d of %(topic)s has no messages."),
    "place_behind_end": gettext_noop("Queue %(queue)d of %(topic)s ends at %(end)d."),
    "place_expired": gettext_noop("That message has expired: queue %(queue)d of %(topic)s begins at %(begin)d."),
    "topic_exists": gettext_noop("The topic %(name)s already exists."),
    "group_exists": gettext_noop("The group %(name)s already exists."),
    "changed_meanwhile": gettext_noop("%(name)s was changed in the meantime; look again."),
    "clean_up_unknown": gettext_noop(
        "So many messages wait to be delivered that their topics cannot be listed; try again later."
    ),
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
    # replay of dead letters
    "replay_rests": gettext_noop(
        "This broker takes no messages now. The job goes on from here when it takes them again."
    ),
    "replay_store_refused": gettext_noop("The message log takes no messages: %(reason)s."),
    "replay_unreadable": gettext_noop("Dead letters cannot be read: %(reason)s."),
    "replay_journal_failing": gettext_noop("The job's journal cannot be written: %(reason)s."),
    "replay_journal_damaged": gettext_noop("The job's journal cannot be read: %(reason)s. Nothing is sent for it."),
    "replay_target_gone": gettext_noop("The topic %(topic)s no longer exists."),
    "replay_target_changed": gettext_noop(
        "The topic %(topic)s was deleted and made again; what was sent there is not known."
    ),
    "replay_target_unwritable": gettext_noop("Writing to the topic %(topic)s is not allowed."),
    "replay_target_unreadable": gettext_noop("The topic %(topic)s cannot be read to see what was sent: %(reason)s."),
    "replay_start_expired": gettext_noop(
        "The last messages sent to %(topic)s have expired; going on could send messages twice."
    ),
    "replay_group_gone": gettext_noop("The group %(group)s no longer exists."),
    "replay_letters_gone": gettext_noop("The topic %(topic)s with the dead letters no longer exists."),
    "replay_not_reached": gettext_noop("The job has not come to it."),
    "replay_guarded": gettext_noop("Replays so far: %(count)d or more."),
    "replay_record_unreadable": gettext_noop("The dead letter cannot be read."),
    "replay_no_origin": gettext_noop("It does not say which topic it was sent to."),
    "replay_no_topic": gettext_noop("The topic it was to go to does not exist."),
    "replay_too_long": gettext_noop("Its properties leave no room for those of the replay."),
    "replay_refused": gettext_noop("The broker does not take it."),
    "replay_outcome_unknown": gettext_noop("It was perhaps sent; it can no longer be found out whether it was stored."),
    "replay_to_everybody": gettext_noop("Every group that consumes the original topic gets these messages again."),
    "replay_other_topic": gettext_noop("Every group that consumes %(topic)s gets these messages."),
    "replay_under_way": gettext_noop("Dead letters of %(group)s are being replayed already, by job %(job)s."),
    "too_many_replays": gettext_noop("There are %(count)d replay jobs that are not finished."),
    "replay_not_so": gettext_noop("Job %(job)s is %(state)s."),
    "replay_topic_missing": gettext_noop("Name the topic that the copies go to."),
    "replay_topic_unused": gettext_noop('A topic is named only with the target "topic", not with %(target)s.'),
    "replay_offsets_or_times": gettext_noop("Give offsets or times, not both."),
    "replay_offsets_or_filter": gettext_noop("Give offsets or a filter, not both."),
    "replay_not_chosen": gettext_noop("The filter leaves it out."),
    "replay_nothing": gettext_noop("There is nothing to replay."),
    "replay_too_many": gettext_noop("These are %(count)d messages; one job replays %(limit)d at most."),
    "replay_no_such_offset": gettext_noop("Queue %(queue)d has no offset %(offset)d; it ends at %(end)d."),
    "replay_long_list": gettext_noop("A list holds %(limit)d offsets at most."),
    "group_or_topic": gettext_noop("Choose a group or a topic, not both."),
    "queue_or_key": gettext_noop("Give either a queue or a sharding key, which chooses one."),
    "filter_too_long": gettext_noop("A filter has at most %(limit)d characters."),
    "expression_wrong": gettext_noop("This is no SQL92 expression: %(reason)s."),
    "level_or_time": gettext_noop("Give either a delay level or a time."),
    "waiting_record_gone": gettext_noop("Its record is no longer in the log."),
    "waiting_target_missing": gettext_noop("Its record does not say where it is to go."),
    "waiting_topic_gone": gettext_noop("The topic %(topic)s that it is for does not exist."),
    "waiting_places_or_filter": gettext_noop("Name the messages, or choose them by group, topic or level."),
    "retry_of_another": gettext_noop("One of these messages is not a retry of this group."),
    "waiting_bad_place": gettext_noop("A waiting message is named by its level and its offset there."),
    "waiting_delivered": gettext_noop("It is being delivered, or has been."),
    "waiting_handled": gettext_noop("It has been handled before."),
    "waiting_taken": gettext_noop("Somebody else is handling it at this moment."),
    "waiting_another": gettext_noop("Another message waits there by now."),
    "waiting_no_retry": gettext_noop("It is not a retry of a group, so it cannot become a dead letter."),
    "waiting_no_topic": gettext_noop("It cannot go there: %(reason)s."),
    "waiting_refused": gettext_noop("It was not stored: %(reason)s. It will be delivered when it is due."),
    "waiting_unsure": gettext_noop("It may have been stored; it will also be delivered when it is due."),
    "waiting_not_saved": gettext_noop("This cannot be saved: %(reason)s. It will be delivered when it is due."),
    "waiting_done_for_now": gettext_noop(
        "Done; but it may come again, after a restart or at the next leader: %(reason)s."
    ),
    "transactions_unrecorded": gettext_noop(
        "How transactions end cannot be written down; dropped so far: %(count)d: %(reason)s."
    ),
    "transactions_without_producer": gettext_noop(
        "Open transactions of %(group)s: %(count)d. None of its producers is connected, and the oldest one is "
        "%(minutes)d minutes old."
    ),
    "transactions_undecided": gettext_noop(
        "Open transactions whose producers were asked %(checks)d times or more and have not decided: %(count)d."
    ),
    "half_gone": gettext_noop("The half message is no longer in the log."),
    "half_topic_gone": gettext_noop("The topic %(topic)s that it is for does not exist: it cannot be committed."),
    "half_too_old": gettext_noop("It was older than the %(hours)d hours for which messages are kept."),
    "half_checks_used_up": gettext_noop("Its producers were asked, and nobody had decided it. Checks: %(checks)d."),
    "ends_unreadable": gettext_noop("How transactions ended cannot be read: %(reason)s."),
    "half_bad_place": gettext_noop("An open transaction is named by the offset of its half message."),
    "half_places_or_filter": gettext_noop("Name the transactions, or choose them by topic, group or key."),
    "half_places_needed": gettext_noop("Name the transactions that are to be decided, %(limit)d at most."),
    "half_reason_missing": gettext_noop("Say why: this may contradict what the producer's own records say."),
    "half_reason_long": gettext_noop("The reason has %(count)d characters; at most %(limit)d are kept."),
    "half_another": gettext_noop("Another half message is there by now."),
    "half_no_producer": gettext_noop("No producer of its group is connected."),
    "half_busy": gettext_noop("Its producers take no further questions at this moment."),
    "half_refused": gettext_noop("It was not decided: %(reason)s. It is still open."),
    "half_unsure": gettext_noop("This is written down, and will be done at the next start at the latest."),
    "half_not_saved": gettext_noop("The journal of decisions cannot be written: %(reason)s. Nothing was done."),
    "half_decided": gettext_noop("It was decided before."),
    "half_committed_by_producer": gettext_noop("Its producer has committed it."),
    "half_rolled_back_by_producer": gettext_noop("Its producer has rolled it back."),
    "half_committed_by_admin": gettext_noop("It was committed before by %(admin)s."),
    "half_rolled_back_by_admin": gettext_noop("It was rolled back before by %(admin)s."),
    "half_set_aside": gettext_noop("It was set aside before, as nobody had decided it."),
    "half_no_delay": gettext_noop("A message of a transaction takes neither a delay level nor a time here."),
    "half_bad_group": gettext_noop("Name the producer group with letters, digits and _-|%% only, 255 at most."),
    "half_rejected": gettext_noop("rejectTransactionMessage is on: messages of transactions are refused."),
    "half_open": gettext_noop("The transaction is open: nobody has decided it yet."),
    "half_not_committed": gettext_noop("The transaction was not committed."),
    "half_unknown": gettext_noop("The transaction has ended; it is no longer known whether it was committed."),
    "not_discarded": gettext_noop("This message is no discarded transaction."),
    "resumed_before": gettext_noop("This transaction was resumed before."),
    "not_resumed": gettext_noop("It could not be resumed: %(reason)s."),
    "offsets_nothing": gettext_noop("There is no queue to move."),
    "offsets_none": gettext_noop("There is no offset yet that could be moved from."),
    "offsets_no_shift": gettext_noop("A shift needs a number of messages, forward or back."),
    "offsets_need_time": gettext_noop("Give a date and time to move to."),
    "offsets_need_offset": gettext_noop("Name the queues and the offset that they move to."),
    "offsets_too_many": gettext_noop("These are %(count)d queues; at most %(limit)d are moved at once."),
    "offsets_same_group": gettext_noop("A group cannot take over its own offsets."),
    "offset_beyond": gettext_noop("Queue %(queue)d of %(topic)s has the offsets %(low)d to %(high)d, not %(offset)d."),
    "offset_expired": gettext_noop(
        "The messages from %(offset)d on have expired; it goes to the first that is there, %(target)d."
    ),
    "offset_behind_end": gettext_noop("The queue ends before %(offset)d; it goes to the end, %(target)d."),
    "offset_moved_on": gettext_noop("It was sent to %(sent)d and is at %(now)d now."),
    "offset_passed": gettext_noop(
        "The group has gone on: in queue %(queue)d of %(topic)s it is at %(now)d, behind that message."
    ),
    "offsets_online": gettext_noop("Connected clients, which are notified: %(count)d."),
    "offsets_undone": gettext_noop("This was taken back before."),
    "offsets_all_gone": gettext_noop("None of these queues can be moved back."),
    "offsets_lost_queues": gettext_noop("Queues that are gone since: %(count)d; they are left out."),
    "offsets_left": gettext_noop(
        "Queues without an offset before, in use since: %(count)d; they are left where they are."
    ),
    "library_missing": gettext_noop(
        "The body is %(kind)s; the Python package %(package)s that reads it is not installed."
    ),
    "bad_compression": gettext_noop("The body is marked as %(kind)s, but cannot be decompressed: %(reason)s."),
    "bomb": gettext_noop("The body decompresses to more than %(limit)d bytes; the rest is not shown."),
    "too_long": gettext_noop("The first %(shown)d of %(total)d bytes are shown."),
    "not_utf8": gettext_noop("The body is not UTF-8 text."),
}

#: The audit log's verdicts, the same as `audit_seal.TEMPLATES`, which has no catalogue either.
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
