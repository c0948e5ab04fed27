"""Namespaces: a prefix of the names of topics and groups, which users do not see. PURE.

    orders -> ns%orders    %RETRY%billing -> %RETRY%ns%billing    RocketMQ's own names stay

Source: RocketMQ 5.3.3 `NamespaceUtil`, `TopicValidator`.
"""

from __future__ import annotations

from ..wire import DLQ_PREFIX, NO_SEND_TOPICS, RETRY_PREFIX, TEMPLATE_TOPIC

#: Property of a message that names its namespace.
INSTANCE_ID = "INSTANCE_ID"

_OWN_TOPICS = NO_SEND_TOPICS | {TEMPLATE_TOPIC, "RMQ_SYS_TRACE_TOPIC", "BenchmarkTest"}
_OWN_PREFIXES = ("rmq_sys_", "CID_RMQ_SYS_")
_KINDS = (RETRY_PREFIX, DLQ_PREFIX)


def with_namespace(namespace: str, name: str) -> str:
    """Return the name at brokers; one that has the namespace already stays."""
    if not namespace or not name or name in _OWN_TOPICS or name.startswith(_OWN_PREFIXES):
        return name
    for kind in _KINDS:
        if name.startswith(kind):
            return kind + with_namespace(namespace, name[len(kind) :])
    return name if name.startswith(f"{namespace}%") else f"{namespace}%{name}"


def without_namespace(namespace: str, name: str) -> str:
    """Return a name as users see it."""
    for kind in _KINDS:
        if name.startswith(kind):
            return kind + without_namespace(namespace, name[len(kind) :])
    return name.removeprefix(f"{namespace}%") if namespace else name
