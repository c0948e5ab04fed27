"""ClientManager: the connected producers and consumers, their groups and subscriptions, as heartbeats name them.

A group's subscriptions are those of its last heartbeat, so all its members must subscribe alike. When a client joins or
leaves a group, all its members are notified (40), the new one included, and they share out the queues again.
Source: RocketMQ 5.3.3 `ClientManageProcessor`, `ConsumerManager`, `ConsumerGroupInfo`, `ProducerManager`.
Differs: a connection leaves a group that its heartbeats have not named for the same 120 s, without being closed; the
answer to a heartbeat without subscriptions (V2) asks for a full one if the broker has none of that client.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set

from ..clock import Clock
from ..config import BrokerConfig
from ..few_lines import FewLines
from ..named_tuple import NamedTuple
from ..protocol.codes import RequestCode
from ..protocol.command import FLAG_ONEWAY, RemotingCommand, encode_command
from ..remoting.connection import Connection
from .attendance import Attendance
from .filters.consumer_filters import Compiled, ConsumerFilters
from .groups import SubscriptionGroupManager
from .heartbeat import BROADCASTING, ConsumerData, SubscriptionData
from .heartbeat_bounds import subscription_bytes

logger = logging.getLogger(__name__)

#: Most lines on clients that come, go, or subscribe anew, in a time: a client may reconnect without a pause.
_TOLD, _TELL_S = 20, 60.0

_opaques = itertools.count()
#: Groups whose rebalances are counted; beyond that counting begins anew, and differences of counts come out too small.
MOST_COUNTED = 20_000
#: Subscriptions of a group's members that are compared with those in one heartbeat: some milliseconds.
MOST_COMPARED = 20_000
#: Groups of either kind that a closed connection leaves in a tick, and members that are notified in a tick: about a
#: millisecond.
_LEFT_AT_ONCE, _TOLD_AT_ONCE = 20, 250


class Client(NamedTuple):
    """The sender of a heartbeat. version: `MQVersion` ordinal."""

    client_id: str
    language: str
    version: int


class ClientChannel:
    """One client of one group on one connection. last_update_ms: wall time of its last heartbeat.

    subscriptions: those of this client's own last full heartbeat, which the group's table does not show; None before
    one.
    """

    __slots__ = ("_weighed", "_weight", "client_id", "conn", "language", "last_update_ms", "subscriptions", "version")

    def __init__(self, conn: Connection, who: Client, now_ms: int) -> None:
        self.conn = conn
        self.subscriptions: list[SubscriptionData] | None = None
        self._weighed: list[SubscriptionData] | None = None
        self._weight = 0
        self.take(who, now_ms)

    def take(self, who: Client, now_ms: int) -> None:
        """Take over the client's data from another heartbeat."""
        self.client_id, self.language, self.version = who
        self.last_update_ms = now_ms

    def subscription_bytes(self) -> int:
        """Return roughly how many bytes its subscriptions take; counted once for each list of them."""
        if self._weighed is not self.subscriptions:
            self._weighed = self.subscriptions
            self._weight = subscription_bytes(self.subscriptions or ())
        return self._weight


