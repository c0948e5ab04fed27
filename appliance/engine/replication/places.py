"""Places of slaves at a master, by address: one address that takes many gives way to slaves of others.

A connection is silent until its first report, which requests the log (Apache's slaves send it after up to 5 s), and a
slave from then on. A slave that loses its place connects again, so nothing is lost by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from ..protocol.message_id import encode_host
from ..shares import address_of

#: Most connections at a time that are silent.
MAX_SILENT = 8
#: Connections that were asked to end, beside those: of one address, and in all.
_ENDING_EACH, _ENDING = 16, 32


class Link(Protocol):
    """A connection. acknowledged: offset up to which its slave has the log; -1: no report yet."""

    acknowledged: int

    @property
    def host(self) -> str: ...

    @property
    def stopped(self) -> bool: ...

    def request_stop(self) -> None: ...


def make_room(silent: Sequence[Link], host: str) -> str:
    """Make room for one more connection: if there would be more than MAX_SILENT silent ones, end the oldest of the
    address that has the most. Return "", or why the new one cannot be taken.

    silent: the silent ones, the oldest first. host: IP address of the new one.
    """
    if len(silent) >= _ENDING or _counts(silent)[_address(host)] >= _ENDING_EACH:
        return f"{len(silent)} are connected already that send nothing"
    left = [link for link in silent if not link.stopped]
    while len(left) >= MAX_SILENT:
        victim = _of_crowd(left, host, lambda link: 0)
        victim.request_stop()
        left.remove(victim)
    return ""


def take_place(link: Link, slaves: Sequence[Link], most: int) -> bool:
    """True if a connection may become one more slave beside `slaves`; the most are `most`.

    When all places are taken, it gets the place of an address that has two more slaves than its own; the slave there
    that has the least of the log is ended.
    """
    left = [one for one in slaves if not one.stopped]
    if len(left) < most:
        return True
    victim = _of_crowd(left, link.host, lambda one: one.acknowledged)
    counts = _counts(left)
    if counts[_address(victim.host)] < counts[_address(link.host)] + 2:
        return False
    victim.request_stop()
    return True


def _address(host: str) -> bytes:
    return address_of(encode_host(host, 0))


def _counts(links: Sequence[Link]) -> Counter[bytes]:
    return Counter(_address(link.host) for link in links)


def _of_crowd(links: Sequence[Link], host: str, order: Callable[[Link], int]) -> Link:
    """Return the first link by `order` of the address that has the most; the one at `host` counts one more."""
    counts = _counts(links)
    counts[_address(host)] += 1
    most = max(counts[_address(link.host)] for link in links)
    return min((link for link in links if counts[_address(link.host)] == most), key=order)
