"""Topics that are left out unless they are requested, as in the console: those to which no producer sends."""

from __future__ import annotations

from appliance.engine.protocol.names import DLQ_PREFIX, NO_SEND_TOPICS, RETRY_PREFIX, TEMPLATE_TOPIC

#: Prefix of topics for half messages, traces, delayed messages, POP's checkpoints; in upper or lower case.
_PREFIX = "rmq_sys_"
#: BenchmarkTest: each of Apache's brokers has it, with 1024 queues, and keeps it for its own load tests.
_OTHERS = NO_SEND_TOPICS | {TEMPLATE_TOPIC, "BenchmarkTest", "CHECKPOINT_TOPIC"}


def is_system(topic: str) -> bool:
    """True if a topic is the broker's own: one for its own data, or for copies of messages that a group failed to
    consume (retries and dead letters)."""
    return topic in _OTHERS or topic[: len(_PREFIX)].lower() == _PREFIX or topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
