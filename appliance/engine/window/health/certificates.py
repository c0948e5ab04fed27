"""Judges the certificates that TLS is served with: what is served now counts, and what lies on the disk beside it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from ..sentences import say
from . import limits
from .finding import Finding, degraded, fine

if TYPE_CHECKING:
    import ssl


class Pair(Protocol):
    """The part of `tls.certificate.Pair` that is judged, or shown to people."""

    @property
    def context(self) -> ssl.SSLContext: ...

    @property
    def der(self) -> bytes: ...

    def days_left_at(self, now_s: float) -> int | None: ...

    def refusal_at(self, now_s: float) -> str: ...


class Served(Protocol):
    """A certificate in use, as `tls.certificate.Certificate`. failure: why its files, as they are now, are not used."""

    @property
    def file(self) -> str: ...

    @property
    def pair(self) -> Pair: ...

    @property
    def failure(self) -> str | None: ...


def days_left(served: Served) -> int | None:
    """Return the days until its end, as `Pair.days_left_at`."""
    return served.pair.days_left_at(time.time())


def certificate_findings(certificates: Mapping[str, Served]) -> Iterator[Finding]:
    """Yield the findings about certificates. certificates: by the name of their check."""
    for name, served in certificates.items():
        yield _judged(name, served)
        if served.failure is not None:
            text = say("certificate_stays", file=served.file, reason=served.failure)
            yield degraded(f"{name}_files", text, "act")


def _judged(name: str, served: Served) -> Finding:
    left = days_left(served)
    file = served.file
    if left is not None and left < 0:
        return degraded(name, say("certificate_expired", file=file), "act")
    if refusal := served.pair.refusal_at(time.time()):
        return degraded(name, say("certificate_refused", file=file, reason=refusal), "watch")
    if left is None or left > limits.CERTIFICATE_DAYS:
        return fine(name, say("certificate_valid", file=file, count=left or 0))
    level = "act" if left <= limits.CERTIFICATE_URGENT_DAYS else "watch"
    return degraded(name, say("certificate_ends_soon", file=file, count=left), level)
