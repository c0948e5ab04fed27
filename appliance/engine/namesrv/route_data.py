"""What the name server's tables hold: frozen values that carry their piece of JSON.

Routes are asked for far more often than they change, so the text of a broker and of a topic's queues is made once, when
the value is. The JSON is standard and compact: quoted broker ids are accepted by every client, and Go cuts the address
map at its commas, blanks included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from ..protocol.data_version import DataVersion
from .register_body import TopicShape

MASTER_ID = 0

#: A broker that says nothing for so long is gone, unless it registered with a limit of its own.
DEFAULT_TIMEOUT_MS = 120_000
#: Names encoded by one C call (D10).
_NAMES_PER_CALL = 500

encode_json = msgspec.json.encode


class Peer(Protocol):
    """The connection a broker registered over."""

    @property
    def closed(self) -> bool: ...

    def close(self) -> None: ...


class BrokerKey(NamedTuple):
    """What one broker process is known by."""

    cluster: str
    address: str


class QueueData:
    """One broker's queues of a topic; frozen."""

    __slots__ = ("broker_name", "json", "shape")

    def __init__(self, broker_name: str, shape: TopicShape) -> None:
        self.broker_name = broker_name
        self.shape = shape
        self.json = b'{"brokerName":%b,"perm":%d,"readQueueNums":%d,"topicSysFlag":%d,"writeQueueNums":%d}' % (
            encode_json(broker_name),
            shape.perm,
            shape.read_queue_nums,
            shape.topic_sys_flag,
            shape.write_queue_nums,
        )


class BrokerData:
    """The brokers of one name: broker id -> address, 0 being the master; frozen.

    json: as routes show it. acting_json: the same with the smallest id shown as the master.
    """

    __slots__ = ("acting_json", "addresses", "cluster", "enable_acting_master", "json", "name", "zone")

    def __init__(
        self, cluster: str, name: str, addresses: dict[int, str], enable_acting_master: bool, zone: str | None
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.addresses = addresses
        self.enable_acting_master = enable_acting_master
        self.zone = zone
        self.json = self._encode(addresses)
        self.acting_json = self.json
        if addresses and MASTER_ID not in addresses:
            smallest = min(addresses)
            acting = {MASTER_ID: addresses[smallest]} | {i: a for i, a in addresses.items() if i != smallest}
            self.acting_json = self._encode(acting)

    def _encode(self, addresses: dict[int, str]) -> bytes:
        return b'{"brokerAddrs":%b,"brokerName":%b,"cluster":%b,"enableActingMaster":%b%b}' % (
            encode_addresses(addresses),
            encode_json(self.name),
            encode_json(self.cluster),
            b"true" if self.enable_acting_master else b"false",
            b"" if self.zone is None else b',"zoneName":' + encode_json(self.zone),
        )

    def with_addresses(self, addresses: dict[int, str]) -> BrokerData:
        return BrokerData(self.cluster, self.name, addresses, self.enable_acting_master, self.zone)


def encode_addresses(addresses: dict[int, str]) -> bytes:
    """Quoted keys, which every client accepts; compact, since Go cuts the text at its commas."""
    return encode_json({str(broker_id): addresses[broker_id] for broker_id in sorted(addresses)})


@dataclass(slots=True, eq=False)
class LiveBroker:
    """One broker that is heard of. Owned by the writing thread."""

    broker_name: str
    broker_id: int
    ha_address: str
    peer: Peer
    timeout_ms: int
    data_version: DataVersion
    heard_at: float  # monotonic seconds
    body_bytes: int  # of the last table
    removals: int  # TopicTable's count when that table was taken


@dataclass(frozen=True, slots=True)
class Registration:
    """The header of a 103. enable_acting_master is None for senders that do not know it (4.9)."""

    cluster: str
    address: str
    broker_name: str
    broker_id: int
    ha_address: str
    zone: str | None = None
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    enable_acting_master: bool | None = None

    @property
    def key(self) -> BrokerKey:
        return BrokerKey(self.cluster, self.address)


class Master(NamedTuple):
    """What a slave is told about its master."""

    address: str
    ha_address: str


def encode_object(members: dict[str, bytes]) -> bytes:
    """A JSON object of values that are JSON already."""
    return b"{%b}" % b",".join([b"%b:%b" % (encode_json(name), value) for name, value in members.items()])


def encode_topic_list(names: list[str], broker_address: str | None = None) -> bytes:
    """TopicList as JSON, encoded slice by slice."""
    parts = [encode_json(names[at : at + _NAMES_PER_CALL])[1:-1] for at in range(0, len(names), _NAMES_PER_CALL)]
    address = b"" if broker_address is None else b'"brokerAddr":%b,' % encode_json(broker_address)
    return b'{%b"topicList":[%b]}' % (address, b",".join(parts))
