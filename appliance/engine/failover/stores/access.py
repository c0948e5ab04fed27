"""Access to a leader store, besides its addresses."""

from __future__ import annotations

from typing import NamedTuple

#: Time-out of one call, with all its endpoints.
TIMEOUT_S = 0.5


class Access(NamedTuple):
    """timeout_s: of one call. ca, certificate, key: paths of PEM files, for TLS; without `ca` the system's authorities.
    cluster: the id that `identity()` must return; "" takes the first that answers. prefix: all keys are below it."""

    timeout_s: float = TIMEOUT_S
    user: str = ""
    password: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    cluster: str = ""
    prefix: str = "/rocketbox"
