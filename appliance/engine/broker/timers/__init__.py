"""Messages with a delivery time of their own: where they wait, the index by due time, and their delivery.

1. A message with TIMER_DELAY_SEC, TIMER_DELAY_MS or TIMER_DELIVER_MS, from a send, a committed transaction or any own
   append, is stored in `rmq_sys_wheel_timer`, queue 0, with TIMER_OUT_MS, REAL_TOPIC and REAL_QID (`waiting.py`). One
   that is due soon wakes `deliver-timers`.
2. `delivery.py`, the thread `deliver-timers`, adds the messages published there to the index (`schedule.py`): 32 bytes
   each, few in memory, most in sorted files (`runs.py`). Then it sleeps until the first is due.
3. Messages that are due are read from the log, checked and passed to `OwnAppends`, by due time, several topics in
   turns. Marks, records of the same topic, cancel a message or replace its older record (`marks.py`).
4. `saving.py`, the thread `save-timers`, writes the index at most half a second late, and never ahead of the durable
   log. An index that is missing, damaged, or older than what an Apache broker did here is rebuilt from the topic while
   sends go on. For Apache it keeps `timercheck`, and leaves `timerlog` at a clean stop (`apache_files.py`).
5. Messages that lie in the log for long are stored again before their file goes (`rolling.py`).
6. A recall (`recall.py`) and an administrator's act (`early.py`) claim the message, so that delivery leaves it alone,
   and store a mark; `claims.py` keeps the three apart. `look.py` reads the index for pages, beside delivery.

Format: docs/formats/timers.md. Trials: `tests/crash/timer_life.py`, `tests/crash/early_timer_life.py`, and a plain
model in `tests/engine/broker/timers/test_model.py`.
"""
