"""The installation's name in notices, and the address that their links begin with."""

from __future__ import annotations

from urllib.parse import urlsplit

from ... import runtime
from ...engine.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Teller:
    """installation: its name in notices. base: the address that their links begin with; "" if they have no links."""

    installation: str
    base: str


def teller() -> Teller:
    """Return the values of the running installation. Links begin with its public address; without one there are
    none."""
    running = runtime.running()
    public = urlsplit(running.options.public_url or "")  # its path is in every link already
    return Teller(running.broker_name, f"{public.scheme}://{public.netloc}" if public.netloc else "")
