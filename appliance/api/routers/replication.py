"""Replication: who follows this broker, or whom it follows."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router

from ... import runtime
from ..replication_schemas import ReplicationOut

router = Router(tags=["replication"])


@router.get("/replication", response=ReplicationOut)
def replication(request: HttpRequest) -> Any:
    """The slaves of a master with their lag, or the master of a slave; who was turned away."""
    return runtime.window().replication()
