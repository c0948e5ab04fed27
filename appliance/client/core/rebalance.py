"""Assigns queues to the members of a group: every member computes the same, so no messages are needed. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..allocation import Allocation, java_order
from ..errors import BadAnswer, InvalidOption
from ..message import MessageQueue
from ..wire import read_json

#: Own limit of values in the answer; a group has fewer members.
_MOST_MEMBERS = 20_000
#: The same for the queues of one broker that a group locks.
_MOST_LOCKED = 100_000


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
