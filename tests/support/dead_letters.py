"""Dead letters in a running engine, as a broker stores them, and the copies that replays made of them."""

from __future__ import annotations

from collections.abc import Iterable

from appliance.engine.broker.sending.own_appends import OwnMessage
from appliance.engine.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from appliance.engine.protocol.properties import decode_properties, encode_properties
from appliance.engine.protocol.record import Record
from tests.support.engine import RunningEngine, pull_fields, records

BORN_MS = 1_700_000_000_123


def make_group(running: RunningEngine, group: str, origin: str = "Orders") -> None:
    """A group with its retry and dead letter topics, and the topic its messages came from."""
    broker = running.engine.broker
    assert broker is not None
    window = running.window
    if broker.topics.get(origin) is None:
        window.topic_commands.create(origin, read_queues=2, write_queues=2)
    if broker.groups.get(group) is None:
        window.group_commands.create(group)
    for topic in (RETRY_PREFIX + group, DLQ_PREFIX + group):
        broker.topics.create_retry_topic(topic, 1, 6)


def dead_letter(group: str, number: int, origin: str | None = "Orders", **more: str) -> OwnMessage:
    properties = {"TAGS": "paid", "KEYS": f"k{number}", "UNIQ_KEY": f"{number:032X}", "colour": "red"}
    if origin is not None:
        properties["RETRY_TOPIC"] = origin
    properties |= {"ORIGIN_MESSAGE_ID": f"{number:032X}", "DELAY": "0", "WAIT": "false"} | more
    return OwnMessage(
        DLQ_PREFIX + group,
        0,
        b"body %d" % number,
        encode_properties(properties),
        properties["UNIQ_KEY"],
        BORN_MS,
        reconsume_times=17,
    )


def put_dead_letters(running: RunningEngine, group: str, count: int, first: int = 0, **more: str) -> None:
    """So many, stored when this returns; their numbers go on from `first`."""
    put(running, [dead_letter(group, first + number, **more) for number in range(count)])


def put(running: RunningEngine, messages: Iterable[OwnMessage]) -> None:
    broker = running.engine.broker
    assert broker is not None
    left = list(messages)
    while left:
        outcomes = broker.sending.appends.submit(left[:500]).result(60)
        assert {outcome.code for outcome in outcomes} == {0}, outcomes[0]
        left = left[500:]


def copies(running: RunningEngine, topic: str, queues: int = 1) -> list[Record]:
    """Every message of a topic, as a consumer gets it by the wire."""
    found: list[Record] = []
    peer = running.peer()
    for queue_id in range(queues):
        at = 0
        while True:
            answer = peer.ask(11, pull_fields(topic, queue_id, at, maxMsgNums=32))
            if answer.code != 0:
                break
            found += records(answer.body)
            at = int(answer.ext_fields["nextBeginOffset"])
    return found


def properties_of(record: Record) -> dict[str, str]:
    return decode_properties(record.properties)
