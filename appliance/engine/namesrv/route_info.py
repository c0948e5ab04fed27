"""The tables of RouteInfoManager: the topics of each broker, and the brokers that are alive.

    topics     topic -> the queues of each broker name (topic_table.py)
    brokers    broker name -> BrokerData: cluster, addresses by broker id
    live       (cluster, address) -> LiveBroker: connection, version of its table, when it last sent something

Apache's cluster -> broker names follows from `brokers`. Nothing is kept on disk: brokers register again.

One thread writes (`pool-namesrv`); any thread may read. There is no lock: the values are frozen and replaced whole, and
a broker is added before its topics and removed after them, so a reader finds the broker of every queue.
Follows RocketMQ 5.3.3 RouteInfoManager; where it differs, the method says so.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from ..clock import Clock
from ..errors import RefusedRequest
from ..protocol.codes import ResponseCode
from ..protocol.data_version import DataVersion
from ..protocol.names import PERM_WRITE
from ..shares import Shares, address_of, share
from .bounds import (
    FEW_BROKERS,
    FEW_ENTRIES,
    FEW_MAPPING_BYTES,
    MOST_ADDRESSES_OF_A_NAME,
    MOST_BROKERS,
    MOST_BROKERS_OF_A_CONNECTION,
    MOST_ENTRIES,
    MOST_MAPPING_BYTES,
    refuse,
)
from .register_body import RegisterBody, TopicShape
from .route_data import (
    MASTER_ID,
    BrokerData,
    BrokerKey,
    LiveBroker,
    Master,
    Peer,
    Registration,
    encode_addresses,
    encode_json,
    encode_object,
    encode_topic_list,
)
from .topic_table import TopicTable

logger = logging.getLogger(__name__)

#: Topics by which the brokers of a group with an acting master find each other; their routes show the true broker ids.
SYNC_MEMBER_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
#: A topic of every broker: it is in each whole table and in no increment.
WHOLE_TABLE_TOPIC = "SELF_TEST_TOPIC"


class RouteInfoManager:
    """The three tables, see the module."""

    def __init__(self, clock: Clock) -> None:
        # Constant after construction.
        self._clock = clock
        # Written by one thread; the values are frozen.
        self._topics = TopicTable()
        self._brokers: dict[str, BrokerData] = {}
        # Owned by the writing thread; any thread may take the length, or look up whether a connection is a key.
        self._live: dict[BrokerKey, LiveBroker] = {}
        self._keys_of: dict[Peer, set[BrokerKey]] = {}
        self._shares = Shares(FEW_BROKERS)

    # --- registration: the writing thread

    def register(
        self,
        who: Registration,
        body: RegisterBody,
        peer: Peer,
        *,
        body_bytes: int = 0,
        unchanged: bool = False,
        delete_missing: bool = False,
    ) -> Master | None:
        """Register a broker; for a slave whose master is known, return that master.

        unchanged: `is_unchanged` was true, so `body` holds the version only. delete_missing: topics that a whole table
        does not have are removed; with Apache's an increment removes them, too, and so empties the table.
        Raises RefusedRequest (1) when there is no room (bounds.py), when the connection has closed, and when an unknown
        broker sends a single topic: an increment must not pass for a table. Nothing has changed then.
        """
        data = self._brokers.get(who.broker_name)
        known = data.addresses if data is not None else {}
        first = who.broker_id not in known
        if first and len(body.topics) == 1:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "register broker failed")
        if self._loses_conflict(who, known, body.data_version):
            self._forget_live(who.key)
            return None
        self._check_room(who, known, body, peer)
        self._note_peer(peer, who.key)
        live = self._live.get(who.key)
        if live is not None:
            if live.peer is not peer:
                self._drop_key(live.peer, who.key)
            if live.broker_name != who.broker_name:
                self._drop_address(live.broker_name, who.key)
        addresses = {i: a for i, a in known.items() if a != who.address} | {who.broker_id: who.address}
        data = BrokerData(who.cluster, who.broker_name, addresses, bool(who.enable_acting_master), who.zone)
        self._brokers[who.broker_name] = data
        if not unchanged:
            replace = first or live is None or live.data_version != body.data_version
            self._take_topics(who, data, body, replace, delete_missing)
        if live is None or live.peer is not peer:
            if live is not None:
                self._shares.give(live.peer.born_host)
            self._shares.add(peer.born_host)
        self._live[who.key] = LiveBroker(
            who.broker_name,
            who.broker_id,
            who.ha_address,
            peer,
            who.timeout_ms,
            body.data_version,
            self._clock.monotonic(),
            body_bytes,
            self._topics.removals,
        )
        if live is None:
            logger.info(
                "namesrv: registered broker=%r id=%d address=%r cluster=%r topics=%d",
                who.broker_name,
                who.broker_id,
                who.address,
                who.cluster,
                len(body.topics),
            )
        return None if who.broker_id == MASTER_ID else self._master_of(data)

    def _check_room(self, who: Registration, known: dict[int, str], body: RegisterBody, peer: Peer) -> None:
        """Refuse with 1 a broker or topics for which there is no room."""
        live = self._live.get(who.key)
        if live is None and not self._shares.room(peer.born_host, MOST_BROKERS):
            raise refuse(f"there are {len(self._live)} brokers, and no more are taken of this address")
        keys = self._keys_of.get(peer, set())
        if who.key not in keys and len(keys) >= MOST_BROKERS_OF_A_CONNECTION:
            raise refuse(f"one connection may register {MOST_BROKERS_OF_A_CONNECTION} brokers")
        if who.broker_id not in known and len(known) >= MOST_ADDRESSES_OF_A_NAME:
            raise refuse(f"a broker name may have {MOST_ADDRESSES_OF_A_NAME} addresses")
        room = self._room_of(peer, self._topics.counts, MOST_ENTRIES, FEW_ENTRIES)
        self._topics.check_room(who.broker_name, body.topics.keys(), room)
        if body.mappings:
            room = self._room_of(peer, self._topics.mapping_bytes, MOST_MAPPING_BYTES, FEW_MAPPING_BYTES)
            self._topics.check_room_of_mappings(who.broker_name, body.mappings, room)

    def _room_of(self, peer: Peer, counts: Mapping[str, int], most: int, few: int) -> int:
        """Return how many more topics, or bytes, the brokers of a connection may have. Counted each time: brokers are
        few. counts: how many each broker has; most: what all may have; few: what a connection may have in any case."""
        address = address_of(peer.born_host)
        own = of_address = 0
        for name, others in {live.broker_name: live.peer for live in self._live.values()}.items():
            if others is peer:
                own += counts.get(name, 0)
            if address_of(others.born_host) == address:
                of_address += counts.get(name, 0)
        free = most - sum(counts.values())
        return max(few - own, share(free - of_address, own), 0)

    def _take_topics(
        self, who: Registration, data: BrokerData, body: RegisterBody, replace: bool, delete_missing: bool
    ) -> None:
        """Apply a table: a master's, or that of the slave with the smallest id if it supports acting masters."""
        mask = ~0
        if who.broker_id != MASTER_ID:
            if who.enable_acting_master is None or who.broker_id != min(data.addresses):
                return
            if data.enable_acting_master:
                mask = ~PERM_WRITE
        if delete_missing and WHOLE_TABLE_TOPIC in body.topics and not body.mappings:
            self._topics.remove_broker(who.broker_name, keep=body.topics)
        self._topics.put(who.broker_name, body.topics, replace=replace, mask=mask)
        if replace:
            self._topics.put_mappings(who.broker_name, body.mappings, body.topics)

    def is_unchanged(self, who: Registration, version: DataVersion | None, body_bytes: int) -> bool:
        """True if a whole table of this version and size was applied from this broker, and nothing was removed since.

        Only for tables too large to be increments: two increments may share a version.
        """
        live = self._live.get(who.key)
        data = self._brokers.get(who.broker_name)
        return (
            live is not None
            and data is not None
            and data.addresses.get(who.broker_id) == who.address
            and live.data_version == version
            and live.body_bytes == body_bytes
            and live.removals == self._topics.removals
        )

    def _loses_conflict(self, who: Registration, known: dict[int, str], version: DataVersion) -> bool:
        """True if another broker keeps the id that this one claims: it is alive, and its state version is larger."""
        holder = known.get(who.broker_id)
        if holder is None or holder == who.address:
            return False
        live = self._live.get(BrokerKey(who.cluster, holder))
        if live is None or live.data_version.state_version <= version.state_version:
            return False
        logger.warning("namesrv: ignored broker=%r address=%r: %r has its id", who.broker_name, who.address, holder)
        return True

    def _note_peer(self, peer: Peer, key: BrokerKey) -> None:
        """Remember the connection over which a broker registered; refuse if it has closed.

        A closing connection sets `closed` and then looks for its brokers; this adds the broker and then looks at
        `closed`. So one of the two sees the other, and no broker stays behind its connection.
        """
        self._keys_of.setdefault(peer, set()).add(key)
        if peer.closed:
            self._drop_key(peer, key)
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "the connection has been closed")

    def _drop_key(self, peer: Peer, key: BrokerKey) -> None:
        keys = self._keys_of.get(peer)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._keys_of[peer]

    def _master_of(self, data: BrokerData) -> Master | None:
        address = data.addresses.get(MASTER_ID)
        live = None if address is None else self._live.get(BrokerKey(data.cluster, address))
        return None if live is None or address is None else Master(address, live.ha_address)

    def register_topic(self, topic: str, queues: Iterable[tuple[str, TopicShape]]) -> None:
        """Add or replace (broker name, shape) pairs of one topic (217). Ends at the first broker that is not known."""
        for broker_name, shape in queues:
            if broker_name not in self._brokers:
                logger.warning("namesrv: ignored a topic of an unknown broker topic=%r broker=%r", topic, broker_name)
                return
            self._topics.check_room_of_217(broker_name, topic)
            self._topics.put(broker_name, {topic: shape}, replace=True)

    # --- liveness: the writing thread

    def heard(self, key: BrokerKey) -> None:
        """Note a sign of life of a broker."""
        live = self._live.get(key)
        if live is not None:
            live.heard_at = self._clock.monotonic()

    def peer_of(self, key: BrokerKey) -> Peer | None:
        """Return the connection over which a broker registered, None if the broker is not known."""
        live = self._live.get(key)
        return None if live is None else live.peer

    def data_version(self, key: BrokerKey) -> DataVersion | None:
        """Return the version of the table that a broker registered last, None if the broker is not known."""
        live = self._live.get(key)
        return None if live is None else live.data_version

    def carries_broker(self, peer: Peer) -> bool:
        """True if a broker registered over this connection. Any thread."""
        return peer in self._keys_of

    def connection_closed(self, peer: Peer) -> None:
        """Remove every broker that registered over this connection."""
        for key in list(self._keys_of.get(peer, ())):
            self._remove_live(key, "connection closed")

    def expire(self) -> list[Peer]:
        """Remove brokers that were silent for too long; return their connections, which the caller closes."""
        now = self._clock.monotonic()
        gone = []
        for key, live in list(self._live.items()):
            if live.peer.closed:
                self._remove_live(key, "connection closed")
            elif now - live.heard_at > live.timeout_ms / 1000:
                gone.append(live.peer)
                self._remove_live(key, f"silent for {live.timeout_ms} ms")
        return gone

    def unregister(self, key: BrokerKey, broker_name: str) -> None:
        """Remove a broker that unregisters (104)."""
        self._forget_live(key)
        self._drop_address(broker_name, key)
        logger.info("namesrv: unregistered broker=%r address=%r", broker_name, key.address)

    def _forget_live(self, key: BrokerKey) -> LiveBroker | None:
        live = self._live.pop(key, None)
        if live is not None:
            self._drop_key(live.peer, key)
            self._shares.give(live.peer.born_host)
        return live

    def _remove_live(self, key: BrokerKey, why: str) -> None:
        live = self._forget_live(key)
        if live is not None:
            self._drop_address(live.broker_name, key)
            logger.warning(
                "namesrv: removed broker=%r id=%d address=%r: %s", live.broker_name, live.broker_id, key.address, why
            )

    def _drop_address(self, broker_name: str, key: BrokerKey) -> None:
        """Remove one address of a broker name; with the last one the name and its queues go.

        The address stays when a broker of this name is alive there in another cluster: then it has moved.
        """
        data = self._brokers.get(broker_name)
        if data is None or key.address not in data.addresses.values():
            return
        for other, live in self._live.items():
            if other != key and other.address == key.address and live.broker_name == broker_name:
                return
        left = {i: a for i, a in data.addresses.items() if a != key.address}
        if not left:
            self._topics.remove_broker(broker_name)
            del self._brokers[broker_name]
            return
        self._brokers[broker_name] = data.with_addresses(left)
        if data.enable_acting_master and MASTER_ID not in left:
            self.change_perm(broker_name, wipe_write=True)

    # --- queues: the writing thread

    def change_perm(self, broker_name: str, *, wipe_write: bool) -> int:
        """Take the write permission from every topic of a broker name (205), or make each readable and writable (327).

        Returns the number of the broker's topics. Holds until the version of the broker's table changes.
        """
        return self._topics.change_perm(broker_name, wipe_write=wipe_write)

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Forget a topic (216): in one cluster, or everywhere when that is None or empty."""
        for queues in self._topics.queues(topic):
            broker = self._brokers.get(queues.broker_name)
            if not cluster or (broker is not None and broker.cluster == cluster):
                self._topics.remove(topic, queues.broker_name)

    # --- reading: any thread

    def route(
        self,
        topic: str,
        *,
        order_conf: str | None = None,
        zone: str | None = None,
        acting_master: bool = False,
        quoted: bool = True,
    ) -> bytes | None:
        """Return TopicRouteData (105) as JSON, None if no known broker has the topic.

        zone: only brokers of that zone, and those without a master. acting_master: where a read-only set of brokers has
        no master, show its smallest id as the master. quoted: the broker ids.
        """
        brokers: list[bytes] = []
        shown: list[bytes] = []
        found = False
        acting_master = acting_master and not topic.startswith(SYNC_MEMBER_PREFIX)
        for queues in self._topics.queues(topic):
            broker = self._brokers.get(queues.broker_name)
            if broker is None:
                continue
            found = True
            if zone and MASTER_ID in broker.addresses and (broker.zone or "").lower() != zone.lower():
                continue
            acts = acting_master and broker.enable_acting_master and not queues.shape.perm & PERM_WRITE
            brokers.append(broker.json(quoted, acts))
            shown.append(queues.json)
        if not found:
            return None
        mapping = self._topics.mapping(topic)
        return b'{"brokerDatas":[%b],"filterServerTable":{},%b"queueDatas":[%b]%b}' % (
            b",".join(brokers),
            b"" if order_conf is None else b'"orderTopicConf":%b,' % encode_json(order_conf),
            b",".join(shown),
            b"" if not mapping else b',"topicQueueMappingByBroker":' + encode_object(mapping),
        )

    def cluster_info(self, quoted: bool = True) -> bytes:
        """ClusterInfo (106) as JSON: every broker, and the broker names of each cluster."""
        brokers = list(self._brokers.values())
        return b'{"brokerAddrTable":%b,"clusterAddrTable":%b}' % (
            encode_object({data.name: data.json(quoted) for data in brokers}),
            encode_json(_names_by_cluster(brokers)),
        )

    def member_group(self, cluster: str, broker_name: str, quoted: bool = True) -> bytes:
        """The response body of 901: the addresses of one broker name."""
        data = self._brokers.get(broker_name)
        return b'{"brokerMemberGroup":{"brokerAddrs":%b,"brokerName":%b,"cluster":%b}}' % (
            encode_addresses({} if data is None else data.addresses, quoted),
            encode_json(broker_name),
            encode_json(cluster),
        )

    def brokers_of(self, topic: str) -> list[str]:
        """The broker names that have a topic."""
        return sorted(queues.broker_name for queues in self._topics.queues(topic))

    def all_topics(self) -> bytes:
        """TopicList (206) of all topics."""
        return encode_topic_list([topic for topic, _ in self._topics.items()])

    def topics_of_cluster(self, cluster: str) -> bytes:
        """TopicList (224) of one cluster."""
        names = {data.name for data in list(self._brokers.values()) if data.cluster == cluster}
        return encode_topic_list(
            [topic for topic, queues in self._topics.items() if any(q.broker_name in names for q in queues)]
        )

    def system_topics(self) -> bytes:
        """TopicList (304): the names of clusters and brokers, and the address of a broker that has the rest."""
        brokers = list(self._brokers.values())
        names: dict[str, None] = {}
        for cluster, members in _names_by_cluster(brokers).items():
            names |= dict.fromkeys([cluster, *members])
        address = next((a for data in brokers for a in data.addresses.values()), None)
        return encode_topic_list(list(names), address)

    def topics_by_flags(self, *, wanted: int, unwanted: int = 0) -> bytes:
        """TopicList of topics whose system flag has all `wanted` bits and no `unwanted` one (311, 312, 313)."""
        return encode_topic_list(
            [
                topic
                for topic, queues in self._topics.items()
                if queues[0].shape.topic_sys_flag & (wanted | unwanted) == wanted
            ]
        )

    @property
    def topic_count(self) -> int:
        return len(self._topics)

    @property
    def broker_count(self) -> int:
        """Number of broker processes that are alive."""
        return len(self._live)


def _names_by_cluster(brokers: list[BrokerData]) -> dict[str, list[str]]:
    clusters: dict[str, list[str]] = {}
    for data in brokers:
        clusters.setdefault(data.cluster, []).append(data.name)
    return clusters
