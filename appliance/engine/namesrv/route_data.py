"""Values in the name server's tables: frozen, and with their own JSON.

Routes are read far more often than they change, so the JSON of a broker, and of a broker's queues of a topic, is made
once, with the value; a route is these pieces joined. There are no blanks in it: the Go client splits the address map at
its commas and would keep blanks as part of an address. Broker ids are quoted or not depending on the client
(`protocol/askers.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import msgspec

from ..named_tuple import NamedTuple
from ..protocol.data_version import DataVersion
from .register_body import TopicShape

MASTER_ID = 0

#: Silence after which a broker is removed, unless it registered with another limit.
DEFAULT_TIMEOUT_MS = 120_000
#: Names that one C call encodes (D10).
_NAMES_PER_CALL = 500

encode_json = msgspec.json.encode


class Peer(Protocol):
    """The connection a broker registered over."""

    @property
    def born_host(self) -> bytes: ...

    @property
    def closed(self) -> bool: ...

    def close(self) -> None: ...


class BrokerKey(NamedTuple):
    """Identity of one broker process."""

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
    """The brokers of one name: broker id -> address, 0 is the master. Frozen."""

    __slots__ = ("_made", "addresses", "cluster", "enable_acting_master", "name", "zone")

    def __init__(
        self, cluster: str, name: str, addresses: dict[int, str], enable_acting_master: bool, zone: str | None
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.addresses = addresses
        self.enable_acting_master = enable_acting_master
        self.zone = zone
        # (quoted, acting) -> JSON, made on first use.
        self._made: dict[tuple[bool, bool], bytes] = {}

    def json(self, quoted: bool, acting: bool = False) -> bytes:
        """Return the JSON for routes. quoted: the ids are quoted. acting: a set without a master shows its smallest id
        as the master."""
        made = self._made.get((quoted, acting))
        if made is None:
            made = self._made[quoted, acting] = self._encode(quoted, acting)
        return made

    def _encode(self, quoted: bool, acting: bool) -> bytes:
        addresses = self.addresses
        if acting and addresses and MASTER_ID not in addresses:
            smallest = min(addresses)
            addresses = {MASTER_ID: addresses[smallest]} | {i: a for i, a in addresses.items() if i != smallest}
        return b'{"brokerAddrs":%b,"brokerName":%b,"cluster":%b,"enableActingMaster":%b%b}' % (
            encode_addresses(addresses, quoted),
            encode_json(self.name),
            encode_json(self.cluster),
            b"true" if self.enable_acting_master else b"false",
            b"" if self.zone is None else b',"zoneName":' + encode_json(self.zone),
        )

    def with_addresses(self, addresses: dict[int, str]) -> BrokerData:
        return BrokerData(self.cluster, self.name, addresses, self.enable_acting_master, self.zone)


def encode_addresses(addresses: dict[int, str], quoted: bool) -> bytes:
    """Encode broker id -> address as JSON, without blanks (see the module)."""
    form = b'"%d":%b' if quoted else b"%d:%b"
    return b"{%b}" % b",".join(form % (one, encode_json(addresses[one])) for one in sorted(addresses))


@dataclass(slots=True, eq=False)
class LiveBroker:
    """One broker that is alive. Owned by the writing thread."""

    broker_name: str
    broker_id: int
    ha_address: str
    peer: Peer
    timeout_ms: int
    data_version: DataVersion
    heard_at: float  # monotonic seconds
    body_bytes: int  # of the last table it sent
    removals: int  # TopicTable.removals when that table was applied


@dataclass(frozen=True, slots=True)
class Registration:
    """The header of a 103. enable_acting_master: None from senders without the field (4.9)."""

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
    """The addresses of a master, as the answer to its slave's registration has them."""

    address: str
    ha_address: str


def encode_object(members: dict[str, bytes]) -> bytes:
    """Encode a JSON object whose values are JSON already."""
    return b"{%b}" % b",".join([b"%b:%b" % (encode_json(name), value) for name, value in members.items()])


def encode_topic_list(names: list[str], broker_address: str | None = None) -> bytes:
    """Encode a TopicList as JSON, slice by slice."""
    parts = [encode_json(names[at : at + _NAMES_PER_CALL])[1:-1] for at in range(0, len(names), _NAMES_PER_CALL)]
    address = b"" if broker_address is None else b'"brokerAddr":%b,' % encode_json(broker_address)
    return b'{%b"topicList":[%b]}' % (address, b",".join(parts))
