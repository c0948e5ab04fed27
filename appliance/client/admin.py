"""`Admin`: the few things that programs administer: topics, groups, and how far they are. The rest have `mqadmin` and
the REST API."""

from __future__ import annotations

from datetime import datetime

from .acts import Acts, finish
from .core.administration import END_OF_TIME_MS, Administration, Broker, Lag, QueueLag
from .core.names import without_namespace
from .errors import InvalidOption
from .message import MessageQueue, ReceivedMessage
from .session import Session
from .wire import is_legal_group, topic_name_error

__all__ = ["Admin", "AdminActs", "Broker", "Lag", "QueueLag"]


class AdminActs:
    """An administrator but for its calls."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._core = Administration(session.core.directory, session.clock, session.timeout)

    def _asking_brokers(self) -> Acts[list[Broker]]:
        return (yield self._session.wait(self._core.brokers()))

    def _asking_topics(self, internal: bool) -> Acts[list[str]]:
        return self._shown((yield self._session.wait(self._core.topics(internal))))

    def _asking_groups(self) -> Acts[list[str]]:
        return self._shown((yield self._session.wait(self._core.groups())))

    def _creating(self, topic: str, queues: int, cluster: str | None) -> Acts[bool]:
        if queues < 1:
            raise InvalidOption(f"A topic has 1 queue or more, not {queues!r}.")
        return (yield self._session.wait(self._core.create_topic(self._topic(topic), queues, cluster)))

    def _deleting(self, topic: str) -> Acts[None]:
        yield self._session.wait(self._core.delete_topic(self._topic(topic)))

    def _asking_lag(self, group: str) -> Acts[Lag]:
        return (yield self._session.wait(self._core.lag(self._group(group))))

    def _resetting(self, group: str, topic: str, to: str | datetime) -> Acts[dict[MessageQueue, int]]:
        place: str | int
        if isinstance(to, datetime):
            place = max(0, round(to.timestamp() * 1000))
        elif to in ("first", "last"):
            place = "min" if to == "first" else "max"
        else:
            raise InvalidOption(f'to is "first", "last" or a datetime, not {to!r}.')
        return (yield self._session.wait(self._core.reset(self._group(group), self._topic(topic), place)))

    def _finding(self, message_id: str, topic: str | None) -> Acts[ReceivedMessage]:
        at = None if topic is None else self._topic(topic)
        found: ReceivedMessage = yield self._session.wait(self._core.message(message_id, at))
        self._session.shown([found])
        return found

    def _finding_by_key(
        self, topic: str, key: str, most: int, since: datetime | None, until: datetime | None
    ) -> Acts[list[ReceivedMessage]]:
        if most < 1 or not key:
            raise InvalidOption(f"most is 1 or more, and a key is no empty text; not {most!r} and {key!r}.")
        begin = 0 if since is None else round(since.timestamp() * 1000)
        end = END_OF_TIME_MS if until is None else round(until.timestamp() * 1000)
        found: list[ReceivedMessage] = yield self._session.wait(
            self._core.by_key(self._topic(topic), key, most, begin, end)
        )
        self._session.shown(found)
        return found

    # --- names

    def _topic(self, topic: str) -> str:
        topic = self._session.named(topic)
        why = topic_name_error(topic)
        if why is not None:
            raise InvalidOption(f"There can be no topic {topic[:300]!r}: {why}")
        return topic

    def _group(self, group: str) -> str:
        group = self._session.named(group)
        if not is_legal_group(group):
            raise InvalidOption(f"There can be no group {group[:300]!r}.")
        return group

    def _shown(self, names: list[str]) -> list[str]:
        """Names as users know them: with a namespace those of it alone."""
        space = self._session.namespace
        if not space:
            return names
        return sorted(without_namespace(space, name) for name in names if name == self._session.named(name))


class Admin(AdminActs):
    """Made by `Client.admin`. Threads may share it. All methods raise NoNameServer, BrokerAway, RequestTimeout,
    RequestRefused (NotPermitted without the right), BadAnswer, InvalidOption and Closed."""

    def brokers(self) -> list[Broker]:
        """Return the brokers that name servers know."""
        return finish(self._asking_brokers())

    def topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics. internal: True to have RocketMQ's own as well, and those of retries and dead
        letters."""
        return finish(self._asking_topics(internal))

    def groups(self) -> list[str]:
        """Return the names of consumer groups that brokers know, but for RocketMQ's own."""
        return finish(self._asking_groups())

    def create_topic(self, topic: str, queues: int = 8, *, cluster: str | None = None) -> bool:
        """Make a topic at all brokers, or those of one cluster. False if they all have it; brokers that have it keep it
        as it is, whatever the number of its queues there.

        Raises AdminError for an unknown cluster. If it fails at some brokers, a second call makes it at these.
        """
        return finish(self._creating(topic, queues, cluster))

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and its messages, at all brokers. Raises NoRoute if there is none."""
        finish(self._deleting(topic))

    def lag(self, group: str) -> Lag:
        """Return how far a group is: `lag.total` messages behind, `lag.queues` one by one. Raises AdminError if no
        broker has the group."""
        return finish(self._asking_lag(group))

    def reset(self, group: str, topic: str, to: str | datetime) -> dict[MessageQueue, int]:
        """Move a group to the "first" messages that are kept, behind the "last", or to what was stored at a time or
        later. Its members may run, and go on from there. Returns its new offsets.

        With a broker of 4.9 members need some seconds. Raises NoRoute; RequestRefused if the group is unknown.
        """
        return finish(self._resetting(group, topic, to))

    def message(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """Return a message by its `offset_id`; with the topic also by its `message_id`. Raises AdminError if there is
        none."""
        return finish(self._finding(message_id, topic))

    def by_key(
        self,
        topic: str,
        key: str,
        *,
        most: int = 64,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[ReceivedMessage]:
        """Return the newest messages with a key, the oldest of them first. since, until: of their `stored_at`. Raises
        NoRoute."""
        return finish(self._finding_by_key(topic, key, most, since, until))
