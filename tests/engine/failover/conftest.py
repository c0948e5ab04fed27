"""Fixtures shared by the tests of members' brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.members_of_set import Member, two_members


@pytest.fixture
def members(tmp_path: Path) -> Iterator[tuple[Member, Member]]:
    """Two members without roles."""
    with two_members(tmp_path) as both:
        yield both
