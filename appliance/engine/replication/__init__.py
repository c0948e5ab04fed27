"""Replication on Apache's plain HA stream: the log of one broker, copied byte by byte to others.

1. Master: when the kept part of its log has grown (`MessageStore.kept`: durable in sync flush, else written), `on_kept`
   wakes the threads of `slave_link.py`. Each sends slices of the log's files by `sendfile`, and reads its slave's
   reports. The I/O thread does nothing else for it, and nothing at all without slaves.
2. A sync master has one more watermark, `replicated` (`acknowledged.py`): a tick is published when enough slaves have
   it. `durability.py` answers 12 if that takes too long; the tick stays unpublished.
3. Slave: `follower.py` asks the master for the last record of the log here, then `log_copy.py` reads the stream;
   `store/replica.py` checks the records, and the I/O thread appends them as they are, with the entries that
   `dispatch.py` gives them. The slave reports what it has kept. A record without a place in its queue ends the copying
   (`CannotPlace`); a member of a set then copies its log anew.
4. `broker/slave_sync.py` copies the master's tables; topics, deletions and ends of queues come in one answer
   (`broker/topic_places.py`). In a set, a change or deletion of a topic waits until all members in sync have reported
   on their bound streams that they have it. `log.refuse(..., "role")` keeps all other appends away, and
   `broker/slave_requests.py` refuses changes of tables.
5. For people: `slaves_seen.py`, `log_clock.py` (bytes behind as time behind), `window/replicas/views.py`,
   `window/replicas/judgement.py`; cut tails and sending them again: `window/replicas/quarantine.py`.

In a set that fails over the same bytes go over *bound* streams. A member sends a preamble first
(`protocol/ha_preamble.py`); the leader's `Door` (`bound_link.py`) checks set, epoch and uuid, and from then on counts
the member's reports. `in_sync_position.py`, the least position that the awaited members have reported on connections of
this epoch, takes the place of `replicated`. A connection, and the thread on either side, belongs to one epoch.
`bound_follower.py` compares the lists of epochs, reports a log that has to be cut, and otherwise copies with
`log_copy.py`. With its heartbeats the leader sends the confirm offset: a follower shows its log up to there
(`ConfirmedPosition`). A follower that sends no preamble is an observer: it receives the log, but acknowledgements do
not wait for it. `ack_pace.py` measures how long a member takes to report spans of the log: a member that is late for 10
s leaves those in sync. `leader_clock.py` asks the leader for its clock, and `store/clock_steps.py` keeps how far the
clock here is ahead of the one that stamped each place of the log, so that a fail-over does not change how long messages
wait. `store/tick_gaps.py` finds the ticks between which this machine's clock was set.

A connection may be one over TLS (`tls/between_brokers.py`), and begins with a proof where there is a secret
(`proving.py`); behind that all is as on a plain one. `Guard` (`roles.py`) holds both.

Operators: docs/replication.md.
"""
