"""The setting ROCKETBOX, a dictionary. All of it may be left out.

NAMESERVERS: "host:port", several with ";" or as a list; the variable NAMESRV_ADDR without it. CLIENT: further arguments
of `Client`. PRODUCER: those of `Client.producer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .sdk import Client, InvalidOption, Producer

_NAME = "ROCKETBOX"


@dataclass(frozen=True, slots=True)
class Options:
    nameservers: str | Sequence[str] | None = None
    client: Mapping[str, Any] = field(default_factory=dict)
    producer: Mapping[str, Any] = field(default_factory=dict)

    def make_client(self) -> Client:
        """Return a new client. Raises InvalidOption."""
        try:
            return Client(self.nameservers, **self.client)
        except TypeError as error:
            raise InvalidOption(f"{_NAME}['CLIENT']: {error}.") from None

    def producer_of(self, client: Client) -> Producer:
        """Return the producer of a client of these options. Raises InvalidOption."""
        try:
            return client.producer(**self.producer)
        except TypeError as error:
            raise InvalidOption(f"{_NAME}['PRODUCER']: {error}.") from None


def read() -> Options:
    """Return what the settings say. Raises InvalidOption for what they cannot say."""
    from django.conf import settings

    given = getattr(settings, _NAME, {})
    if not isinstance(given, Mapping):
        raise InvalidOption(f"The setting {_NAME} is a dictionary, not {given!r}.")
    unknown = sorted(set(given) - {"NAMESERVERS", "CLIENT", "PRODUCER"}, key=str)
    if unknown:
        raise InvalidOption(f"{_NAME} has NAMESERVERS, CLIENT and PRODUCER, and not {', '.join(map(repr, unknown))}.")
    for name in ("CLIENT", "PRODUCER"):
        if not isinstance(given.get(name, {}), Mapping):
            raise InvalidOption(f"{_NAME}[{name!r}] is a dictionary of arguments, not {given[name]!r}.")
    return Options(given.get("NAMESERVERS"), given.get("CLIENT", {}), given.get("PRODUCER", {}))
