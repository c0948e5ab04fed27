"""The set of brokers with fail-over, as JSON; `engine.window.replicas.snapshots` explains its fields."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ..engine.window.replicas.snapshots import ElectionView, MemberView, QuarantineFile
from .schemas import In, Out, SentenceOut, Text


class SetOut(Out):
    """The set as this member sees it. role: of this member; role_why: why it neither leads nor follows.
    store_warning: what the store lacks, or will soon. epoch: 0 before
    the first. leader: uuid, "" while there is none. fullest: uuid of the member whose log goes furthest, as last
    said: the newest epoch decides, and within it the end. elections: newest first. quarantine: of this member."""

    set: Text
    store: Text
    store_ok: bool
    store_why: SentenceOut | None
    store_warning: SentenceOut | None
    epoch: int
    leader: Text
    leader_addr: Text
    role: str
    role_why: SentenceOut | None
    uuid: Text
    slot: int
    synchronous: bool
    min_in_sync: int
    floor: int
    confirm: int | None
    fullest: Text
    members: list[MemberView]
    elections: list[ElectionView]
    quarantine: list[QuarantineFile]
    settings: dict[str, Text]


class SwitchIn(In):
    """to: uuid or slot of a member; null: the one that is nearest."""

    to: Annotated[str, Field(min_length=1, max_length=100)] | None = None


class AdoptIn(In):
    """uuid: of the member that is asked. confirm: the set's name."""

    uuid: Annotated[str, Field(min_length=1, max_length=100)]
    confirm: Annotated[str, Field(max_length=127)] = ""
