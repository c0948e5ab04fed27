"""The connected clients: every connection that has sent heartbeats, and the members of one group."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from ...broker.clients import ClientChannel, ClientManager, ConsumerGroupInfo
from ...errors import InvalidInput
from ...filter.expressions import TAG_TYPES
from ...protocol.codes import release_name
from ...protocol.names import INNER_PRODUCER_GROUP
from ...remoting.connection import Connection
from .. import snapshots as s
from ..figures.lag import LagSnapshot
from ..sentences import say
from ..tables import page_of, sorted_by

# True for a group that a caller may know of.
Sees: TypeAlias = Callable[[str], bool]


def member_of(channel: ClientChannel) -> s.GroupClient:
    wanted = channel.subscriptions
    return s.GroupClient(
        client_id=channel.client_id,
        address=channel.conn.remote_host,
        language=channel.language,
        version=release_name(channel.version),
        heartbeat_at_ms=channel.last_update_ms,
        subscriptions=None
        if wanted is None
        else tuple(s.Subscription(data.topic, data.sub_string, data.expression_type) for data in wanted),
    )


def members_of(info: ConsumerGroupInfo | None) -> tuple[s.GroupClient, ...]:
    """Return the clients of a group, sorted by client id."""
    channels = [] if info is None else list(info.channels.values())
    return tuple(sorted(map(member_of, channels), key=lambda client: (client.client_id, client.address)))


def conflicts_of(members: tuple[s.GroupClient, ...]) -> tuple[s.SubscriptionConflict, ...]:
    """Return topics that members subscribe to differently. A member whose subscriptions are not known is ignored."""
    known = []
    for member in members:
        if member.subscriptions is not None:  # each may name thousands of topics
            known.append((member, {one.topic: one for one in reversed(member.subscriptions)}))
    topics = sorted({topic for _, wants in known for topic in wants})
    found = []
    for topic in topics:
        versions: dict[tuple[str, str] | None, list[s.GroupClient]] = {}
        for member, wants in known:
            wanted = wants.get(topic)
            key = None if wanted is None else (_same(wanted.expression, wanted.kind), wanted.kind)
            versions.setdefault(key, []).append(member)
        if len(versions) > 1:
            found.append(
                s.SubscriptionConflict(
                    topic,
                    tuple(
                        s.SubscriptionVersion(
                            None if key is None else key[0], None if key is None else key[1], tuple(clients)
                        )
                        for key, clients in sorted(versions.items(), key=lambda item: (-len(item[1]), str(item[0])))
                    ),
                )
            )
    return tuple(found)


def _same(expression: str, kind: str | None) -> str:
    """Return the expression with its tags sorted: "b || a" and "a||b" are the same."""
    if kind not in TAG_TYPES or "||" not in expression:
        return expression
    return " || ".join(sorted(part.strip() for part in expression.split("||") if part.strip()))


def producer_groups_of(clients: ClientManager) -> list[str]:
    """Return the producer groups without the internal one that every Java client has."""
    return [group for group in clients.producer_groups() if group != INNER_PRODUCER_GROUP]


class ClientViews:
    """Any thread."""

    def __init__(self, clients: ClientManager) -> None:
        self._clients = clients

    def all(self) -> list[s.ClientRow]:
        """Return one row a connection."""
        clients = self._clients
        now = time.monotonic()
        newest: dict[Connection, ClientChannel] = {}
        producers: dict[Connection, list[str]] = {}
        consumers: dict[Connection, list[str]] = {}
        for info in clients.consumer_groups():
            for channel in list(info.channels.values()):
                consumers.setdefault(channel.conn, []).append(info.group_name)
                _keep_newest(newest, channel)
        for channel in clients.producer_channels(INNER_PRODUCER_GROUP):
            _keep_newest(newest, channel)
        for group in producer_groups_of(clients):
            for channel in clients.producer_channels(group):
                producers.setdefault(channel.conn, []).append(group)
                _keep_newest(newest, channel)
        return [
            s.ClientRow(
                client_id=channel.client_id,
                address=conn.remote_host,
                language=channel.language,
                version=release_name(channel.version),
                producer_groups=tuple(sorted(producers.get(conn, ()))),
                consumer_groups=tuple(sorted(consumers.get(conn, ()))),
                heartbeat_at_ms=channel.last_update_ms,
                parked_pulls=conn.parked_count,
                connected_ms=int(1000 * max(0.0, now - conn.connected_at)),
            )
            for conn, channel in newest.items()
        ]

    def named(self, client_id: str, sees: Sees | None = None) -> tuple[s.ClientRow, ...]:
        """Return the connections of one client id; a client may have several. Empty if none is connected. sees: as for
        `page`."""
        return tuple(row for row in self._seen(sees) if row.client_id == client_id)

    def _seen(self, sees: Sees | None) -> list[s.ClientRow]:
        """Return the rows without groups that a caller does not see, and without rows that then name none."""
        rows = self.all()
        if sees is None:
            return rows
        cut = (
            replace(
                row,
                producer_groups=tuple(filter(sees, row.producer_groups)),
                consumer_groups=tuple(filter(sees, row.consumer_groups)),
            )
            for row in rows
        )
        return [row for row in cut if row.producer_groups or row.consumer_groups]

    def counts(self, progress: LagSnapshot) -> tuple[int, int]:
        """Return (number of connections that produce, number that consume)."""
        clients = self._clients
        producers = {
            channel.conn for group in producer_groups_of(clients) for channel in clients.producer_channels(group)
        }
        consumers = {conn for info in progress.online.values() for conn in list(info.channels)}
        return len(producers), len(consumers)

    def page(
        self,
        q: str = "",
        role: str | None = None,
        group: str | None = None,
        sort: str = "client_id",
        page: int = 1,
        page_size: int = 50,
        sees: Sees | None = None,
    ) -> s.Page:
        """Return a page of ClientRow, one a connection that sent heartbeats.

        q: part of a client id, address or group. role: "producer" or "consumer". sort: client_id, address, language,
        version, heartbeat, connected. sees: True for the groups that the caller may know of; None for all.
        """
        if role not in (None, "producer", "consumer"):
            raise InvalidInput("role", say("one_of", field="role", choices="producer, consumer"))
        needle = q.strip().lower()
        rows = []
        for row in self._seen(sees):
            if role == "producer" and not row.producer_groups:
                continue
            if role == "consumer" and not row.consumer_groups:
                continue
            groups = row.producer_groups + row.consumer_groups
            if group is not None and group not in groups:
                continue
            if needle and not any(needle in text.lower() for text in (row.client_id, row.address, *groups)):
                continue
            rows.append(row)
        rows = sorted_by(
            rows,
            sort,
            {
                "client_id": lambda r: (r.client_id, r.address),
                "address": lambda r: r.address,
                "language": lambda r: (r.language, r.version, r.client_id),
                "version": lambda r: (r.version, r.client_id),
                "heartbeat": lambda r: r.heartbeat_at_ms,
                "connected": lambda r: r.connected_ms,
            },
        )
        return page_of(rows, page, page_size)


def _keep_newest(newest: dict[Connection, ClientChannel], channel: ClientChannel) -> None:
    known = newest.get(channel.conn)
    if known is None or known.last_update_ms < channel.last_update_ms:
        newest[channel.conn] = channel
