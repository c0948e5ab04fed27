"""Subscriptions of consumers, as users give them."""

from __future__ import annotations

from .core.requests import Subscription
from .errors import InvalidOption
from .wire import topic_name_error


def require_tags(tags: object) -> None:
    """Raises InvalidOption if tags are no text, above all if they are the handler."""
    if callable(tags):
        raise InvalidOption(f"Where tags belong there is a function: write subscribe(topic, handler={_name(tags)}).")
    if not isinstance(tags, str):
        raise InvalidOption(f'Tags are one text, as "paid || refunded", not {tags!r}.')


def _name(given: object) -> str:
    name = str(getattr(given, "__name__", ""))
    return name if name.isidentifier() else "..."


def subscription_of(topic: str, tags: str, sql: str | None, wall_ms: int) -> Subscription:
    """Check a subscription to a topic, by its name at brokers. Raises InvalidOption."""
    why = topic_name_error(topic)
    if why is not None:
        raise InvalidOption(f"There can be no topic {topic[:300]!r}: {why}")
    require_tags(tags)
    tags = tags.strip() or "*"
    if tags != "*" and (sql is not None or not all(part.strip() for part in tags.split("||"))):
        raise InvalidOption(f'Tags are "*", or tags with || between them, or sql in their place; not {tags!r}.')
    if sql is not None and not sql.strip():
        raise InvalidOption("sql is a condition, and this one is empty.")
    return Subscription(topic, tags, wall_ms, sql)
