"""How a store is reached, besides its addresses."""

from __future__ import annotations

from typing import NamedTuple

#: Of one call, with all its endpoints.
TIMEOUT_S = 0.5


class Access(NamedTuple):
    """timeout_s: of one call. ca, certificate, key: paths of PEM files, for TLS; without `ca` the system's authorities.
    cluster: what `identity()` has to be; "" takes the first that answers. prefix: below which all keys are."""

    timeout_s: float = TIMEOUT_S
    user: str = ""
    password: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    cluster: str = ""
    prefix: str = "/rocketbox"
