"""Users of the wire and their entries, as JSON. `window.access.snapshots` explains their fields."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .schemas import ChangeOut, In, Out, PageOut, SentenceOut, Text

Policy = Literal["Custom", "Default"]


class EntryOut(Out):
    """policy: "Custom", an own entry, or "Default", which counts where no own one fits. sources: empty for all."""

    policy: str
    resource: Text
    actions: list[str]
    sources: list[Text]
    decision: str


class EntryList(Out):
    items: list[EntryOut]


class WireUserOut(Out):
    """user_type: "Super", who may everything, or "Normal". secrets: how many are good, 1 or 2; none is ever told
    again."""

    name: Text
    user_type: str
    enabled: bool
    secrets: int
    entries: list[EntryOut]


class WireUserPage(PageOut):
    """total: users that match."""

    items: list[WireUserOut]
    total: int


class WireUserIn(In):
    """A new user of the wire. RocketBox makes its secret."""

    name: str = Field(min_length=1, max_length=64)
    user_type: Literal["Super", "Normal"] = "Normal"


class WireUserChangeOut(ChangeOut):
    """secret: the one that was made, only in this answer; null for other acts."""

    secret: str | None


class EntryIn(In):
    """resource: `Topic:orders`, `Topic:orders*`, `Topic:*`, the same with Group and Cluster, or `*`. actions: Pub, Sub,
    Create, Update, Delete, Get, List, All. sources: addresses and networks of clients; none: all."""

    resource: str = Field(min_length=1, max_length=300)
    actions: list[Annotated[str, Field(max_length=20)]] = Field(min_length=1, max_length=20)
    sources: list[Annotated[str, Field(max_length=80)]] = Field(default=[], max_length=100)
    decision: Literal["Allow", "Deny"] = "Allow"
    policy: Policy = "Custom"


class JudgedOut(Out):
    """why: "decides", "outranked" (it fits, and another one decides), "other_actions" or "other_address"."""

    entry: EntryOut
    why: str


class DecisionOut(Out):
    """passes: the request goes through, as all do in report mode. entries: all that hold the resource, in the order in
    which they are asked."""

    allowed: bool
    passes: bool
    sentence: SentenceOut
    entries: list[JudgedOut]


class RefusalOut(Out):
    """user: "" for none and for unknown names. resource: "" unless an entry is missing or denies. actions: any one of
    them would do, the least first. reason: "no_user", "not_proved", "not_super", "no_entry" or "denied". request,
    address: of the last one."""

    user: Text
    resource: Text
    actions: list[str]
    reason: str
    request: str
    address: str
    count: int
    first_at_ms: int
    last_at_ms: int


class RefusalPage(PageOut):
    """total: kinds of refusals that match."""

    items: list[RefusalOut]
    total: int


class AccessOut(Out):
    """actions: from everywhere. some: from some addresses only."""

    user: Text
    user_type: str
    actions: list[str]
    some: list[str]


class AccessPage(PageOut):
    """total: users who may do something."""

    items: list[AccessOut]
    total: int
