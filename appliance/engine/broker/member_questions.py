"""Questions to one member of a consumer group: 307 (its running state) and 309 (consume this message now).

Wire and window ask in the same way; each builds its own answer from the member's. Questions are sent on remoting-io,
which does not block until they are answered.
Source: RocketMQ 5.3.3 `AdminBrokerProcessor.callConsumer`, `Broker2Client`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..protocol.askers import KNOWS_MEMBER_QUESTIONS
from ..protocol.command import RemotingCommand
from ..protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ..remoting.event_loop import EventLoop
from ..remoting.peer_requests import Done, PeerRequests
from .clients import ClientChannel, ClientManager
from .groups import SubscriptionGroupManager

#: Time that a member has to answer, as with Apache.
ANSWER_TIMEOUT_S = 10.0

#: physical offset -> the record's bytes, None if there is none; may wait for the disk.
ReadRecord = Callable[[int], bytes | None]


class MemberQuestions:
    """Any thread, but for `ask`."""

    def __init__(
        self,
        clients: ClientManager,
        groups: SubscriptionGroupManager,
        peers: PeerRequests,
        loop: EventLoop,
        broker_name: str,
        read_record: ReadRecord,
    ) -> None:
        # Constant after construction.
        self._clients = clients
        self._groups = groups
        self._peers = peers
        self._loop = loop
        self._broker_name = broker_name
        self.read_record = read_record

    def member(self, group: str, client_id: str) -> ClientChannel | None:
        """Return the member of a group with this client id, if it is connected."""
        info = self._clients.consumer_group(group)
        for channel in [] if info is None else list(info.channels.values()):
            if channel.client_id == client_id:
                return channel
        return None

    def candidates(self, topic: str) -> list[tuple[str, ClientChannel]]:
        """Return (group, member) of all members that consume a topic; for a retry or dead letter topic, those of its
        group, too."""
        own = topic.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX)
        found = []
        for info in self._clients.consumer_groups():
            if topic in info.subscriptions or (own != topic and info.group_name == own):
                found += [(info.group_name, channel) for channel in list(info.channels.values())]
        return found

    @staticmethod
    def is_too_old(channel: ClientChannel) -> bool:
        """True if the client's version does not support these questions."""
        return channel.version < KNOWS_MEMBER_QUESTIONS

    def consume_fields(self, asked: Mapping[str, str]) -> dict[str, str]:
        """Return the header of a 309 to the client, made from that of the request to the broker."""
        config = self._groups.get(asked["consumerGroup"])
        fields = dict(asked) | {"brokerName": self._broker_name}
        fields.setdefault("groupSysFlag", str(config.group_sys_flag if config else 0))
        fields.setdefault("topicSysFlag", "0")
        return fields

    def ask(self, channel: ClientChannel, code: int, fields: dict[str, str], body: bytes, done: Done) -> None:
        """Send the question; `done` as in `PeerRequests.ask`. On remoting-io."""
        self._peers.ask(channel.conn, RemotingCommand(code, ext_fields=fields, body=body), ANSWER_TIMEOUT_S, done)

    def ask_soon(self, channel: ClientChannel, code: int, fields: dict[str, str], body: bytes, done: Done) -> None:
        """Do the same from any thread. `done` is called on remoting-io, and never if that has ended."""
        self._loop.call_soon(lambda: self.ask(channel, code, fields, body, done))
