"""The targets of a reset, by the names that pages, API and commands give them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...broker.offset_resets.targets import AtTime, Earliest, Exactly, Latest, Shift, Skip, Target
from ...errors import InvalidInput
from ..sentences import say

#: Names of the targets.
TARGETS = ("earliest", "latest", "time", "offset", "skip", "shift")
#: Argument -> the targets that use it.
_USED_BY = {"at_ms": ("time",), "offset": ("offset", "skip"), "by": ("shift",)}


def uses(to: str, argument: str) -> bool:
    """True if a reset to this target uses the argument ("at_ms", "offset" or "by")."""
    return to in _USED_BY[argument]


def meant_by(arguments: Collection[str]) -> str | None:
    """Return the target that uses just these arguments; None if several do, or none does."""
    found = [_USED_BY[one][0] for one in arguments if one in _USED_BY]
    return found[0] if len(found) == 1 else None


def target_of(
    to: str,
    *,
    at_ms: int | None = None,
    offset: int | None = None,
    by: int | None = None,
    queues: Sequence[int] | None = None,
) -> Target:
    """Return the target of a reset. to: "earliest", "latest", "time" (at_ms), "shift" (by: number of messages, negative
    for backwards), "offset" (offset, and queues: each of them goes there) or "skip" (the same, behind the message at
    that offset). InvalidInput if an argument that it needs is missing, or one is given that it does not use."""
    for argument, value in (("at_ms", at_ms), ("offset", offset), ("by", by)):
        if value is not None and to in TARGETS and not uses(to, argument):
            raise InvalidInput(argument, say("offsets_not_used", field=argument, to=to, target=_USED_BY[argument][0]))
    match to:
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
        case "time" if at_ms is not None:
            return AtTime(at_ms)
        case "time":
            raise InvalidInput("at_ms", say("offsets_need_time"))
        case "shift" if by is not None:
            return Shift(by)
        case "shift":
            raise InvalidInput("by", say("offsets_no_shift"))
        case "offset" if offset is not None and queues:
            return Exactly(dict.fromkeys(queues, offset))
        case "skip" if offset is not None and queues:
            return Skip(dict.fromkeys(queues, offset + 1))
        case "offset" | "skip":
            raise InvalidInput("offset" if offset is None else "queues", say("offsets_need_offset"))
    raise InvalidInput("to", say("one_of", field="to", choices=", ".join(TARGETS)))
