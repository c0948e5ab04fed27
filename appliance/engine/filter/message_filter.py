"""What a subscription lets through, as a value: made once from its expression, shared by every pull that has it."""

from __future__ import annotations


class MessageFilter:
    """Tells the messages of a queue that are wanted. Never changes, so that any thread may ask it.

    codes: the tag codes that may match, None when an entry's code keeps nothing out. A set and not a method, so that
    a read of a thousand entries calls nothing. An entry that Apache wrote may lead to an extension unit, which has the
    code then.
    """

    __slots__ = ("codes",)

    def __init__(self, codes: frozenset[int] | None = None) -> None:
        self.codes = codes


#: What a pull without tags has.
EVERYTHING = MessageFilter()
