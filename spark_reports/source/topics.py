"""Which topics are left out unless they are asked for, as in the console: those that no producer sends to."""

from __future__ import annotations

from appliance.engine.protocol.names import DLQ_PREFIX, NO_SEND_TOPICS, RETRY_PREFIX, TEMPLATE_TOPIC

#: Half messages, traces, what waits for its time, POP's checkpoints: in either case.
_PREFIX = "rmq_sys_"
#: BenchmarkTest: each of Apache's brokers has it, with 1024 queues, and keeps it for its own load tests.
_OTHERS = NO_SEND_TOPICS | {TEMPLATE_TOPIC, "BenchmarkTest", "CHECKPOINT_TOPIC"}


def is_system(topic: str) -> bool:
    """Whether a topic is the broker's own: what it keeps for itself, and its copies of messages that a group failed to
    consume (retries and dead letters)."""
    return topic in _OTHERS or topic[: len(_PREFIX)].lower() == _PREFIX or topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
