"""Secrets that are shown once: until then they stay, whatever other users make."""

from types import SimpleNamespace
from typing import Any

import pytest

from appliance.console.users import once


@pytest.fixture(autouse=True)
def _empty(monkeypatch):
    monkeypatch.setattr(once, "_boxes", {})


def request_of(user: int, method: str = "GET") -> Any:
    return SimpleNamespace(user=SimpleNamespace(pk=user), method=method)


def test_a_secret_is_shown_once_and_to_its_user_only():
    ticket = once.keep(1, "secret")
    assert once.take(request_of(2), ticket) is None
    assert once.take(request_of(1, "HEAD"), ticket) == "secret"
    assert once.take(request_of(1), ticket) == "secret"
    assert once.take(request_of(1), ticket) is None


def test_one_user_takes_no_room_of_others():
    """A viewer may make tokens; an administrator's new secret is still there when the page fetches it."""
    theirs = once.keep(1, "of an administrator")
    tickets = [once.keep(2, number) for number in range(once.MOST + 1)]
    assert once.take(request_of(1), theirs) == "of an administrator"
    kept = [once.take(request_of(2), ticket) for ticket in tickets]
    assert [one for one in kept if one is not None] == list(range(once.MOST + 1))[-once.MOST_EACH :]