class ConsumerGroupInfo:
    """A consumer group that is online. fingerprint: of the last heartbeat, 0 without V2, None before the first."""

    __slots__ = (
        "channels",
        "consume_from_where",
        "consume_type",
        "fingerprint",
        "group_name",
        "ids",
        "message_model",
        "newest",
        "state",
        "subscriptions",
        "to_be_told",
        "twice",
    )

    def __init__(self, group_name: str) -> None:
        #: Its members will be notified that they have to share out the queues again.
        self.to_be_told = False
        self.group_name = group_name
        self.consume_type = ""
        self.message_model = ""
        self.consume_from_where = ""
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.channels: dict[Connection, ClientChannel] = {}
        #: ids: client id -> number of channels with it. newest: of several channels the newest one's connection. twice:
        #: ids that several clients use: an older channel sent a heartbeat after a newer one had come, so that it is not
        #: one client that reconnected.
        self.ids: dict[str, int] = {}
        self.newest: dict[str, Connection] = {}
        self.twice: set[str] = set()
        self.fingerprint: int | None = None
        #: Counts the changes that heartbeats made to the group. While it stays the same, a repeated heartbeat changes
        #: nothing.
        self.state = 0

    def client_ids(self) -> list[str]:
        """Return the members' client ids."""
        return [channel.client_id for channel in list(self.channels.values())]

    def add_id(self, client_id: str, conn: Connection) -> None:
        """Count a channel that has this id from now on."""
        self.ids[client_id] = number = self.ids.get(client_id, 0) + 1
        if number > 1:
            self.newest[client_id] = conn

    def drop_id(self, client_id: str) -> bool:
        """Stop counting a channel that had this id. True if none is left with it."""
        left = self.ids.pop(client_id) - 1
        if left:
            self.ids[client_id] = left
        if left < 2:
            self.twice.discard(client_id)
            self.newest.pop(client_id, None)
        return not left

    def subscribe(self, wanted: list[SubscriptionData]) -> bool:
        """Take over a member's subscriptions, which its channel has already. True if a topic came or went.

        If members subscribe a topic in different ways, the newest version counts, as with Apache, but only among those
        that a member has now: versions are clients' clocks, and one that was ahead would fix the subscription for good.
        """
        table = self.subscriptions
        changed = False
        topics = set()
        said: dict[str, list[SubscriptionData]] | None = None
        for data in wanted:
            topics.add(data.topic)
            known = table.get(data.topic)
            if known is None or data.sub_version > known.sub_version:
                table[data.topic] = data
                changed = changed or known is None
            elif not _want_the_same(data, known):
                if said is None:
                    said = self._said_by_members()
                table[data.topic] = _newest(data, known, said.get(data.topic, ()))
        for topic in [topic for topic in table if topic not in topics]:
            del table[topic]
            changed = True
        return changed

    def _said_by_members(self) -> dict[str, list[SubscriptionData]]:
        """Return topic -> the members' subscriptions to it; of very many, those of the members that came last. These
        mostly have the newest versions, without which the group would go to and fro. Called at most once a heartbeat:
        each member may have thousands."""
        found: dict[str, list[SubscriptionData]] = {}
        left = MOST_COMPARED
        for channel in reversed(self.channels.values()):
            said = channel.subscriptions or ()
            left -= len(said)
            if left < 0:
                break
            for one in said:
                found.setdefault(one.topic, []).append(one)
        return found


def _newest(data: SubscriptionData, known: SubscriptionData, said: Iterable[SubscriptionData]) -> SubscriptionData:
    """Return the subscription to a topic that counts: `known` if a member still has it, else the newest one."""
    newest = data
    for one in said:
        if one == known:
            return known
        if one.sub_version > newest.sub_version:
            newest = one
    return newest


def _want_the_same(one: SubscriptionData, other: SubscriptionData) -> bool:
    return (one.sub_string, one.expression_type, one.tags_set, one.code_set) == (
        other.sub_string,
        other.expression_type,
        other.tags_set,
        other.code_set,
    )


class _Known(NamedTuple):
    """The entries that a heartbeat led to. generation: of the tables it depends on."""

    generation: int
    consumers: tuple[tuple[ConsumerGroupInfo, int, ClientChannel], ...]
    producers: tuple[ClientChannel, ...]


class _Presence:
    """The groups that one connection is in: group -> when a heartbeat last named it, in monotonic seconds."""

    __slots__ = ("consumers", "heard_at", "incomplete", "known", "mark", "producer_id", "producers")

    def __init__(self, now: float) -> None:
        self.heard_at = now
        self.mark: int | None = None
        #: Set if the last heartbeat named all groups of the connection, so that the same one can be taken again without
        #: being read. The times of the groups then lag behind `heard_at`.
        self.known: _Known | None = None
        #: There was no room for part of the heartbeat that is being registered.
        self.incomplete = False
        #: The client id under which replies find it, while it is in a producer group.
        self.producer_id: str | None = None
        self.consumers: dict[str, float] = {}
        self.producers: dict[str, float] = {}


