"""`RocketBroker`: taskiq's tasks over RocketMQ. It needs the package taskiq, and is imported by programs that want it:

    from appliance.client.taskiq import RocketBroker

    broker = RocketBroker("127.0.0.1:9876")

    @broker.task
    async def bill(order: int) -> None: ...

`taskiq worker app:broker` runs the tasks; `await bill.kiq(17)` asks for one. Results are a matter of taskiq's result
backends.

A worker's handler waits until taskiq acknowledges the task, so a message whose worker dies comes again, to any worker.
taskiq's own time of acknowledgement (`--ack-type`) says whether that is before or after the task has run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from .aio import Client, PushConsumer
from .errors import InvalidMessage, InvalidOption
from .message import Message, ReceivedMessage

#: Property with taskiq's name of the task, for people and for conditions of SQL92.
_TASK_NAME = "TASK_NAME"
#: Labels of a task that say how its message is sent.
_DELAY, _SHARD = "delay", "shard"
#: Time at the shutdown for acknowledgements that are on their way.
_LAST_S = 1.0


class RocketBroker(AsyncBroker):
    """A broker of taskiq. Its tasks are messages of one topic, which a group of workers shares.

    nameservers, client: as of `appliance.client.Client`, client: its other arguments. topic, group: where tasks are,
    and who shares them. at_once: most tasks that a worker process has begun and not acknowledged. handler_timeout:
    seconds until a task that is not acknowledged comes again.

    A task's label `delay` is seconds to wait, its label `shard` keeps tasks of one shard in one queue.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        *,
        topic: str = "taskiq",
        group: str = "taskiq",
        at_once: int = 100,
        handler_timeout: float = 900.0,
        client: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if not 1 <= at_once <= 1000:
            raise InvalidOption(f"at_once is 1 to 1000, not {at_once!r}.")
        # Constant after construction.
        self._client = Client(nameservers, **(client or {}))
        self._topic = topic
        self._group = group
        self._at_once = at_once
        self._handler_timeout = handler_timeout
        #: Owned by the loop of the worker.
        self._consumers: list[PushConsumer] = []

    async def kick(self, message: BrokerMessage) -> None:
        """Send a task. Raises as `Producer.send`."""
        labels = message.labels
        delay = labels.get(_DELAY)
        try:
            seconds = None if delay is None else float(delay)
        except (TypeError, ValueError):
            raise InvalidMessage(f"The label delay is seconds, not {delay!r}.") from None
        shard = labels.get(_SHARD)
        await self._client.producer().send(
            Message(
                self._topic,
                message.message,
                keys=(message.task_id,),
                properties={_TASK_NAME: message.task_name},
                shard=None if shard is None else str(shard),
                delay=seconds,
            )
        )

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield tasks, each with the function that acknowledges it; for taskiq's workers."""
        waiting: asyncio.Queue[AckableMessage] = asyncio.Queue()
        consumer: PushConsumer = self._client.push_consumer(
            self._group, start="first", workers=self._at_once, handler_timeout=self._handler_timeout
        )

        async def handle(message: ReceivedMessage) -> None:
            acknowledged = asyncio.Event()
            loop = asyncio.get_running_loop()

            async def acknowledge() -> None:
                # taskiq may run this in another loop's thread.
                loop.call_soon_threadsafe(acknowledged.set)

            waiting.put_nowait(AckableMessage(data=message.body, ack=acknowledge))
            # A task that is never acknowledged must not keep its place.
            await asyncio.wait_for(acknowledged.wait(), self._handler_timeout)

        consumer.subscribe(self._topic, handler=handle)
        self._consumers.append(consumer)
        await consumer.start()
        try:
            while True:
                yield await waiting.get()
        finally:
            consumer.pause()  # tasks that run are acknowledged until the shutdown

    async def shutdown(self) -> None:
        """Leave the group. Tasks that are not acknowledged now come again."""
        await super().shutdown()
        for consumer in self._consumers:
            await consumer.close(_LAST_S)
        await self._client.close()
