"""Delayed messages: the levels, how a message is made to wait, and its delivery when it is due.

1. A send or an own append with DELAY is stored in SCHEDULE_TOPIC_XXXX, a queue for each level, with REAL_TOPIC and
   REAL_QID (`levels.py`). The tag code of its queue entry is its due time: store time plus delay.
2. `delivery.py`, the thread `deliver-delayed`, has the position and the due time of each level's next message, and
   sleeps until the first is due. It looks for new messages every 0.9 s, which is shorter than any delay. So a million
   messages that wait cost nothing but their entries. `waiting_time.py` counts time without the jumps of the wall clock,
   and finds when each message was really stored.
3. Messages that are due are read from the log, their CRCs are checked, and `OwnAppends` stores their copies (D7): one
   batch of a level at a time, so that the order holds, levels side by side.
4. A copy is published with its tick. When the log is durable behind it, the level's offset may be saved: `progress.py`,
   the thread `save-delays`. After a kill, deliveries that were not saved are repeated; after a stop none are, since the
   store ends both threads before its last sync. Apache's broker continues from the same file.
5. If a message waits in a log file that is about to be deleted, `moving.py` stores it again in the timer topic and
   settles its entry.
6. `early.py` acts on messages before they are due: claim, append the copy, wait until the log is durable behind it,
   settle (`settled.py`: one write and one sync of `settled-delays`), answer. Delivery calls `enter` for the messages it
   takes, which then cannot be claimed, and steps over those that `settled.holds`.

Trials: `tests/crash/delay_life.py`, `tests/crash/settled_life.py`.
"""