class ClientManager:
    """Owned by remoting-io. Other threads read copies: `consumer_groups()`, `list(info.channels.values())`."""

    def __init__(
        self,
        config: BrokerConfig,
        groups: SubscriptionGroupManager,
        clock: Clock,
        later: Callable[[Callable[[], None]], None],
        filters: ConsumerFilters,
    ) -> None:
        """later: runs a function on this thread in the same tick or the next. filters: receives the subscriptions of
        groups."""
        # Constant after construction.
        self._filters = filters
        self._later = later
        self._groups = groups
        self._clock = clock
        self._lines = FewLines(logger.info, _TOLD, _TELL_S, clock.monotonic)
        self._expiry_s = config.channel_expired_timeout_ms / 1000
        # Replaced whole by take_options().
        self._config = config
        # Owned by remoting-io.
        self._consumers: dict[str, ConsumerGroupInfo] = {}
        self._producers: dict[str, dict[Connection, ClientChannel]] = {}
        # Client id -> the connections of producers that have it, the one that came last at the end.
        self._producers_by_id: dict[str, dict[Connection, None]] = {}
        #: Called when a channel with a consumer's client id joins a group: (group, client id); and when the group has
        #: lost its last channel with a client id: (group, client id, True if the client signed off).
        self.on_consumer: Callable[[str, str], None] = lambda group, client_id: None
        self.on_consumer_gone: Callable[[str, str, bool], None] = lambda group, client_id, signed_off: None
        #: The times at which consumer groups had members.
        self.attendance = Attendance(clock)
        #: Called with a producer group when its first member comes.
        self.on_producers: Callable[[str], None] = lambda group: None
        # Groups whose members are to be notified; the members that come next, and their frame; True if `_tell_some` is
        # due.
        self._to_tell: deque[ConsumerGroupInfo] = deque()
        self._members: deque[Connection] = deque()
        self._notice = b""
        self._is_telling = False
        # The connection that was silent longest comes first.
        self._presence: dict[Connection, _Presence] = {}
        #: Group -> how often its members were notified to share out its queues again; other threads copy it.
        self.rebalances: dict[str, int] = {}

    def take_options(self, config: BrokerConfig) -> None:
        """Use these options from now on. Any thread."""
        self._config = config

    def take_over(self, other: ClientManager) -> None:
        """Take over the clients of another broker of this process, which has ended: their connections stand, and their
        next heartbeats may be far away."""
        self._consumers, self._producers = other._consumers, other._producers
        self._producers_by_id, self._presence = other._producers_by_id, other._presence
        self.rebalances = other.rebalances
        self.attendance.take_over(other.attendance)
        for presence in self._presence.values():
            self._settle(presence)  # the same heartbeat has to be read again here
            presence.mark = None
        for conn in [conn for conn in self._presence if conn.closed]:
            self.on_close(conn)
        for name, info in self._consumers.items():
            self._filters.register(name, list(info.subscriptions.values()))
        for group in self._producers:
            self.on_producers(group)

    # --- questions

    def consumer_group(self, group: str) -> ConsumerGroupInfo | None:
        """Return the group if any of its members is online."""
        return self._consumers.get(group)

    def consumer_groups(self) -> list[ConsumerGroupInfo]:
        """Return a copy of the consumer groups that are online, made in one call."""
        return list(self._consumers.values())

    def producer_channels(self, group: str) -> list[ClientChannel]:
        """Return the producers of a group that are online."""
        return list(self._producers.get(group, {}).values())

    def producer_of(self, client_id: str) -> Connection | None:
        """Return the connection of a producer with this client id; of several, the one that came last."""
        found = self._producers_by_id.get(client_id)
        return None if found is None else next(reversed(found))

    def producer_groups(self) -> list[str]:
        """Return a copy of the names of producer groups that are online, made in one call."""
        return list(self._producers)

    def groups_of(self, conn: Connection) -> tuple[Mapping[str, object], Mapping[str, object]]:
        """Return the consumer groups and the producer groups that a connection is in, as keys."""
        presence = self._presence.get(conn)
        return ({}, {}) if presence is None else (presence.consumers, presence.producers)

    def subscription_bytes(self, conn: Connection, groups: Iterable[str]) -> int:
        """Return roughly how many bytes a connection's own subscriptions in these groups take."""
        found = 0
        for name in groups:
            info = self._consumers.get(name)
            channel = None if info is None else info.channels.get(conn)
            found += 0 if channel is None else channel.subscription_bytes()
        return found

    # --- heartbeats

    def register_consumer(
        self,
        conn: Connection,
        who: Client,
        consumer: ConsumerData,
        fingerprint: int = 0,
        without_sub: bool = False,
        compiled: Compiled | None = None,
    ) -> bool:
        """Take one consumer group's entry of a heartbeat. True if the client has to send a full heartbeat next (V2
        only), also because there was no room for all of its filters now.

        compiled: filters of its long expressions. Members are notified (40) when the connection is new to the group, or
        a topic came or went.
        """
        name = consumer.group_name
        now_ms = self._clock.wall_ms()
        info = self._consumers.get(name)
        if info is None:
            info = self._consumers[name] = ConsumerGroupInfo(name)
            self.attendance.came(name)
        said = (consumer.consume_type, consumer.message_model, consumer.consume_from_where, fingerprint)
        if said != (info.consume_type, info.message_model, info.consume_from_where, info.fingerprint):
            info.state += 1
            info.consume_type = str(consumer.consume_type)
            info.message_model = str(consumer.message_model)
            info.consume_from_where = str(consumer.consume_from_where)
        without = without_sub and fingerprint != 0
        full_wanted = without if info.fingerprint is None else info.fingerprint != fingerprint
        info.fingerprint = fingerprint

        changed = False
        channel = info.channels.get(conn)
        if channel is None:
            info.channels[conn] = ClientChannel(conn, who, now_ms)
            changed = True
            info.add_id(who.client_id, conn)
            self.on_consumer(name, who.client_id)
            self._lines.log(
                "clients: consumer joined group=%s client=%s from=%s", name, who.client_id, conn.remote_host
            )
        else:
            if channel.client_id != who.client_id:
                self._lose_id(info, channel.client_id, True)
                info.add_id(who.client_id, conn)
                self.on_consumer(name, who.client_id)
            channel.take(who, now_ms)
            newest = info.newest.get(who.client_id, conn) if info.newest else conn
            # In a broadcasting group each member has all queues, whatever its client id.
            if newest is not conn and who.client_id not in info.twice and info.message_model != BROADCASTING:
                self._tell_of_twins(info, who.client_id)
        if not without:
            info.channels[conn].subscriptions = consumer.subscription_data_set
            if info.subscribe(consumer.subscription_data_set):
                changed = True
                some = list(itertools.islice(info.subscriptions, 20))
                self._lines.log(
                    "clients: subscriptions changed group=%s count=%d %s", name, len(info.subscriptions), some
                )
            if not self._filters.register(name, info.subscriptions.values(), compiled, conn.born_host):
                self._present(conn).incomplete = full_wanted = True
        self._present(conn).consumers[name] = self._clock.monotonic()
        if changed:
            info.state += 1
            self._notify(info)
        return full_wanted

    def _tell_of_twins(self, info: ConsumerGroupInfo, client_id: str) -> None:
        """Log, once, that several clients use one client id."""
        info.twice.add(client_id)
        hosts = [conn.remote_host for conn, channel in info.channels.items() if channel.client_id == client_id]
        logger.error(
            "clients: one client id is used by several clients, and some queues are read by none of them: give each "
            "its own instanceName group=%s client=%s from=%s",
            info.group_name,
            client_id,
            ", ".join(hosts[:10]),
        )

    def _lose_id(self, info: ConsumerGroupInfo, client_id: str, signed_off: bool) -> None:
        if info.drop_id(client_id):
            self.on_consumer_gone(info.group_name, client_id, signed_off)

    def register_producer(self, conn: Connection, who: Client, group: str) -> None:
        """Take one producer group's entry of a heartbeat."""
        now_ms = self._clock.wall_ms()
        channels = self._producers.get(group)
        if channels is None:
            channels = self._producers[group] = {}
            self.on_producers(group)
        channel = channels.get(conn)
        if channel is None:
            channels[conn] = ClientChannel(conn, who, now_ms)
            self._lines.log(
                "clients: producer joined group=%s client=%s from=%s", group, who.client_id, conn.remote_host
            )
        else:
            channel.take(who, now_ms)
        presence = self._present(conn)
        presence.producers[group] = self._clock.monotonic()
        if presence.producer_id != who.client_id:
            self._forget_id(conn, presence)
            presence.producer_id = who.client_id
            self._producers_by_id.setdefault(who.client_id, {})[conn] = None

    def mark_of(self, conn: Connection) -> int | None:
        """Return the mark of the connection's last heartbeat, as `heard` got it."""
        presence = self._presence.get(conn)
        return None if presence is None else presence.mark

    def heard(
        self,
        conn: Connection,
        mark: int | None = None,
        named: tuple[Set[str], Set[str]] | None = None,
        generation: int = 0,
    ) -> None:
        """Note that a heartbeat was taken in full; leave the groups that the connection has not named for long.

        mark: distinguishes the heartbeat from others. named: the consumer groups and producer groups that it named, if
        the same heartbeat would change nothing while `generation` stays the same; see `heard_again`.
        """
        presence = self._presence.pop(conn, None)
        if presence is None:
            return
        self._settle(presence)
        presence.mark = mark
        now = self._clock.monotonic()
        presence.heard_at = now
        self._presence[conn] = presence  # now the last one
        self._leave_unmentioned(conn, presence, now)
        if presence.incomplete:  # the same heartbeat has to be read again
            presence.incomplete = False
        elif named == (presence.consumers.keys(), presence.producers.keys()) and conn in self._presence:
            infos = [self._consumers[group] for group in presence.consumers]
            presence.known = _Known(
                generation,
                tuple((info, info.state, info.channels[conn]) for info in infos),
                tuple(self._producers[group][conn] for group in presence.producers),
            )

    def heard_again(self, conn: Connection, mark: int, generation: int) -> bool:
        """Take a heartbeat that equals the connection's last one, if it changes only times.

        False: it has to be read. This way 100,000 clients with one every 30 s cost a few percent of a core.
        """
        presence = self._presence.get(conn)
        if presence is None or presence.mark != mark:
            return False
        known = presence.known
        if known is None or known.generation != generation:
            return False
        for info, state, _ in known.consumers:
            if info.state != state:
                return False
        now_ms = self._clock.wall_ms()
        for _, _, channel in known.consumers:
            channel.last_update_ms = now_ms
        for channel in known.producers:
            channel.last_update_ms = now_ms
        presence.heard_at = self._clock.monotonic()
        del self._presence[conn]
        self._presence[conn] = presence  # now the last one
        return True

    @staticmethod
    def _settle(presence: _Presence) -> None:
        """Set the times of its groups to the last heartbeat, which named them all. The next one has to be read."""
        if presence.known is None:
            return
        presence.known = None
        heard_at = presence.heard_at
        for times in (presence.consumers, presence.producers):
            for group, named_at in times.items():
                if named_at < heard_at:
                    times[group] = heard_at

    def _present(self, conn: Connection) -> _Presence:
        presence = self._presence.get(conn)
        if presence is None:
            presence = self._presence[conn] = _Presence(self._clock.monotonic())
        return presence

    def _leave_unmentioned(self, conn: Connection, presence: _Presence, now: float) -> None:
        """Take the connection out of groups that its heartbeats have not named for long."""
        for group in [group for group, named_at in presence.consumers.items() if now - named_at > self._expiry_s]:
            self._leave_consumer(conn, group)
        for group in [group for group, named_at in presence.producers.items() if now - named_at > self._expiry_s]:
            self._leave_producer(conn, group)

    # --- leaving

    def unregister_consumer(self, conn: Connection, group: str) -> None:
        """Take the connection out of a consumer group, and notify the other members. An empty group is forgotten."""
        self._leave_consumer(conn, group, signed_off=True)

    def unregister_producer(self, conn: Connection, group: str) -> None:
        """Take the connection out of a producer group."""
        self._leave_producer(conn, group)

    def on_close(self, conn: Connection) -> None:
        """Take a closed connection out of all its groups: some at once, the others in the next ticks."""
        presence = self._presence.get(conn)
        if presence is None:
            return
        for group in list(itertools.islice(presence.consumers, _LEFT_AT_ONCE)):
            self._leave_consumer(conn, group)
        for group in list(itertools.islice(presence.producers, _LEFT_AT_ONCE)):
            self._leave_producer(conn, group)
        if presence.consumers or presence.producers:
            presence.heard_at = self._clock.monotonic()
            self._presence[conn] = self._presence.pop(conn)  # to the end, as heard of last
            self._later(lambda: self.on_close(conn))
        else:
            self._presence.pop(conn, None)

    def scan_expired(self) -> None:
        """Close connections that sent no heartbeat for channelExpiredTimeout (120 s); looks at those only.

        A connection that is not being read, or was not until just now, may have sent one: its time starts again.
        """
        now = self._clock.monotonic()
        while self._presence:
            conn, presence = next(iter(self._presence.items()))
            if now - presence.heard_at <= self._expiry_s:
                return
            if conn.unread or now - conn.listening_since <= self._expiry_s:
                presence.heard_at = now
                self._presence[conn] = self._presence.pop(conn)
                continue
            logger.warning("clients: no heartbeat, closing %s client=%s", conn.remote_host, conn.client_id)
            self.on_close(conn)
            conn.close()

    def _leave_consumer(self, conn: Connection, group: str, signed_off: bool = False) -> None:
        self._forget(conn, group, consumer=True)
        info = self._consumers.get(group)
        channel = None if info is None else info.channels.pop(conn, None)
        if info is None or channel is None:
            return
        self._lose_id(info, channel.client_id, signed_off)
        self._lines.log("clients: consumer left group=%s from=%s", group, conn.remote_host)
        if not info.channels:
            del self._consumers[group]
            self.attendance.left(group)
            self._filters.unregister(group)
            self._groups.note_heard(group)
            return
        info.state += 1  # its subscription to a topic may no longer count
        self._notify(info)

    def _leave_producer(self, conn: Connection, group: str) -> None:
        self._forget(conn, group, consumer=False)
        channels = self._producers.get(group)
        if channels is None or channels.pop(conn, None) is None:
            return
        self._lines.log("clients: producer left group=%s from=%s", group, conn.remote_host)
        if not channels:
            del self._producers[group]

    def _forget(self, conn: Connection, group: str, consumer: bool) -> None:
        presence = self._presence.get(conn)
        if presence is not None:
            self._settle(presence)
            (presence.consumers if consumer else presence.producers).pop(group, None)
            if not presence.producers:
                self._forget_id(conn, presence)
            if not presence.consumers and not presence.producers:
                del self._presence[conn]

    def _forget_id(self, conn: Connection, presence: _Presence) -> None:
        """Take the connection out of the table in which replies look for it."""
        client_id, presence.producer_id = presence.producer_id, None
        if client_id is None:
            return
        others = self._producers_by_id[client_id]
        del others[conn]
        if not others:
            del self._producers_by_id[client_id]

    # --- NOTIFY_CONSUMER_IDS_CHANGED

    def have_rebalance(self, group: str) -> None:
        """Have a group's members share out its queues again now; on remoting-io."""
        info = self._consumers.get(group)
        if info is not None:
            self._notify(info)

    def _notify(self, info: ConsumerGroupInfo) -> None:
        """Have every member share out the queues again; not in a broadcasting group, where each member has them all.

        Once a tick: a client that joins and leaves a thousand times in one read is one change.
        """
        if info.message_model == BROADCASTING or not self._config.notify_consumer_ids_changed_enable:
            return
        group = self._groups.get(info.group_name)
        if group is not None and not group.notify_consumer_ids_changed_enable:
            return
        if not info.to_be_told:
            info.to_be_told = True
            self._to_tell.append(info)
            if not self._is_telling:
                self._is_telling = True
                self._later(self._tell_some)

    def _tell_some(self) -> None:
        """Notify some members, and the next ones in another tick. If one notice fails, the others still go out."""
        try:
            for _ in range(_TOLD_AT_ONCE):
                if self._members:
                    self._members.popleft().send(self._notice)
                elif self._to_tell:
                    self._begin_to_tell(self._to_tell.popleft())
                else:
                    return
        finally:
            self._is_telling = bool(self._members or self._to_tell)
            if self._is_telling:
                self._later(self._tell_some)

    def _begin_to_tell(self, info: ConsumerGroupInfo) -> None:
        """Make the members of a group the next ones to be notified, and count its rebalance."""
        info.to_be_told = False
        if len(self.rebalances) >= MOST_COUNTED and info.group_name not in self.rebalances:
            self.rebalances.clear()
        self.rebalances[info.group_name] = self.rebalances.get(info.group_name, 0) + 1
        notice = RemotingCommand(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
            opaque=next(_opaques) & 0x7FFFFFFF,
            flag=FLAG_ONEWAY,
            ext_fields={"consumerGroup": info.group_name},
        )
        self._notice = encode_command(notice)
        self._members.extend(info.channels)
