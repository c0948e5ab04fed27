"""Fail-over of a set of brokers. One key in a consensus store names the leader; only compare-and-swap changes it.

1. The thread `failover` (`service.py`) reads the set's key (`set_state.py`, by a back end of `stores/`), the state of
   stream, log and members, and calls `machine.decide`: a pure function from what is seen and remembered to acts.
   `invariants.py` checks every result. A leader's heartbeat writes the key, only if it is as the leader left it.
2. The leader dies. A follower's `bound_follower.py` finds its ports closed, or the follower's own clock counts
   `haElectAfter` without a change of the key over three good reads. `CloseStream`: nothing more is taken of the old
   epoch, and the log is synced. `Swap`: the key gets epoch + 1 and this member, unless another one was faster. A swap
   whose outcome is unknown is tried again unchanged.
3. `See`, `BeginEpoch`: the epoch and its beginning are on disk (`member_files.py`). `Lead`: a Broker for the new role
   takes the seat (`engine/seat.py`, `brokers.py`). Members bind to it, catch up, and are awaited before the swap that
   calls them in sync.
4. The old leader comes back as fenced, reads the key, and follows; the part of its log beyond the common point is cut
   (`truncation.py`): two logs part where the newest epoch that began at the same place in both ends first.

Every 3 s a member announces itself in the store: role, end of its log, epochs, and the settings that must be equal in
all members (`settings.py`, `SHARED`). `outside.py` reads that, and the member's files, for `ha status` without a
console and for `doctor`. `membership.py` puts it all together. Pages and commands: `window/replicas/member.py`.

A setting of sets: `config.py` with `of_sets=True`, `settings.py`, docs/formats/config.md, and its test in
`tests/engine/failover/test_settings.py`. A store for leadership: a module in `stores/` and its scheme in
`stores/__init__.py`, loaded there when used; it raises `StoreUnavailable` whenever an answer is missing or cannot be
believed. One suite, `tests/engine/failover/stores`, runs on all of them.

Trials: `tests/engine/failover/simulation`, `tests/rig`, `tests/crash/cut_life.py`; from outside
`tests/examples/test_set_of_two.py`. Formats: docs/formats/ha.md. Operators: docs/high-availability.md.
"""
