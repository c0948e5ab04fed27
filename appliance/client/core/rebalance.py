"""Assigns queues to the members of a group: every member computes the same, so no messages are needed. What they
subscribe to has to be the same, too. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..allocation import Allocation, java_order
from ..errors import BadAnswer, InvalidOption
from ..message import MessageQueue
from ..wire import read_json
from .requests import Subscription

#: Own limit of values in the answer; a group has fewer members.
_MOST_MEMBERS = 20_000
#: The same for the queues of one broker that a group locks.
_MOST_LOCKED = 100_000
#: The same for the connections and subscriptions of a group.
_MOST_CONNECTIONS = 200_000
#: Most topics, and members, that a sentence names; and signs of a condition.
_MOST_NAMED = 8
_MOST_SIGNS = 100


def share(rule: Allocation, queues: Iterable[MessageQueue], members: Iterable[str], own: str) -> Sequence[MessageQueue]:
    """Return the queues of `own` by a rule; none if it is no member. Raises InvalidOption if the rule fails."""
    in_order = sorted(queues)
    ids = sorted(set(members), key=java_order)
    if own not in ids:
        return []
    known = set(in_order)
    try:
        found = list(rule(in_order, ids, own))
        strange = next((one for one in found if one not in known), None)
    except Exception as error:
        raise InvalidOption(f"the allocation failed, {error!r}, with {len(ids)} members.") from None
    if strange is not None:
        raise InvalidOption(f"the allocation returned {strange!r}, which is none of the topic's queues.")
    return found


def read_members(body: bytes) -> list[str]:
    """Decode the client ids of an answer to 38. Raises BadAnswer."""
    try:
        found = read_json(body, max_values=_MOST_MEMBERS)["consumerIdList"]
        if not all(isinstance(one, str) for one in found):
            raise TypeError("an id is no text")
    except (ValueError, TypeError, KeyError) as error:
        raise BadAnswer(f"the members of a group cannot be read: {error!r}") from None
    return list(found)


def read_locked(body: bytes) -> set[MessageQueue]:
    """Decode the queues in the answer to a 41. Raises BadAnswer."""
    try:
        found = read_json(body, max_values=_MOST_LOCKED)["lockOKMQSet"]
        queues = {MessageQueue(one["topic"], one["brokerName"], one["queueId"]) for one in found}
    except (ValueError, TypeError, KeyError) as error:
        raise BadAnswer(f"the locked queues of a group cannot be read: {error!r}") from None
    return queues


def read_connections(body: bytes) -> tuple[list[str], dict[str, Subscription]]:
    """Decode the client ids and, by topic, the subscriptions in the answer to a 203. Raises BadAnswer."""
    try:
        found = read_json(body, max_values=_MOST_CONNECTIONS)
        ids = [one["clientId"] for one in found["connectionSet"]]
        subscriptions = {topic: _subscription(topic, one) for topic, one in found["subscriptionTable"].items()}
        if not all(isinstance(one, str) for one in ids):
            raise TypeError("an id is no text")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadAnswer(f"the connections of a group cannot be read: {error!r}") from None
    return ids, subscriptions


def _subscription(topic: str, data: Mapping[str, object]) -> Subscription:
    condition, kind = data.get("subString") or "*", data.get("expressionType") or "TAG"
    if not isinstance(condition, str):
        raise TypeError("a condition is no text")
    return Subscription(topic, condition) if kind == "TAG" else Subscription(topic, sql=condition)


def difference(own: Mapping[str, Subscription], theirs: Mapping[str, Subscription]) -> str:
    """Say, by topic, in what two members' subscriptions differ; "" if they do not."""
    found = []
    for topic in sorted({*own, *theirs}):
        here, there = own.get(topic), theirs.get(topic)
        if here is None or there is None or (here.sql, here.tag_set()) != (there.sql, there.tag_set()):
            found.append(f"{topic} with {_condition(there)} there and {_condition(here)} here")
    return named(found)


def _condition(subscription: Subscription | None) -> str:
    if subscription is None:
        return "nothing"
    text = subscription.tags if subscription.sql is None else subscription.sql
    return repr(text if len(text) <= _MOST_SIGNS else f"{text[:_MOST_SIGNS]}...")


def named(names: Sequence[str]) -> str:
    """Return the first few of them as text."""
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
