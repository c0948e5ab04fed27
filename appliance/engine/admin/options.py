"""The configuration as it is in force, and the few options that may be changed while the broker runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import snapshots as s

if TYPE_CHECKING:
    from ..engine import Engine


class Options:
    """Any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def listing(self) -> s.Configuration:
        raise NotImplementedError
