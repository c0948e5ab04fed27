"""The window's sentences: one table of English templates with named placeholders.

`str(sentence)` is English. A page translates `template` and fills in `args`; the marks `_` and `ngettext_lazy` bring
each template into the console's catalogue.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field

from ..hotpath.choice import REASONS
from ..plain_text import size_text, span_text
from ..translatable import Plural, english, ngettext_lazy
from ..translatable import gettext_noop as _

#: code -> template.
TEMPLATES: dict[str, str | Plural] = {
    # checks
    "io_running": _("The network thread is running."),
    "io_ended": _("The network thread has stopped. Restart the broker."),
    "store_writable": _("The message log accepts messages."),
    "store_broken": _("The message log is read-only because a write failed: %(reason)s. Restart the broker."),
    "queues_written": _("Queue files are being written."),
    "queues_failing": _("Queue files cannot be written; trying again: %(reason)s."),
    "index_current": _("The key index is up to date."),
    "index_behind": _("The key index is %(size_bytes)d bytes behind the log; queries by key miss the newest messages."),
    "index_failing": _("The key index cannot be written; trying again: %(reason)s."),
    "index_off": _("messageIndexEnable is off: messages cannot be found by key."),
    "tables_saved": _("Topics, groups and offsets are saved."),
    "transactions_checked": _("Producers are asked how open transactions end."),
    "transactions_failing": _("Transactions wait for their end: %(reason)s."),
    "transactions_unrecorded": ngettext_lazy(
        "How transactions end cannot be written down (%(reason)s). %(count)d entry has been dropped so far.",
        "How transactions end cannot be written down (%(reason)s). %(count)d entries have been dropped so far.",
    ),
    "delays_delivered": _("Delayed messages come when they are due."),
    "delays_failing": _("Delayed messages that are due wait: %(reason)s."),
    "tables_failing": _("The table of %(table)s cannot be saved: %(reason)s."),
    "deliveries_recorded": _("Deliveries are being recorded."),
    "deliveries_off": _("maxDeliveryEventBytes is 0: deliveries are not recorded."),
    "deliveries_failing": ngettext_lazy(
        "Deliveries cannot be recorded (%(reason)s). %(count)d record has been dropped so far.",
        "Deliveries cannot be recorded (%(reason)s). %(count)d records have been dropped so far.",
    ),
    "certificate_valid": ngettext_lazy(
        "The TLS certificate in %(file)s is valid for %(count)d more day.",
        "The TLS certificate in %(file)s is valid for %(count)d more days.",
    ),
    "certificate_ends_soon": ngettext_lazy(
        "The TLS certificate in %(file)s ends in %(count)d day. Replace both files; no restart is needed.",
        "The TLS certificate in %(file)s ends in %(count)d days. Replace both files; no restart is needed.",
    ),
    "certificate_expired": _(
        "The TLS certificate in %(file)s has expired: clients that check certificates refuse it. Replace both files; "
        "no restart is needed."
    ),
    "certificate_refused": _("Clients that check certificates refuse the one in %(file)s: %(reason)s."),
    "certificate_stays": _(
        "The changed TLS certificate in %(file)s is not used, and the one before it is still served: %(reason)s."
    ),
    "wire_audit_failing": _("What admin tools did cannot be saved; it is kept in memory for now: %(reason)s."),
    "namesrv_registered": _("Registered with name server %(address)s."),
    "namesrv_lost": _(
        "The last registration with name server %(address)s failed; its clients may not find this broker."
    ),
    "slave_follows": _("This broker is a slave and copies its master at %(address)s."),
    "slave_alone": _("This broker is a slave and does not follow its master: %(reason)s."),
    "slave_changes_at": _(
        "This broker is a slave: what it has comes from its master at %(address)s, and is changed there."
    ),
    "slave_lags": _("The slave at %(address)s is %(late_span)s (%(size_bytes)d bytes) behind."),
    "slave_lags_far": _("The slave at %(address)s is %(size_bytes)d bytes behind: it does not count as in sync."),
    "slave_gone": _("The slave at %(address)s is gone since %(since_at_ms)s."),
    "slave_behind": _("This slave is %(late_span)s (%(size_bytes)d bytes) behind its master at %(address)s."),
    "slaves_missing": ngettext_lazy(
        "Sends time out, and consumers see no new messages: a SYNC_MASTER waits for %(needed)d slave, and has "
        "%(count)d.",
        "Sends time out, and consumers see no new messages: a SYNC_MASTER waits for %(needed)d slaves, and has "
        "%(count)d.",
        "needed",
    ),
    "slaves_follow": ngettext_lazy("%(count)d slave follows this broker.", "%(count)d slaves follow this broker."),
    "slaves_none": _("No slave follows this broker."),
    "slave_silent": _("The slave has not said yet how far it is."),
    "master_not_asked": _("The master has not been asked yet how far it is."),
    "lag_before_start": _("It is longer than this broker has looked."),
    "set_store_answers": _("The store that decides who leads answers: %(store)s."),
    "set_store_silent": _(
        "The store that decides who leads does not answer: %(store)s. Nobody can be elected meanwhile."
    ),
    "set_store_short": _("The store that decides who leads runs out of room: %(reason)s."),
    "set_leads": _("This broker leads its set in epoch %(epoch)d."),
    "set_follows": _("This broker follows the leader of its set at %(address)s in epoch %(epoch)d."),
    "set_no_leader": _("The set %(set)s has no leader: sends are refused until one is elected."),
    "set_fenced": _("This broker is fenced: it neither leads nor follows."),
    "set_frozen": _(
        "This broker is frozen: the store contradicts what this member has seen. Find out why, then adopt the set."
    ),
    "set_too_few": ngettext_lazy(
        "Sends are refused: minInSyncReplicas is %(needed)d, and %(count)d member has all messages.",
        "Sends are refused: minInSyncReplicas is %(needed)d, and %(count)d members have all messages.",
    ),
    "set_one_copy": _("Acknowledged messages are on this broker only: no other member of the set is in sync."),
    "set_copies": ngettext_lazy(
        "%(count)d member has every acknowledged message.", "%(count)d members have every acknowledged message."
    ),
    "set_contradicts": _(
        "The member at %(address)s has other settings than this one, and would lead by them: %(settings)s."
    ),
    "set_member_slow": _(
        "The member at %(address)s takes %(late_span)s to acknowledge: it is left out and may not be elected until its "
        "disk and its network are quick again."
    ),
    "set_member_slow_kept": _(
        "Each message waits for the member at %(address)s, which takes %(late_span)s to acknowledge. It is not left "
        "out, since too few others are in sync."
    ),
    "set_member_lost": _("The member at %(address)s does not follow."),
    "set_member_lost_since": _("The member at %(address)s does not follow; it was last heard of at %(since_at_ms)s."),
    "set_quarantined": ngettext_lazy(
        "%(count)d file keeps messages that were cut from this broker's log, %(messages)d in all. Check "
        "whether any of them had been acknowledged to a producer.",
        "%(count)d files keep messages that were cut from this broker's log, %(messages)d in all. Check "
        "whether any of them had been acknowledged to a producer.",
    ),
    "quarantine_unreadable": _("The file cannot be read: %(reason)s."),
    "quarantine_of_the_broker": _("%(topic)s is the broker's own: what was stored there is not sent again."),
    "quarantine_refused": _("The leader refuses it: %(reason)s."),
    "quarantine_nowhere": _("No leader is known, so there is no broker to send it to."),
    "leader_silent": _("The leader at %(address)s does not take it now: %(reason)s."),
    "follower_changes": _("This broker follows %(address)s, which leads the set: changes are made there."),
    "follower_changes_nowhere": _("This broker does not lead its set, and no leader is known: nothing can be changed."),
    "slave_changes": _("This broker is a slave: what it has comes from its master, and is changed there."),
    "no_set": _("This broker is in no set with fail-over: haStore is not set."),
    "set_begins": _("Fail-over has not begun yet; this process has just started."),
    "set_store_fails": _("The store where it is decided who leads cannot be asked: %(reason)s."),
    "member_waits": _("This member neither leads nor follows: %(reason)s."),
    "switch_elsewhere": _("This member does not lead. Ask the one that does: %(leader)s."),
    "switch_nobody": _("There is no other member that is connected and in sync, so nobody could lead instead."),
    "switch_leads": _("%(member)s leads already."),
    "switch_gone": _("%(member)s is not connected to the leader, so it cannot take over."),
    "switch_behind": _("%(member)s is connected but not in sync: what was acknowledged would be missing there."),
    "adopt_elsewhere": _("A member is adopted on its own machine: ask %(address)s."),
    "adopt_confirm": _("Type the name of the set to confirm: %(set)s."),
    "adopt_leads": _("This member leads already: there is nothing to adopt."),
    "adopt_may_lose": _(
        "Up to %(bytes)d bytes that others hold or acknowledged are not in this member's log, and are lost to the set."
    ),
    "set_act_takes_long": _("It was not done in 15 s. It may be done yet: look at the set again."),
    "set_act_refused": _("Nothing was changed: %(reason)s."),
    "slaves_behind": _("Sends are refused: %(reason)s."),
    "no_namesrv": _("This broker is not registered with any name server: clients cannot find it."),
    "disk_roomy": _("%(free_bytes)d bytes of the disk are free (%(used_percent).1f %% used)."),
    "disk_filling": _("The disk is %(used_percent).1f %% full; diskMaxUsedSpaceRatio is %(limit_percent)d %%."),
    "disk_deletes": _(
        "The disk is %(used_percent).1f %% full: the oldest messages are deleted whatever their age. From "
        "%(limit_percent)d %% on sends are refused."
    ),
    "disk_full": _("The disk is %(used_percent).1f %% full: sends are refused until it is below %(limit_percent)d %%."),
    "cleaning_well": _("Expired files are being deleted."),
    "cleaning_failing": _("Expired files cannot be deleted: %(reason)s."),
    "clock_ahead": _("The clock jumped %(hours).1f h ahead. Nothing expires until it has stayed there for an hour."),
    "disk_unreadable": _("Free disk space cannot be read: %(reason)s."),
    "sync_flush": _("Every acknowledged message is on disk."),
    "async_flush": _(
        "flushDiskType is ASYNC_FLUSH: a power cut can take the last half second of acknowledged messages."
    ),
    "advertised_loopback": _("Clients are given %(address)s, which works on this machine only."),
    "advertised_elsewhere": _(
        "Clients are told %(address)s, but the ports listen on %(bind)s only, so they cannot connect. Restart with "
        "--bind 0.0.0.0 or --bind %(host)s."
    ),
    "advertised": _("Clients are given %(address)s."),
    "back_pressure": _(
        "The disk cannot keep up with the producers; nothing more is read from them until it catches up."
    ),
    "flow_free": _("The disk keeps up with the producers."),
    "nothing_found": _("Nothing in the store was cut off, quarantined or set aside in the last week."),
    "found_lately": ngettext_lazy(
        "%(count)d problem was found in the store in the last week, in %(place)s. %(reason)s",
        "%(count)d problems were found in the store in the last week, the latest in %(place)s. %(reason)s",
    ),
    "bytes_changed": ngettext_lazy(
        "%(count)d part of the closed log files has changed since, in %(place)s.",
        "%(count)d parts of the closed log files have changed since, the first in %(place)s.",
    ),
    "replay_well": _("Replay jobs are kept."),
    "replay_failing": _("Replay jobs cannot be kept on disk: %(reason)s."),
    # users of the wire
    "access_off": _("Access control is off: accessControl is off, and there are no wire users."),
    "wire_user_name": _("A wire user's name has 1 to 64 letters, digits and . _ -, and at least one letter or digit."),
    "wire_user_exists": _("There is already a wire user %(name)s."),
    "wire_users_most": _("There are %(count)d wire users, which is the most."),
    "entries_most": _("A wire user has at most %(count)d entries."),
    "last_super": _(
        "This is the last Super user who is enabled: nobody could administer the broker over the wire any more."
    ),
    "wire_users_elsewhere": _("These wire users are copies, and are changed at another broker (%(where)s)."),
    "wire_users_unconfirmed": _(
        "It is changed here, but not all members in sync have confirmed it: a fail-over now could undo it. "
        "Look again in a moment."
    ),
    "wire_users_not_at_slaves": _(
        "It is changed here, but not all slaves have confirmed that they have it. Look again in a moment."
    ),
    "two_secrets": _("%(name)s has two secrets already. End the old one first."),
    "one_secret": _("%(name)s has only one secret, and that one stays."),
    "wrong_quota": _("%(quota)s is a whole number from 0, which is no limit, to %(most)d."),
    "bad_secret": _("A secret has %(shortest)d to %(longest)d printable characters, and no blank at its ends."),
    "example_secret": _("This secret stands in public examples: everyone knows it."),
    "same_secret": _("This is the secret that the user has."),
    "secret_unneeded": _("This act needs no secret."),
    "entry_refused": _("The entry is refused: %(reason)s."),
    "wire_user_hung_up": _("Connections on which %(name)s signed are closed; what they asked for is judged anew."),
    "wire_user_shut_out": _(
        "This server serves no TLS (tlsMode is disabled): nothing that %(name)s asks is allowed while it has to come "
        "over TLS."
    ),
    "resource_literal": _("Name one topic, group or cluster: Topic:orders, Group:billing, Cluster:DefaultCluster."),
    "bad_address": _("This is no address like 10.0.0.5 or 2001:db8::5."),
    # a connection that is tried as a client would make it
    "try_no_name_server": _("No name server runs here: try the connection at the one that your clients go to."),
    "try_no_host": _("%(host)s is neither an IP address nor a host name."),
    "try_unknown_name": _(
        "This machine knows no address of %(host)s: enter the name where names are looked up (DNS), or take an IP "
        "address."
    ),
    "try_name": _("%(host)s leads to %(addresses)s."),
    "try_bound": _(
        "%(address)s refuses connections, because the ports listen on %(bind)s only: start RocketBox with --bind "
        "0.0.0.0, and in a container publish the ports."
    ),
    "try_refused": _(
        "%(address)s refuses connections: nothing listens there. Check the port, and which machine %(host)s is."
    ),
    "try_silent": _("%(address)s does not answer: open its port in the firewall, or correct the address."),
    "try_no_way": _("There is no way to %(address)s from here: correct the address, or the network's routes."),
    "try_port": _("%(address)s takes connections."),
    "try_plain": _("This server serves no TLS, and the client does not ask for it."),
    "try_tls_needed": _("This server takes encrypted connections only: switch TLS on in the client."),
    "try_tls_possible": _("The connection is not encrypted: others can read it. Switch TLS on in the client."),
    "try_no_tls": _("This server serves no TLS: switch it off in the client, or set tlsMode here."),
    "try_without_tls_needed": _(
        "The released version of this client cannot encrypt, and this server takes encrypted connections only: take "
        "another client, or set tlsMode=permissive."
    ),
    "try_without_tls_possible": _(
        "The released version of this client cannot encrypt: it connects without TLS, and others can read that."
    ),
    "try_no_handshake": _("The TLS handshake with %(address)s fails: %(reason)s. Look at the certificate's files."),
    "try_expired": ngettext_lazy(
        "The certificate of %(address)s ended %(count)d day ago: replace both files; no restart is needed.",
        "The certificate of %(address)s ended %(count)d days ago: replace both files; no restart is needed.",
    ),
    "try_not_yet": _("The certificate of %(address)s is not valid yet: compare the clocks, or replace both files."),
    "try_unnamed": _(
        "The certificate names %(names)s and not %(host)s: connect to one of these, say server_name in the client, or "
        "make a certificate with this name."
    ),
    "try_nameless": _("The certificate names no host, so this client refuses it: make one that names %(host)s."),
    "try_ends_soon": ngettext_lazy(
        "The certificate of %(address)s ends in %(count)d day: replace both files; no restart is needed.",
        "The certificate of %(address)s ends in %(count)d days: replace both files; no restart is needed.",
    ),
    "try_certificate": ngettext_lazy(
        "%(address)s encrypts, with a certificate that is valid for %(count)d more day. The client has to trust it.",
        "%(address)s encrypts, with a certificate that is valid for %(count)d more days. The client has to trust it.",
    ),
    "try_client_certificate": _(
        "Clients have to show a certificate of their own: give the client one that the authority in tlsClientCaFile "
        "signed."
    ),
    "try_route": ngettext_lazy(
        "The name server knows %(topic)s, at %(count)d broker.",
        "The name server knows %(topic)s, at %(count)d brokers.",
    ),
    "try_other_name_server": _(
        "%(address)s leads to another name server: its route differs from that of %(namesrv)s. Correct the address."
    ),
    "try_topic_comes": _("There is no topic %(topic)s yet: the first message to it makes it."),
    "try_no_topic": _("There is no topic %(topic)s, and messages to it do not make it: create it first."),
    "try_no_master": _("The name server knows %(topic)s, but no broker of it that takes messages: start its master."),
    "try_no_answer": _(
        "The name server at %(address)s gives no answer (%(reason)s): check that a RocketMQ name server listens there."
    ),
    "try_other_answer": _(
        "The name server at %(address)s refuses to tell the route, with code %(number)d: %(remark)s. Look at its log."
    ),
    "try_unknown_broker": _(
        "Clients are told %(address)s, and this machine knows no address of %(host)s: start the broker with an "
        "--advertise that clients can look up."
    ),
    "try_told_loopback": _(
        "Clients are told %(address)s, which leads each of them to its own machine: start the broker with --advertise "
        "and a name or address that they can reach."
    ),
    "try_broker": _("Clients are told %(address)s, and it takes connections."),
    "try_broker_here": _("Clients are told %(address)s, which programs on this machine only can reach."),
    "try_open": _("Access control is off: every client may send and consume."),
    "try_user_unneeded": _("Access control is off: the client's user and secret are not looked at."),
    "try_no_user": _("Access control is on, and the client signs nothing: give it the name and the secret of a user."),
    "try_no_user_reported": _(
        "Access control is in report mode: the client may send and consume, but it signs nothing. Give it the name and "
        "the secret of a user before access control enforces."
    ),
    "try_user_unsaid": _(
        "Access control is on: the client needs the name and the secret of a user. An administrator can try what the "
        "user may do."
    ),
    "try_user_unsaid_reported": _(
        "Access control is in report mode: every client may send and consume. Once it enforces, the client needs the "
        "name and the secret of a user. An administrator can try what the user may do."
    ),
    "try_unknown_user": _("There is no wire user %(user)s: make it under Wire users, or correct the name."),
    "try_disabled": _("%(user)s is disabled: enable it, or take another user."),
    "try_no_entry": _(
        "%(user)s has no right %(action)s on %(resource)s from %(address)s: add an entry to its policies."
    ),
    "try_denied": _(
        "%(user)s has no right %(action)s on %(resource)s from %(address)s, since its entry for %(entry)s denies it: "
        "change that entry."
    ),
    "try_may": _("%(user)s may send to %(topic)s, and consume it as %(group)s."),
    "decided_super": _("%(name)s is a Super user, who may do everything."),
    "decided_disabled": _("%(name)s is disabled: every request is refused."),
    "decided_over_tls": _("%(name)s has to come over TLS: what it asks in clear is refused."),
    "decided_allow": _("The entry for %(resource)s decides: it allows."),
    "decided_deny": _("The entry for %(resource)s decides: it denies."),
    "decided_nothing": _("No entry fits, so it is refused."),
    "import_none": _("This is no file with accounts of ACL 1.0, as plain_acl.yml (%(reason)s)."),
    "import_stricter": _(
        "ACL 1.0 leaves some requests unchecked, tracing among them. Start with accessControl=report, and look at what "
        "would be refused."
    ),
    "import_global": _(
        "globalWhiteRemoteAddresses is not taken over: requests from %(addresses)s needed no signature, and need one "
        "here."
    ),
    "import_address": _(
        "whiteRemoteAddress is not taken over: requests from %(address)s needed no signature, and need one here."
    ),
    "import_limited": _("It was kept to its own permissions, and is a Super user here: it may do everything."),
    "import_permission": _(
        "“%(text)s” in %(field)s is no permission. It is refused here, as by ACL 1.0; RocketMQ 5.3.3 makes an entry of "
        "it that allows everything."
    ),
    "import_again": _(
        "%(text)s is named twice in %(field)s. The last one counts, as in ACL 1.0; in RocketMQ 5.3.3 the one that "
        "allows."
    ),
    "import_line": _("“%(text)s” in %(field)s is not taken over (%(reason)s)."),
    "import_asked": _("The entries allow all that its clients have asked for in the last day."),
    "import_unasked": _("Its clients have asked for nothing in the last day, as far as this broker has seen."),
    "import_would_refuse": _("Its clients have asked in the last day for what the entries do not allow (%(what)s)."),
    "import_apache_otherwise": _("RocketMQ 5.3.3 would decide this otherwise by the same account (%(what)s)."),
    "import_exists": _("There is a wire user of this name, which stays as it is."),
    "import_refused": _("It is not taken over (%(reason)s)."),
    "apache_same": _("RocketMQ 5.3.3 would say the same."),
    "apache_allow": _("RocketMQ 5.3.3 would allow it, by the entry for %(resource)s."),
    "apache_deny": _("RocketMQ 5.3.3 would refuse it, by the entry for %(resource)s."),
    "apache_nothing": _("RocketMQ 5.3.3 would refuse it: no entry fits there."),
    "apache_no_tls": _("RocketMQ 5.3.3 holds no user to TLS: it would go by the entries."),
    "apache_untold": _("What RocketMQ 5.3.3 would say is not known: too many entries fit."),
    # needs you
    "dead_letters": ngettext_lazy("%(group)s has %(count)d dead letter.", "%(group)s has %(count)d dead letters."),
    "dead_letters_expire": ngettext_lazy(
        "%(group)s has %(count)d dead letter. It may be deleted in %(left_span)s.",
        "%(group)s has %(count)d dead letters. The first may be deleted in %(left_span)s.",
    ),
    "supers_in_clear": ngettext_lazy(
        "%(count)d Super user, %(names)s, signs requests in clear from another machine. Whoever reads one on the "
        "network can send it again.",
        "%(count)d Super users, among them %(names)s, sign requests in clear from other machines. Whoever reads one on "
        "the network can send it again.",
    ),
    "users_at_quota": ngettext_lazy(
        "%(count)d wire user, %(names)s, reached a quota in the last minute.",
        "%(count)d wire users, among them %(names)s, reached a quota in the last minute.",
    ),
    "nobody_consumes": _("%(group)s has a backlog of %(lag)d, and none of its clients is connected."),
    "nobody_consumes_late": ngettext_lazy(
        "%(group)s is %(late_span)s behind, and none of its clients is connected. %(lag)d message is waiting.",
        "%(group)s is %(late_span)s behind, and none of its clients is connected. %(lag)d messages are waiting.",
        "lag",
    ),
    "consumption_is_off_behind": ngettext_lazy(
        "Consumption is switched off for %(group)s. %(lag)d message is waiting.",
        "Consumption is switched off for %(group)s. %(lag)d messages are waiting.",
        "lag",
    ),
    "falls_behind": ngettext_lazy(
        "%(group)s keeps falling behind, now by %(late_span)s: %(came)s/s in, %(went)s/s out. "
        "%(lag)d message is waiting.",
        "%(group)s keeps falling behind, now by %(late_span)s: %(came)s/s in, %(went)s/s out. "
        "%(lag)d messages are waiting.",
        "lag",
    ),
    "catching_up": ngettext_lazy(
        "%(group)s is %(late_span)s behind and catches up in about %(eta_span)s. %(lag)d message is waiting.",
        "%(group)s is %(late_span)s behind and catches up in about %(eta_span)s. %(lag)d messages are waiting.",
        "lag",
    ),
    "queues_stuck": ngettext_lazy(
        "%(count)d queue of %(group)s has not moved for %(idle_span)s, with a backlog of %(lag)d: %(queues)s.",
        "%(count)d queues of %(group)s have not moved for %(idle_span)s, with a backlog of %(lag)d: %(queues)s.",
    ),
    "queues_unread": ngettext_lazy(
        "%(topic)s has %(count)d message that nobody can read: its queue has the number %(queues)d or a higher "
        "one, and is no read queue of the topic.",
        "%(topic)s has %(count)d messages that nobody can read: their queues have the number %(queues)d or a "
        "higher one, and are no read queues of the topic.",
    ),
    "queues_unreadable": ngettext_lazy(
        "%(topic)s has %(write)d write queues and %(read)d read queue: messages sent to the others cannot be read.",
        "%(topic)s has %(write)d write queues and %(read)d read queues: messages sent to the others cannot be read.",
        "read",
    ),
    "deleted_unread_soon": _(
        "At this rate messages of %(topic)s will be deleted in %(left_span)s, before %(group)s has read them."
    ),
    "deleted_unread": ngettext_lazy(
        "Retention deleted %(count)d message of %(topic)s before %(group)s had read it, %(for_span)s ago.",
        "Retention deleted %(count)d messages of %(topic)s before %(group)s had read them, the last %(for_span)s ago.",
    ),
    "deleted_unread_by_some": ngettext_lazy(
        "Retention deleted %(count)d message before it was read, %(for_span)s ago. It is no longer known which group "
        "lost it.",
        "Retention deleted %(count)d messages before they were read, the last %(for_span)s ago. It is no longer known "
        "which groups lost them.",
    ),
    "disk_full_soon": _("At the rate of the last ten minutes the disk reaches its limit on %(full_at_ms)s."),
    "transactions_without_producer": ngettext_lazy(
        "%(group)s has %(count)d open transaction, and none of its producers is connected. It is %(minutes)d "
        "minutes old.",
        "%(group)s has %(count)d open transactions, and none of its producers is connected. The oldest one is "
        "%(minutes)d minutes old.",
    ),
    "transactions_undecided": ngettext_lazy(
        "%(count)d open transaction is still undecided after its producers were asked %(checks)d times or more.",
        "%(count)d open transactions are still undecided after their producers were asked %(checks)d times or more.",
    ),
    "stuck": _("%(group)s has a backlog of %(lag)d, and has committed nothing for %(idle_span)s."),
    "client_id_twice": _("Several clients of %(group)s are called %(client)s; some of its queues are read by nobody."),
    "subscriptions_differ": _("Clients of %(group)s subscribe to different things; some messages may reach nobody."),
    "more_needs": ngettext_lazy("%(count)d more group needs a look.", "%(count)d more groups need a look."),
    # what is wrong with a group
    "diag_deleted_unread": ngettext_lazy(
        "Retention deleted %(count)d message of %(topic)s before the group had read it, %(for_span)s ago.",
        "Retention deleted %(count)d messages of %(topic)s before the group had read them, the last %(for_span)s ago.",
    ),
    "diag_deleted_soon": _(
        "At this rate messages of %(topic)s will be deleted in %(left_span)s, before the group has read them."
    ),
    "diag_consumption_off": _("Consumption is switched off: its consumers get no messages."),
    "diag_nobody_pulls": ngettext_lazy(
        "Its clients are connected, and have not pulled the %(count)d message that has waited for %(for_span)s.",
        "Its clients are connected, and have pulled none of the %(count)d messages that have waited for %(for_span)s.",
    ),
    "diag_no_consumer": ngettext_lazy(
        "No consumer is connected, and %(count)d message is waiting.",
        "No consumer is connected, and %(count)d messages are waiting.",
    ),
    "diag_expression_wrong": _(
        "The filter of its clients on %(topic)s is refused, and so are their pulls: %(reason)s."
    ),
    "diag_expression_lets_nothing": ngettext_lazy(
        "Its expression for %(topic)s did not let through the last message; %(count)d was checked.",
        "Its expression for %(topic)s let none of the last %(count)d messages through.",
    ),
    "diag_client_id_twice": _(
        "Several clients are called %(client)s, at %(hosts)s: each believes that the other's queues are its own, and "
        "some are read by nobody."
    ),
    "diag_subscriptions_differ": _(
        "Its consumers subscribe to %(topic)s in %(versions)d different ways; some messages may reach nobody."
    ),
    "diag_lock_of_nobody": ngettext_lazy(
        "%(client)s holds the lock of %(queues)d queue in order, and is not connected. The lock ends in %(for_span)s.",
        "%(client)s holds the locks of %(queues)d queues in order, and is not connected. The locks end in "
        "%(for_span)s.",
        "queues",
    ),
    "diag_lock_of_silent": ngettext_lazy(
        "%(client)s holds the lock of %(queues)d queue in order, and has pulled nothing for %(for_span)s.",
        "%(client)s holds the locks of %(queues)d queues in order, and has pulled nothing for %(for_span)s.",
        "queues",
    ),
    "diag_queue_stuck": ngettext_lazy(
        "Queue %(queue)d of %(topic)s has stayed at offset %(offset)d for %(for_span)s, and %(count)d message "
        "is waiting in it.",
        "Queue %(queue)d of %(topic)s has stayed at offset %(offset)d for %(for_span)s, and %(count)d "
        "messages are waiting in it.",
    ),
    "diag_slow_handler": ngettext_lazy(
        "%(count)d message of %(topic)s is in its consumers' hands; they finish %(rate).1f a second.",
        "%(count)d messages of %(topic)s are in its consumers' hands; they finish %(rate).1f a second.",
    ),
    "diag_retries_storming": _("%(retries).1f messages a second come back as retries, and %(rate).1f are consumed."),
    "diag_dead_letters": ngettext_lazy(
        "%(count)d dead letter came in the last %(for_span)s, and there are %(total)d in all.",
        "%(count)d dead letters came in the last %(for_span)s, and there are %(total)d in all.",
    ),
    "diag_fewer_consumers": ngettext_lazy(
        "%(comes).1f messages a second come into %(topic)s, and %(goes).1f are consumed: it has %(queues)d "
        "queues, but only %(clients)d consumer.",
        "%(comes).1f messages a second come into %(topic)s, and %(goes).1f are consumed: it has %(queues)d "
        "queues, but only %(clients)d consumers.",
        "clients",
    ),
    "diag_idle_consumers": ngettext_lazy(
        "%(topic)s has fewer queues (%(queues)d) than the group has consumers (%(clients)d), so %(idle)d of them "
        "has none.",
        "%(topic)s has fewer queues (%(queues)d) than the group has consumers (%(clients)d), so %(idle)d of them "
        "have none.",
        "idle",
    ),
    "diag_uneven_share": _(
        "%(topic)s has %(queues)d queues for %(clients)d consumers: one has %(most)d or more, another "
        "%(least)d or fewer."
    ),
    # why the hot path is pure Python
    **REASONS,
    # the story of a message
    "copies_no_id": _("The message has no unique id, so copies of it cannot be found."),
    "copies_cut": _("Not all topics were searched for copies of the message; there may be more."),
    "copies_many": _("There are %(count)d copies of the message; only the first and the last ones are shown."),
    "story_long": ngettext_lazy(
        "%(count)d line in the middle is left out.", "%(count)d lines in the middle are left out."
    ),
    "deliveries_not_kept": _("Deliveries are kept for a limited time: older ones of this message are not known."),
    "no_deliveries_kept": _("No deliveries have been recorded yet."),
    "deliveries_cut": _("Not all delivery records were searched; there may be more deliveries."),
    "deliveries_lost": ngettext_lazy(
        "%(count)d delivery has not been recorded since the message was stored.",
        "%(count)d deliveries have not been recorded since the message was stored.",
    ),
    "story_passed": ngettext_lazy(
        "The offset of %(count)d more group, which is not shown here, is past the message.",
        "The offsets of %(count)d more groups, which are not shown here, are past the message.",
    ),
    "deliveries_many": _("Of each copy only the last %(count)d deliveries are shown."),
    "deliveries_gap": _(
        "For some time after it was stored, deliveries were not recorded: maxDeliveryEventBytes was 0."
    ),
    "deliveries_unreadable": _("The delivery records cannot be read: %(reason)s."),
    "offset_is_past": _("The committed offset %(offset)d is past it."),
    "offset_is_past_retry": _("The retry topic's committed offset %(offset)d is past it; retry number %(times)d."),
    "not_committed_yet": _("It was delivered; the group's committed offset is not past it yet."),
    "delivered_never_committed": _("It was delivered; the group has not committed an offset of this queue."),
    "held_back": _("It was delivered; the group's committed offset waits for the message at offset %(offset)d."),
    "not_reached": ngettext_lazy("%(count)d message is ahead of it.", "%(count)d messages are ahead of it."),
    "nobody_pulls": _("No client has pulled queue %(queue)d since the broker started."),
    "filtered_by_tag": _('The group subscribes to %(expression)s; the tag is "%(tag)s".'),
    "expression_refused": _("Its filter is refused, and so are its pulls: %(reason)s."),
    "filtered_by_expression": _("The %(kind)s filter %(expression)s keeps it out."),
    "consumption_is_off": _("Consumption is switched off for the group."),
    "group_is_gone": _("This group no longer exists."),
    "topic_not_readable": _("The topic may not be read."),
    "queue_not_readable": ngettext_lazy(
        "Queue %(queue)d is not read: the topic has %(count)d read queue.",
        "Queue %(queue)d is not read: the topic has %(count)d read queues.",
    ),
    "not_subscribed": _("The connected clients do not subscribe to the topic."),
    "waits_delayed": _("It waits at delay level %(level)d."),
    "waits_to_retry": _("It was sent back; retry %(times)d waits at delay level %(level)d."),
    "is_dead_letter": ngettext_lazy(
        "It became a dead letter after %(times)d attempt to consume it.",
        "It became a dead letter after %(times)d attempts to consume it.",
        "times",
    ),
    "handled_early": _("It was taken out before it was due, and no copy of it was found: it was dropped."),
    "copy_not_found": _("It was due, but its copy was not found: it may have expired or been dropped."),
    # reasons why something is not known
    "broadcast_keeps_offsets": _("A broadcasting group keeps its offsets on its clients."),
    "never_committed": _("The group has not committed an offset yet."),
    "queue_never_committed": _("The group has committed offsets of other queues here, but none of queue %(queue)d."),
    "filter_depends": _(
        "Its members subscribe to different things: who has queue %(queue)d decides whether it is kept out."
    ),
    "past_or_filtered": _(
        "The committed offset %(offset)d is past it, but its members subscribe to different things: it was "
        "consumed, or kept out by the filter of whoever had queue %(queue)d."
    ),
    "some_never_committed": ngettext_lazy(
        "%(queues)d queue has messages but no committed offset yet and is not counted.",
        "%(queues)d queues have messages but no committed offset yet and are not counted.",
        "queues",
    ),
    "not_measured_yet": _("Not measured yet."),
    "no_messages": _("There are no messages."),
    "message_gone": _("The message at that offset is no longer in the log."),
    "entry_unreadable": _("The record cannot be read: %(reason)s."),
    "no_consumer_online": _("No consumer of the group is connected."),
    "never_heard": _("This connection has sent no heartbeat."),
    "producers_name_no_topic": _("Producers do not announce their topics; this shows who sent the newest messages."),
    "disk_not_filling": _("The log is not growing at the moment."),
    "disk_kept_by_retention": _("At this rate old messages are deleted before the disk is full."),
    "latency_not_measured": _("The broker does not measure this yet."),
    # blockers and warnings of changes
    "group_unread": ngettext_lazy(
        "%(group)s has not read %(count)d message of %(topic)s.",
        "%(group)s has not read %(count)d messages of %(topic)s.",
    ),
    "group_online": ngettext_lazy(
        "%(group)s has %(count)d connected client.", "%(group)s has %(count)d connected clients."
    ),
    "topic_has_messages": ngettext_lazy(
        "%(count)d message can no longer be read.", "%(count)d messages can no longer be read."
    ),
    "purged_stay_on_disk": _(
        "They stay on disk until the log's files expire. Until then they are found by message id and by key, and an "
        "Apache broker that opens this store would show them."
    ),
    "unread_would_go": _("Groups have not read all messages of %(name)s."),
    "purge_failed": _("The purge is not complete: %(reason)s. It may still be done; try again."),
    "purge_unknown": _("Queue %(queue)d of %(topic)s cannot be read just now. Try again later."),
    "queues_taken_away": ngettext_lazy(
        "Queues %(first)d to %(last)d can no longer be read, and %(count)d message is in them.",
        "Queues %(first)d to %(last)d can no longer be read, and %(count)d messages are in them.",
    ),
    "unreadable_writes": _("Messages that are sent to queues %(first)d to %(last)d can be read by nobody."),
    "fewer_write_queues": _("Producers stop using queues %(first)d to %(last)d."),
    "leftover_topic": ngettext_lazy(
        "The topic %(topic)s stays, with %(count)d message in it.",
        "The topic %(topic)s stays, with %(count)d messages in it.",
    ),
    "retries_deleted": ngettext_lazy(
        "The topic %(topic)s is deleted, with %(count)d message in it.",
        "The topic %(topic)s is deleted, with %(count)d messages in it.",
    ),
    "offsets_removed": ngettext_lazy(
        "Its offsets in %(count)d topic are deleted.", "Its offsets in %(count)d topics are deleted."
    ),
    "offsets_kept": ngettext_lazy("Its offsets in %(count)d topic stay.", "Its offsets in %(count)d topics stay."),
    "order_one_queue": _("Messages are in order within one queue only; clients must consume each queue in order."),
    "unreadable": _("While reading is off, nobody can consume from it."),
    "unwritable": _("While writing is off, nobody can send to it."),
    "consumption_off": _("Its clients get no messages while consumption is switched off."),
    "template_missing": _("The template topic TBW102 is created as well."),
    # refusals
    "no_broker": _("No broker is running in this process."),
    "role_changes": _("This broker is changing its role; ask again in a moment."),
    "no_name_server": _("No name server is running in this process."),
    "too_busy": _("The broker is stopping or too busy; try again."),
    "not_done_in_time": _("It was not done within %(seconds)d s; it may still happen."),
    "no_answer_in_time": _("There was no answer within %(seconds)d s; the message may have been stored."),
    "client_too_old": _("%(client)s has version %(version)s, which does not know this question; V3_1_8 or later does."),
    "client_silent": _("%(client)s has left, or has not answered within %(seconds)d s."),
    "client_being_asked": _("%(client)s is being asked already; wait for its answer."),
    "client_refused": _("%(client)s answered with code %(number)d: %(reason)s"),
    "client_unreadable": _("The answer of %(client)s cannot be read: %(reason)s."),
    "out_of_range": _("%(field)s must be between %(low)d and %(high)d."),
    "text_refused": _("%(field)s takes a line of at most %(limit)d characters."),
    "one_of": _("%(field)s must be one of %(choices)s."),
    "cannot_sort": _("It cannot be sorted by %(key)s; choose one of %(choices)s."),
    "not_a_time": _("%(field)s must be milliseconds since 1970."),
    "times_reversed": _("The end time is before the start time."),
    "bad_cursor": _("This page link is no longer valid."),
    "foreign_cursor": _("This page link belongs to another topic."),
    "cursor_of_another_filter": _("This page link belongs to another filter."),
    "bad_filter": _("The filter is wrong at line %(line)d, column %(column)d: %(reason)s."),
    "bad_place": _("A message's place is written topic/queue/offset."),
    "bad_offset_id": _("This is neither an offset id nor a unique id; those have 32 or more hex digits."),
    "place_no_topic": _("There is no topic %(topic)s."),
    "place_no_queue": ngettext_lazy(
        "The topic %(topic)s has only %(count)d queue, and no queue %(queue)d.",
        "The topic %(topic)s has only %(count)d queues, and no queue %(queue)d.",
    ),
    "place_queue_empty": _("Queue %(queue)d of %(topic)s has no messages."),
    "place_behind_end": _("Queue %(queue)d of %(topic)s ends at %(end)d."),
    "place_expired": _("That message has expired: queue %(queue)d of %(topic)s begins at %(begin)d."),
    "topic_exists": _("The topic %(name)s already exists."),
    "group_exists": _("The group %(name)s already exists."),
    "changed_meanwhile": _("%(name)s was changed in the meantime; look again."),
    "clean_up_unknown": _("So many messages wait to be delivered that their topics cannot be listed; try again later."),
    "changed_since": _("It has changed since you looked at it; look again."),
    "messages_would_be_lost": _("Messages of %(name)s would become unreadable."),
    "in_use": _("%(name)s is in use."),
    "system_topic": _("%(name)s is a system topic."),
    "system_group": _("%(name)s is a system group."),
    "made_with_group": _("Retry and dead letter topics are created with their group."),
    "bad_topic_name": _("A topic name has 1 to %(length)d of the characters a-z, A-Z, 0-9, _, -, %% and |."),
    "bad_group_name": _("A group name has 1 to %(length)d of the characters a-z, A-Z, 0-9, _, -, %% and |."),
    "topic_kept": _("This topic is reserved for the broker."),
    "topic_not_writable": _("Writing to this topic is not allowed."),
    "body_missing": _("A message needs a body."),
    "body_too_long": _("The body has %(size)d bytes, maxMessageSize is %(limit)d."),
    "bad_tag": _("A message has one tag, without spaces or |."),
    "bad_key": _("A key must not be empty or contain spaces."),
    "bad_property": _("A property needs a name and a value."),
    "property_reserved": _("%(name)s is reserved for the broker and cannot be set here."),
    "properties_too_long": _("The properties take %(size)d bytes, at most 32 KB are possible."),
    "separator_inside": _("Properties must not contain the control characters 1 and 2."),
    "no_unicode": _("This is not valid Unicode text."),
    "option_not_hot": _("%(name)s cannot be changed while the broker runs."),
    "access_not_hot": _(
        "%(name)s can be changed while the broker runs only where report is configured: to enforce, and back."
    ),
    "enforce_no_super": _("accessControl=enforce needs an enabled Super user, and there is none: make one first."),
    "option_number": _("%(name)s must be a whole number between %(low)d and %(high)d."),
    "option_choice": _("%(name)s must be one of %(choices)s."),
    "option_refused": _("%(name)s %(reason)s."),
    "not_saved": _("The change cannot be saved, and was not made: %(reason)s."),
    # replay of dead letters
    "replay_rests": _("This broker takes no messages now. The job goes on from here when it takes them again."),
    "replay_store_refused": _("The message log takes no messages: %(reason)s."),
    "replay_unreadable": _("Dead letters cannot be read: %(reason)s."),
    "replay_journal_failing": _("The job's journal cannot be written: %(reason)s."),
    "replay_journal_damaged": _("The job's journal cannot be read: %(reason)s. Nothing is sent for it."),
    "replay_target_gone": _("The topic %(topic)s no longer exists."),
    "replay_target_changed": _("The topic %(topic)s was deleted and made again; what was sent there is not known."),
    "replay_target_unwritable": _("Writing to the topic %(topic)s is not allowed."),
    "replay_target_unreadable": _("The topic %(topic)s cannot be read to see what was sent: %(reason)s."),
    "replay_start_expired": _("The last messages sent to %(topic)s have expired; going on could send messages twice."),
    "replay_group_gone": _("The group %(group)s no longer exists."),
    "replay_letters_gone": _("The topic %(topic)s with the dead letters no longer exists."),
    "replay_not_reached": _("The job has not come to it."),
    "replay_guarded": ngettext_lazy(
        "It has been replayed %(count)d time or more.", "It has been replayed %(count)d times or more."
    ),
    "replay_record_unreadable": _("The dead letter cannot be read."),
    "replay_no_origin": _("It does not say which topic it was sent to."),
    "replay_no_topic": _("The topic it was to go to does not exist."),
    "replay_too_long": _("Its properties leave no room for those of the replay."),
    "replay_refused": _("The broker does not take it."),
    "replay_outcome_unknown": _("It was perhaps sent; it can no longer be found out whether it was stored."),
    "replay_to_everybody": _("Every group that consumes the original topic gets these messages again."),
    "replay_other_topic": _("Every group that consumes %(topic)s gets these messages."),
    "replay_under_way": _("Dead letters of %(group)s are being replayed already, by job %(job)s."),
    "too_many_replays": _("There are %(count)d replay jobs that are not finished."),
    "replay_not_so": _("Job %(job)s is %(state)s."),
    "replay_topic_missing": _("Name the topic that the copies go to."),
    "replay_topic_unused": _('A topic is named only with the target "topic", not with %(target)s.'),
    "replay_offsets_or_times": _("Give offsets or times, not both."),
    "replay_offsets_or_filter": _("Give offsets or a filter, not both."),
    "replay_not_chosen": _("The filter leaves it out."),
    "replay_nothing": _("There is nothing to replay."),
    "replay_too_many": _("These are %(count)d messages; one job replays %(limit)d at most."),
    "replay_no_such_offset": _("Queue %(queue)d has no offset %(offset)d; it ends at %(end)d."),
    "replay_long_list": _("A list holds %(limit)d offsets at most."),
    "queue_or_key": _("Give either a queue or a sharding key, which chooses one."),
    # live tail
    "filter_too_long": _("A filter has at most %(limit)d characters."),
    "expression_wrong": _("This is no SQL92 expression: %(reason)s."),
    # messages that wait
    "group_or_topic": _("Choose a group or a topic, not both."),
    "level_or_time": _("Give either a delay level or a time."),
    "waiting_record_gone": _("Its record is no longer in the log."),
    "waiting_target_missing": _("Its record does not say where it is to go."),
    "waiting_topic_gone": _("The topic %(topic)s that it is for does not exist."),
    "waiting_places_or_filter": _("Name the messages, or choose them by group, topic or level."),
    "retry_of_another": _("One of these messages is not a retry of this group."),
    "waiting_bad_place": _("A waiting message is named by its level and its offset there."),
    "waiting_delivered": _("It is being delivered, or has been."),
    "waiting_handled": _("It has been handled before."),
    "waiting_taken": _("Somebody else is handling it at this moment."),
    "waiting_another": _("Another message waits there by now."),
    "waiting_no_retry": _("It is not a retry of a group, so it cannot become a dead letter."),
    "waiting_no_topic": _("It cannot go there: %(reason)s."),
    "waiting_refused": _("It was not stored: %(reason)s. It will be delivered when it is due."),
    "waiting_unsure": _("It may have been stored; it will also be delivered when it is due."),
    "waiting_not_saved": _("This cannot be saved: %(reason)s. It will be delivered when it is due."),
    "waiting_done_for_now": _("Done; but it may come again, after a restart or at the next leader: %(reason)s."),
    # transactions
    "half_gone": _("The half message is no longer in the log."),
    "half_topic_gone": _("The topic %(topic)s that it is for does not exist: it cannot be committed."),
    "half_too_old": _("It was older than the %(hours)d hours for which messages are kept."),
    "half_checks_used_up": ngettext_lazy(
        "Its producers were asked %(checks)d time, and nobody had decided it.",
        "Its producers were asked %(checks)d times, and nobody had decided it.",
        "checks",
    ),
    "ends_unreadable": _("How transactions ended cannot be read: %(reason)s."),
    "half_bad_place": _("An open transaction is named by the offset of its half message."),
    "half_places_or_filter": _("Name the transactions, or choose them by topic, group or key."),
    "half_places_needed": _("Name the transactions that are to be decided, %(limit)d at most."),
    "half_reason_missing": _("Say why: this may contradict what the producer's own records say."),
    "half_reason_long": _("The reason has %(count)d characters; at most %(limit)d are kept."),
    "half_another": _("Another half message is there by now."),
    "half_no_producer": _("No producer of its group is connected."),
    "half_busy": _("Its producers take no further questions at this moment."),
    "half_refused": _("It was not decided: %(reason)s. It is still open."),
    "half_unsure": _("This is written down, and will be done at the next start at the latest."),
    "half_not_saved": _("The journal of decisions cannot be written: %(reason)s. Nothing was done."),
    "half_decided": _("It was decided before."),
    "half_committed_by_producer": _("Its producer has committed it."),
    "half_rolled_back_by_producer": _("Its producer has rolled it back."),
    "half_committed_by_admin": _("It was committed before by %(admin)s."),
    "half_rolled_back_by_admin": _("It was rolled back before by %(admin)s."),
    "half_set_aside": _("It was set aside before, as nobody had decided it."),
    "half_no_delay": _("A message of a transaction takes neither a delay level nor a time here."),
    "half_bad_group": _("Name the producer group with letters, digits and _-|%% only, 255 at most."),
    "half_rejected": _("rejectTransactionMessage is on: messages of transactions are refused."),
    "half_open": _("The transaction is open: nobody has decided it yet."),
    "half_not_committed": _("The transaction was not committed."),
    "half_unknown": _("The transaction has ended; it is no longer known whether it was committed."),
    "not_discarded": _("This message is no discarded transaction."),
    "resumed_before": _("This transaction was resumed before."),
    "not_resumed": _("It could not be resumed: %(reason)s."),
    # offsets moved
    "offsets_nothing": _("There is no queue to move."),
    "offsets_none": _("There is no offset yet that could be moved from."),
    "offsets_no_shift": _("A shift needs a number of messages, forward or back."),
    "offsets_need_time": _("Give a date and time to move to."),
    "offsets_not_used": _(
        "%(field)s is not used when offsets move to %(to)s. Leave it out, or let them move to %(target)s."
    ),
    "offsets_need_offset": _("Name the queues and the offset that they move to."),
    "offsets_too_many": _("These are %(count)d queues; at most %(limit)d are moved at once."),
    "offsets_same_group": _("A group cannot take over its own offsets."),
    "offset_beyond": _("Queue %(queue)d of %(topic)s has the offsets %(low)d to %(high)d, not %(offset)d."),
    "offset_expired": _(
        "The messages from %(offset)d on have expired; it goes to the first that is there, %(target)d."
    ),
    "offset_behind_end": _("The queue ends before %(offset)d; it goes to the end, %(target)d."),
    "offset_moved_on": _("It was sent to %(sent)d and is at %(now)d now."),
    "offset_passed": _("The group has gone on: in queue %(queue)d of %(topic)s it is at %(now)d, behind that message."),
    "offsets_online": ngettext_lazy(
        "%(count)d connected client is notified.", "%(count)d connected clients are notified."
    ),
    "offsets_undone": _("This was taken back before."),
    "offsets_all_gone": _("None of these queues can be moved back."),
    "offsets_lost_queues": ngettext_lazy(
        "%(count)d queue is gone since and is left out.", "%(count)d queues are gone since and are left out."
    ),
    "offsets_left": ngettext_lazy(
        "%(count)d queue had no offset before and has been used since; it is left where it is.",
        "%(count)d queues had no offset before and have been used since; they are left where they are.",
    ),
    # bodies
    "library_missing": _("The body is %(kind)s; the Python package %(package)s that reads it is not installed."),
    "bad_compression": _("The body is marked as %(kind)s, but cannot be decompressed: %(reason)s."),
    "bomb": _("The body decompresses to more than %(limit)d bytes; the rest is not shown."),
    "too_long": _("The first %(shown)d of %(total)d bytes are shown."),
    "whole_is_export": _("To see all of it, as JSON or by its schema, takes the right to export."),
    "not_utf8": _("The body is not UTF-8 text."),
    "body_unfit": _("The body does not fit the topic's schema, %(schema)s (%(reason)s)."),
    # schemas
    "bad_schema": _("This schema cannot be used (%(reason)s)."),
    "no_schema_registry": _("There is no schema registry: schemaRegistry is not set."),
    "schemas_full": _("There may be schemas for at most %(topics)d topics, and they may take at most %(size)d bytes."),
    "schemas_unreadable": _("The file of the topics' schemas cannot be read (%(reason)s)."),
    "schemas_unsaved": _("The schema cannot be saved (%(reason)s)."),
}


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence. code: its key in TEMPLATES, stable, for the API. args: values of its placeholders."""

    code: str
    args: dict[str, object] = field(default_factory=dict)

    @property
    def template(self) -> str | Plural:
        return TEMPLATES[self.code]

    def __str__(self) -> str:
        text = _SIZE.sub(r"%(\1)s", english(self.template, self.args))
        return text % {name: _in_words(name, value) for name, value in self.args.items()}


#: A size, which is shown in a unit that suits it, in place of the word as well.
_SIZE = re.compile(r"%\((\w+_bytes)\)d bytes")


def _in_words(name: str, value: object) -> object:
    """Format spans and times, which are in milliseconds, and sizes for people; return other values as they are."""
    if name.endswith("_span") and isinstance(value, (int, float)):
        return span_text(value)
    if name.endswith("_bytes") and isinstance(value, (int, float)):
        return size_text(value)
    if name.endswith("_at_ms") and isinstance(value, (int, float)):
        return time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(value / 1000))
    return value


def say(code: str, **args: object) -> Sentence:
    """Return the sentence of a code; KeyError if there is none."""
    TEMPLATES[code]
    return Sentence(code, args)
