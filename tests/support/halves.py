"""Transactions that were set aside, as the broker stores them; without the minutes in which producers are asked."""

from __future__ import annotations

import itertools

from appliance.engine.broker.sending.own_appends import OwnMessage
from appliance.engine.engine import Engine
from appliance.engine.protocol.properties import encode_properties

_NUMBERS = itertools.count()


def set_aside(engine: Engine, topic: str, group: str = "PG") -> str:
    """One more of a transaction for a topic; its offset id."""
    broker = engine.broker
    assert broker is not None
    broker.topics.create_retry_topic("TRANS_CHECK_MAX_TIME_TOPIC", 1, 6)
    unique = f"ASIDE{next(_NUMBERS):027X}"
    properties = {
        "PGROUP": group, "REAL_TOPIC": topic, "REAL_QID": "0", "UNIQ_KEY": unique, "KEYS": "order-aside",
        "TRANSACTION_CHECK_TIMES": "15",
    }  # fmt: skip
    message = OwnMessage(
        "TRANS_CHECK_MAX_TIME_TOPIC", 0, b"paid", encode_properties(properties), unique, 1_700_000_000_123,
    )  # fmt: skip
    [outcome] = broker.sending.appends.submit([message]).result(60)
    assert outcome.code == 0, outcome
    rows = engine.window.transactions.discarded(limit=20).rows
    return next(one.message.offset_id for one in rows if one.message.unique_id == unique)
