"""Fixtures shared by the tests of members' brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.engine.broker import topic_service
from tests.support.members_of_set import Member, two_members


@pytest.fixture(autouse=True)
def _members_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change waits for members however late they are on a busy machine."""
    monkeypatch.setattr(topic_service, "MEMBERS_S", 60.0)


@pytest.fixture
def members(tmp_path: Path) -> Iterator[tuple[Member, Member]]:
    """Two members without roles."""
    with two_members(tmp_path) as both:
        yield both
