"""What is known of one message: what happened to it, and who has it."""

from __future__ import annotations

from ..protocol.names import DLQ_PREFIX
from ..protocol.properties import RETRY_TOPIC, TAGS, decode_properties
from ..protocol.record import SYS_COMMIT, SYS_PREPARED, SYS_ROLLBACK, SYS_TRANSACTION_MASK, Record, body_crc
from . import message_snapshots as m
from .bodies import compression_of
from .lag import BROADCASTING, LagSnapshot
from .sentences import say
from .topic_views import host_text

ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
_TRANSACTION = {0: "none", SYS_PREPARED: "prepared", SYS_COMMIT: "committed", SYS_ROLLBACK: "rolled back"}


def detail_of(record: Record, row: m.MessageRow, lag: LagSnapshot) -> m.MessageDetail:
    properties = decode_properties(record.properties)
    return m.MessageDetail(
        row=row,
        properties=properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        store_host=host_text(record.store_host),
        body_crc=record.body_crc,
        crc_ok=not record.body or body_crc(record.body) == record.body_crc,
        compression=compression_of(record.sys_flag),
        transaction=_TRANSACTION[record.sys_flag & SYS_TRANSACTION_MASK],
        prepared_transaction_offset=record.prepared_transaction_offset,
        story=_story(record, properties),
        groups=tuple(_state(record, group, properties.get(TAGS), lag) for group in _groups_of(record.topic, lag)),
    )


def _story(record: Record, properties: dict[str, str]) -> tuple[m.StoryLine, ...]:
    """In the order in which it happened, as far as the record says. Clocks of clients may be wrong."""
    lines = [
        m.StoryLine(record.born_time_ms, "born", {"host": host_text(record.born_host)}),
    ]
    if record.reconsume_times > 0:
        detail: dict[str, object] = {
            "times": record.reconsume_times,
            "topic": properties.get(RETRY_TOPIC),
            "origin": properties.get(ORIGIN_MESSAGE_ID),
        }
        dead = record.topic.startswith(DLQ_PREFIX)
        lines.append(m.StoryLine(None, "dead" if dead else "retried", detail))
    lines.append(
        m.StoryLine(
            record.store_time_ms, "stored", {"queue": f"{record.topic}/{record.queue_id}/{record.queue_offset}"}
        )
    )
    return tuple(lines)


def _groups_of(topic: str, lag: LagSnapshot) -> list[str]:
    found = {group for group, entries in lag.entries.items() if topic in entries}
    found.update(name for name, info in lag.online.items() if topic in info.subscriptions)
    return sorted(found)


def _state(record: Record, group: str, tag: str | None, lag: LagSnapshot) -> m.DeliveryState:
    info = lag.online.get(group)
    wanted = None if info is None else info.subscriptions.get(record.topic)
    committed = lag.committed(group, record.topic).get(record.queue_id)
    filtered = (
        wanted is not None
        and wanted.expression_type == "TAG"
        and wanted.sub_string not in ("", "*")
        and bool(wanted.tags_set)
        and tag not in wanted.tags_set
    )
    ahead = None
    why = None
    if info is not None and info.message_model == BROADCASTING:
        state, why = "unknown", say("broadcast_keeps_offsets")
    elif filtered:
        state = "filtered"
    elif committed is None:
        state, why = "unknown", say("never_committed")
    elif committed > record.queue_offset:
        state = "consumed"
    else:
        state, ahead = "waiting", record.queue_offset - committed
    return m.DeliveryState(
        group=group,
        state=state,
        committed=committed,
        ahead=ahead,
        subscription=None if wanted is None else wanted.sub_string,
        clients=0 if info is None else len(info.channels),
        why=why,
    )
