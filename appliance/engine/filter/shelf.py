"""Filters that are costly to keep: one object for each expression that is in use, and a share of them for each peer."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from typing import Generic, TypeVar

from ..errors import RefusedRequest
from ..protocol.codes import ResponseCode
from ..shares import LooseShares
from .message_filter import MessageFilter

T = TypeVar("T", bound=MessageFilter)


class TooManyExpressions(RefusedRequest):
    """So many expressions are in use that another one is not made."""

    def __init__(self) -> None:
        super().__init__(ResponseCode.SYSTEM_BUSY, "too many different expressions are in use, or of this client")


class Shelf(Generic[T]):
    """Filters of expressions up to some length, by their texts. in_use: one object for each text that is held anywhere.
    kept: the last ones made. Any thread: each step on a dict is one C call."""

    def __init__(self, longest: int, kept: int, most: int, few: int) -> None:
        """few: a quarter of `most` is reserved for connections with at most this many of it, however full the rest
        is."""
        self.longest = longest
        self.in_use: weakref.WeakValueDictionary[str, T] = weakref.WeakValueDictionary()
        self.kept: OrderedDict[str, T] = OrderedDict()
        self.most_kept = kept
        self.most = most
        self._few = few
        #: An expression counts for the peer that had it made, as long as it is in use.
        self._shares, self._last = LooseShares(), LooseShares()
        self._owners: dict[weakref.ref[T], tuple[LooseShares, bytes | None]] = {}

    def keep(self, text: str, made: T, peer: bytes | None) -> None:
        """Let a filter be found from now on. peer: the connection that brought it. Raises TooManyExpressions."""
        shares = self._taken(peer)
        if shares is None:
            self._let_go()
            shares = self._taken(peer)
            if shares is None:
                raise TooManyExpressions
        self._owners[weakref.ref(made, self._gone)] = shares, peer
        self.in_use[text] = made
        self.kept[text] = made
        if len(self.kept) > self.most_kept:
            with suppress(KeyError):  # another thread has dropped them all since
                self.kept.popitem(last=False)

    def _taken(self, peer: bytes | None) -> LooseShares | None:
        """Count another expression for the peer, and return the shares it belongs to; None if the peer may not have
        it."""
        last = self.most // 4
        if self._shares.take(peer, self.most - last):
            return self._shares
        return self._last if self._last.take(peer, last, self._few) else None

    def _let_go(self) -> None:
        """Drop the filters that are held only here."""
        self.kept.clear()

    def _gone(self, reference: weakref.ref[T]) -> None:
        """Give back the share of a filter that is out of use. Called on any thread, in the middle of anything."""
        shares, peer = self._owners.pop(reference)
        shares.give(peer)


def shelf_of(shelves: Iterable[Shelf[T]], expression: str) -> Shelf[T]:
    """Return the shelf for an expression of this length; the shelves are in order, and the last one takes any."""
    return next(shelf for shelf in shelves if len(expression) <= shelf.longest)
