"""The limits from which something is wrong: of health checks, needs, diagnoses, replication and `rocketbox doctor`.

Each stands here once and is read at each use, so that a test can set another one. Limits that an operator sets are
elsewhere: the shares of the disk are options (`clean_rules.watermarks`), the reports have a setting for how far behind
a group may be, and each rule of the alerts has a limit of its own, since it calls people.
"""

from __future__ import annotations

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS

# --- groups

#: Time after which an offset that does not move stands still, if a message waits and a member is connected: clients
#: commit every 5 s and rebalance every 20 s, and a listener may well take a minute.
STUCK_S = 120.0
#: A lock's holder, or a member, that has not pulled for this time is silent. Shorter than STUCK_S, for it needs no
#: patience with a listener: a member renews its lock every 20 s, and pulls all the time.
SILENT_S = 60.0
#: A group is late if its next message has waited for this time.
LATE_S = 300.0
#: A late group needs nobody if it catches up within this many times the time by which it is late. One that would take
#: longer than CATCHES_UP_WITHIN_S at the present rates does not catch up.
CATCHES_UP = 3
CATCHES_UP_WITHIN_S = 7 * 86_400.0
#: Samples (seconds) behind a rate: the last minute, since commits come every 5 s. A rate is known after RATE_KNOWN_S.
RATE_SAMPLES = 60
RATE_KNOWN_S = 10.0
#: Samples behind the rates that say whether a late group catches up, and what it loses. More than RATE_SAMPLES, so that
#: a need does not come and go with each pause.
LATE_SAMPLES = 300
#: A group, or a handler, that keeps up finishes in this time what came, or was pulled, and is not yet committed: three
#: times the interval between two commits of a client.
KEEPS_UP_S = 15.0
#: A backlog grows if this share of the incoming messages is not consumed, and for a finding at least GROWTH_RATE
#: messages a second.
GROWTH_SHARE = 0.1
GROWTH_RATE = 1.0
#: Fewer messages in flight are not looked at: two pulls of 32 messages.
SLOW_IN_FLIGHT = 64
#: Retries storm if there is at least one a second, and they are at least a fifth of what the group consumes.
STORM_RATE = 1.0
STORM_SHARE = 0.2
#: Newest messages of a topic among which an expression is expected to match at least one.
LOOKED_AT = 200

# --- messages that will be deleted

#: Time left until dead letters may be deleted.
EXPIRES_MS = _DAY_MS
#: Time left until unread messages are deleted; and the time from which that is urgent.
UNREAD_MS = _DAY_MS
UNREAD_URGENT_MS = 3 * _HOUR_MS
#: For how long a group's need and its diagnosis name what was deleted unread.
UNREAD_LOST_MS = _DAY_MS

# --- transactions

#: Age from which an open transaction without a producer is reported. Longer than STUCK_S: a producer may be down for an
#: update, and its transactions do not keep others waiting.
WITHOUT_PRODUCER_MINUTES = 5
#: Share of the allowed checks after which an undecided transaction is reported.
UNDECIDED_SHARE = 2 / 3

# --- replication, plain and in a set

#: Time for which a slave or member is behind the end of the log. Shorter than LATE_S: it has nothing else to do.
LAG_MS = 60_000
#: Time for which a slave or member is gone: a shorter one is a restart.
GONE_MS = 30_000

# --- the store and its disk

#: Samples behind the forecast of when the disk will be full: all that the sampler keeps, since retention deletes whole
#: files at once. A forecast further away is not shown.
DISK_SAMPLES = 600
DISK_FORECAST_DAYS = 365
#: Time left until the disk is full; and the time from which that is urgent.
DISK_MS = 14 * _DAY_MS
DISK_URGENT_MS = _DAY_MS
#: Lag of the key index from which it is reported: it is being rebuilt, or the machine is too slow.
INDEX_BEHIND_BYTES = 256 * 1024 * 1024
#: Age up to which a finding in the store is reported.
FINDINGS_S = 7 * 86_400
#: How far the clock may be behind the newest message.
CLOCK_BEHIND_MS = 5_000

# --- the installation

#: The age from which the newest backup is too old.
BACKUP_DAYS = 7
#: Days until the end of a certificate from which it is reported; and from which that is urgent.
CERTIFICATE_DAYS = 30
CERTIFICATE_URGENT_DAYS = 7
#: Open files. Wanted: enough for the clients, log files and queue files of a busy broker; systemd's default for
#: services is 524,288.
DESCRIPTORS_WANTED = 65_536
DESCRIPTORS_NEEDED = 4_096
