"""Dead letters sent again: jobs, their journal, and the thread that works them off.

A job is for spans of offsets of `%DLQ%group`, whose numbers never change. Its filter (`letter_filter.py`) is applied
when the job comes to a message; a message that it leaves out has a result, too, so that the counts add up. `service.py`
makes the journal durable first, then works on the job in small steps (`run.py`):

1. Before the first copy to a topic, the journal records where the topic's queues end (`target`).
2. `dead_letters.py` reads some messages. The loop guard checks ROCKETBOX_REPLAYED and earlier jobs (`history.py`).
   `copies.py` makes the copies, which carry the job's name and their number, and `OwnAppends` stores them, one batch at
   a time.
3. Once a second, their results go into the journal (`progress`), as far as the log is durable behind the copies.
4. After a crash, or an append whose outcome is unknown, `proof.py` reads the targets from the offsets in the journal,
   and the job continues behind the copies found there. If these can no longer be read, the job fails: it never sends
   twice.
5. A job that the broker paused for a passing reason (`PASSING`, such as a full disk) is tried again, at growing
   intervals. A job that a person paused waits for a person.

Format: docs/formats/replay-job.md. Trials: `tests/crash/replay_life.py`.
"""
