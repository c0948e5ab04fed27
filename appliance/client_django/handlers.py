"""Groups of consumers and their handlers, declared in each app's `consumers.py`; `manage.py consume` runs them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from .sdk import Client, InvalidOption, PushConsumer, ReceivedMessage, is_async

Handler = TypeVar("Handler", bound=Callable[[Any], object])

MODULE = "consumers"
_groups: dict[str, ConsumerGroup] = {}


@dataclass(frozen=True, slots=True)
class Subscription:
    topic: str
    tags: str
    sql: str | None
    handler: Callable[[Any], object]
    #: The database in which it is noted that a message was handled; None: it is not.
    once: str | None


class ConsumerGroup:
    """Made by `consumer_group`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.options: dict[str, Any] = {}
        self.subscriptions: list[Subscription] = []

    def subscribe(
        self, topic: str, tags: str = "*", *, sql: str | None = None, once: bool | str = False
    ) -> Callable[[Handler], Handler]:
        """Have the decorated function handle the messages of a topic. It stays a plain function, for tests.

        tags, sql: as of `PushConsumer.subscribe`. once: True, or the alias of a database: the handler runs in a
        transaction that also notes the message, so its changes to that database are made once, however often the
        message is delivered; all else that it does may happen again.
        """

        def declare(handler: Handler) -> Handler:
            database = ("default" if once is True else once) or None
            # The module of a handler may be loaded again under the same name.
            self.subscriptions[:] = [one for one in self.subscriptions if one.topic != topic]
            self.subscriptions.append(Subscription(topic, tags, sql, handler, database))
            return handler

        return declare

    def consumer_of(self, client: Client) -> PushConsumer:
        """Return a consumer of this client with all handlers; it is not started. Raises InvalidOption."""
        if not self.subscriptions:
            raise InvalidOption(f"The group {self.name} has no handler: decorate one with subscribe(topic).")
        try:
            consumer = client.push_consumer(self.name, **self.options)
        except TypeError as error:
            raise InvalidOption(f"consumer_group({self.name!r}): {error}.") from None
        for one in self.subscriptions:
            if is_async(one.handler):
                raise InvalidOption(f"A handler is a plain function, and that of {one.topic} in {self.name} is async.")
            if one.once is not None and self.options.get("batch", 1) != 1:
                raise InvalidOption(f"{self.name} handles {one.topic} once: with that its batch is 1.")
            consumer.subscribe(one.topic, one.tags, sql=one.sql, handler=self.handler_of(one))
        return consumer

    def handler_of(self, subscription: Subscription) -> Callable[[Any], object]:
        """Return the handler as `consume` runs it: with database connections as a request has them."""
        handler = subscription.handler
        if subscription.once is not None:
            handler = _once(self.name, subscription.once, handler)

        @functools.wraps(handler)
        def handle(given: Any) -> object:
            from django.db import reset_queries

            reset_queries()
            _close_old_connections()
            try:
                return handler(given)
            finally:
                _close_old_connections()

        return handle


def consumer_group(name: str, **options: Any) -> ConsumerGroup:
    """Return the group of a name, of which this project's handlers are members.

    options: those of `Client.push_consumer`, as start="first" or workers=4; said once if several modules declare
    handlers of a group. Raises InvalidOption if they are said twice and differ.
    """
    group = _groups.setdefault(name, ConsumerGroup(name))
    if options:
        if group.options not in ({}, options):
            raise InvalidOption(f"consumer_group({name!r}) is said twice, with {group.options} and with {options}.")
        group.options = options
    return group


def declared() -> Iterator[ConsumerGroup]:
    """Load the `consumers.py` of all apps, and yield the groups that they declare, by name."""
    from django.utils.module_loading import autodiscover_modules

    autodiscover_modules(MODULE)
    for name in sorted(_groups):
        yield _groups[name]


def _close_old_connections() -> None:
    """Do what Django does around requests; but a transaction that is open is a test's, which needs its connection."""
    from django.db import connections

    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def _once(group: str, database: str, handler: Callable[[Any], object]) -> Callable[[ReceivedMessage], object]:
    @functools.wraps(handler)
    def handle(message: ReceivedMessage) -> object:
        from django.db import transaction

        from .models import HandledMessage

        with transaction.atomic(using=database):
            return handler(message) if HandledMessage.note(database, group, message) else None

    return handle
