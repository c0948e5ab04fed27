"""Users of the wire and their entries, as JSON; the conventions are those of `schemas`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..console.system.plain_yaml import LONGEST_BYTES
from ..engine.window.access.snapshots import (
    MOST_QUOTA_BYTES,
    MOST_QUOTA_CONNECTIONS,
    MOST_QUOTA_REQUESTS,
    AccessRow,
    EntryRow,
    RefusalRow,
    WireUser,
)
from .schemas import In, Out, PageOut

Policy = Literal["Custom", "Default"]
Secret = Annotated[str, Field(min_length=1, max_length=256)]


class EntryList(Out):
    items: list[EntryRow]


class WireUserPage(PageOut):
    """total: users that match."""

    items: list[WireUser]
    total: int


class WireUserIn(In):
    """A new user of the wire. secret: of your own; without it RocketBox makes one."""

    name: str = Field(min_length=1, max_length=64)
    user_type: Literal["Super", "Normal"] = "Normal"
    secret: Secret | None = Field(default=None, repr=False)


class SecretIn(In):
    """secret: of your own, for `rotate`; without it RocketBox makes one."""

    secret: Secret | None = Field(default=None, repr=False)


class ImportIn(In):
    """text: of plain_acl.yml, or of a file in conf/acl."""

    text: Annotated[str, Field(min_length=1, max_length=LONGEST_BYTES)]


class EntryIn(In):
    """resource: `Topic:orders`, `Topic:orders*`, `Topic:*`, the same with Group and Cluster, or `*`. actions: Pub, Sub,
    Create, Update, Delete, Get, List, All. sources: addresses and networks of clients; none: all."""

    resource: str = Field(min_length=1, max_length=300)
    actions: list[Annotated[str, Field(max_length=20)]] = Field(min_length=1, max_length=20)
    sources: list[Annotated[str, Field(max_length=80)]] = Field(default=[], max_length=100)
    decision: Literal["Allow", "Deny"] = "Allow"
    policy: Policy = "Custom"


Bytes = Annotated[int, Field(ge=0, le=MOST_QUOTA_BYTES)]


class QuotasIn(In):
    """Bytes and requests of a second. A field that is left out stays as it is. null: the default counts. 0: no
    limit."""

    send_bytes: Bytes | None = None
    pull_bytes: Bytes | None = None
    requests: Annotated[int, Field(ge=0, le=MOST_QUOTA_REQUESTS)] | None = None
    connections: Annotated[int, Field(ge=0, le=MOST_QUOTA_CONNECTIONS)] | None = None


class RefusalPage(PageOut):
    """total: kinds of refusals that match."""

    items: list[RefusalRow]
    total: int


class AccessPage(PageOut):
    """total: users who may do something."""

    items: list[AccessRow]
    total: int
