"""`Admin` for asyncio."""

from __future__ import annotations

from datetime import datetime

from .acts import finish_awaiting
from .admin import AdminActs
from .core.administration import Broker, Lag
from .message import MessageQueue, ReceivedMessage


class Admin(AdminActs):
    """Made by `aio.Client.admin`. Tasks may share it."""

    async def brokers(self) -> list[Broker]:
        return await finish_awaiting(self._asking_brokers())

    async def topics(self, *, internal: bool = False) -> list[str]:
        return await finish_awaiting(self._asking_topics(internal))

    async def groups(self) -> list[str]:
        return await finish_awaiting(self._asking_groups())

    async def create_topic(self, topic: str, queues: int = 8, *, cluster: str | None = None) -> bool:
        return await finish_awaiting(self._creating(topic, queues, cluster))

    async def delete_topic(self, topic: str) -> None:
        await finish_awaiting(self._deleting(topic))

    async def lag(self, group: str) -> Lag:
        return await finish_awaiting(self._asking_lag(group))

    async def reset(self, group: str, topic: str, to: str | datetime) -> dict[MessageQueue, int]:
        return await finish_awaiting(self._resetting(group, topic, to))

    async def message(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        return await finish_awaiting(self._finding(message_id, topic))

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        most: int = 64,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[ReceivedMessage]:
        return await finish_awaiting(self._finding_by_key(topic, key, most, since, until))
