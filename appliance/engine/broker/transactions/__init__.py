"""Transactions: half messages, how they end, and the questions to producers that have not decided.

1. A send with TRAN_MSG goes to RMQ_SYS_TRANS_HALF_TOPIC, which no consumer reads (`half.py`). `open_halves.py` has a
   byte for it, and its offset in the bucket of the time when its producer is to be asked.
2. Request 37 (`processors/transaction.py`) names a half message, which is read and compared with the request. A commit
   stages the copy in the real topic, a roll back nothing; both close the half, and stage its op message behind the copy
   in the same tick (`decisions.py`). The first decision wins.
3. `check.py`, the thread `check-transactions`, reads halves that are due, 64 at a time; the loop asks one producer of
   the group (39). After `transactionCheckMax` questions, or when it is older than messages are kept, a half is
   discarded to TRANS_CHECK_MAX_TIME_TOPIC. `resume.py` makes a half message of a discarded one again, once.
4. `consumerOffset.json` has under CID_RMQ_SYS_TRANS the offsets from which Apache would read both queues: those of the
   oldest open half. A start begins there, too (`rebuild.py`), and looks in the log for copies whose op message a crash
   took. Until all open halves are found, 37 waits.
5. An administrator's decision (`admin_acts.py`) is durable in `decisions.journal` before it is done.
6. The thread `transaction-records` writes down how each transaction ended (`resolved.py`) and how often its producer
   was asked (`check_counts.py`); nothing depends on either.

Formats: docs/formats/half-messages.md, and of our own files docs/formats/transactions.md. Trials:
`tests/crash/transaction_life.py`.
"""
