"""How notices call this installation, and where their links lead."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from ... import runtime


@dataclass(frozen=True, slots=True)
class Teller:
    """How notices call this installation, and the address that their links begin with; "" for none."""

    installation: str
    base: str


def teller() -> Teller:
    """As it runs now. Links lead to the address people were told, or to none."""
    running = runtime.running()
    public = urlsplit(running.options.public_url or "")  # its path is in every link already
    return Teller(running.broker_name, f"{public.scheme}://{public.netloc}" if public.netloc else "")
