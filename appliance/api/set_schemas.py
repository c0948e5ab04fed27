"""The set of brokers with fail-over, as JSON; `engine.window.replicas.snapshots` explains its fields."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .schemas import In


class SwitchIn(In):
    """to: uuid or slot of a member; null: the one that is nearest."""

    to: Annotated[str, Field(min_length=1, max_length=100)] | None = None


class AdoptIn(In):
    """uuid: of the member that is asked. confirm: the set's name."""

    uuid: Annotated[str, Field(min_length=1, max_length=100)]
    confirm: Annotated[str, Field(max_length=127)] = ""
