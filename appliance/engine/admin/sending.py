"""Test messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .message_snapshots import SentMessage

if TYPE_CHECKING:
    from ..broker.broker import Broker
    from ..engine import Engine


class TestSender:
    def __init__(self, engine: Engine, broker: Broker) -> None:
        self._engine = engine
        self._broker = broker

    def send(
        self,
        topic: str,
        body: bytes,
        tags: str,
        keys: tuple[str, ...],
        properties: dict[str, str],
        queue_id: int | None,
        timeout_s: float,
        by: str,
    ) -> SentMessage:
        raise NotImplementedError
