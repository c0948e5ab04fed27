"""API tokens: `rbx_` and 256 random bits. Shown once; what is kept is their SHA-256, enough for random bits.

A token can never do more than its owner. It ends when the owner's password changes or the owner is disabled, and a
right that the owner loses is gone from the token for good (`revoke_all`, `limit_to_owner`).
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Callable
from typing import Any

from django.db import DatabaseError, transaction

from .models import ApiToken, Role, User, now_ms

# (action, target, before, after): `audit.audit` for a request, or `audit.record` for an actor.
Note = Callable[[str, str, Any, Any], object]

PREFIX = "rbx_"
_SHOWN_CHARACTERS = 12
# Tokens made by tokens made by tokens.
LONGEST_CHAIN = 4
# The time of last use is written at most this often.
_LAST_USED_STEP_MS = 60_000
# What a token of this owner's hangs on.
_OWNERS = ("password", "is_active", "role", "may_read_bodies", "may_export", "topic_pattern", "group_pattern")


class OwnerChanged(Exception):
    """Since the owner's request began, they got a new password, were disabled, or gained or lost rights."""


def create(
    owner: User,
    name: str,
    role: str,
    *,
    may_read_bodies: bool = False,
    may_export: bool = False,
    pattern: str = "*",
    topic_pattern: str | None = None,
    group_pattern: str | None = None,
    expires_at_ms: int | None = None,
    made_by: ApiToken | None = None,
) -> tuple[ApiToken, str]:
    """A new token and its secret, which cannot be had again. The caller audits it, in the same transaction.

    pattern: for topics and for groups, where `topic_pattern` or `group_pattern` is not given.
    made_by: the token that asks for it; with that one it ends.
    owner: as the request that asks for it found them. Raises OwnerChanged: a token made beside a reset of the password
    would outlive it.
    """
    secret = PREFIX + secrets.token_urlsafe(32)
    with transaction.atomic():  # IMMEDIATE: the owner stays as they are until the token is there
        if User.objects.filter(pk=owner.pk).values_list(*_OWNERS).first() != tuple(
            getattr(owner, field) for field in _OWNERS
        ):
            raise OwnerChanged
        token = ApiToken.objects.create(
            owner=owner, made_by=made_by, name=name, role=role, may_read_bodies=may_read_bodies, may_export=may_export,
            topic_pattern=pattern if topic_pattern is None else topic_pattern,
            group_pattern=pattern if group_pattern is None else group_pattern, expires_at_ms=expires_at_ms,
            prefix=secret[:_SHOWN_CHARACTERS], digest=_digest(secret),
        )  # fmt: skip
    return token, secret


def authenticate(secret: str) -> ApiToken | None:
    """The token of this secret, when it is neither revoked nor expired and its owner is active."""
    token = ApiToken.objects.select_related("owner", "made_by").filter(digest=_digest(secret)).first()
    now = now_ms()
    if token is None or not token.owner.is_active or any(_is_over(one, now) for one in chain(token)):
        return None
    if now - (token.last_used_at_ms or 0) > _LAST_USED_STEP_MS:
        # A full disk is no reason to refuse whoever comes to look at it.
        with contextlib.suppress(DatabaseError):
            ApiToken.objects.filter(pk=token.pk).update(last_used_at_ms=now)
    return token


def chain(token: ApiToken) -> list[ApiToken]:
    """The token, the one that made it, the one that made that ..."""
    found = [token]
    while (maker := found[-1].made_by) is not None and len(found) <= LONGEST_CHAIN:
        found.append(maker)
    return found


def _is_over(token: ApiToken, now: int) -> bool:
    return token.revoked_at_ms is not None or (token.expires_at_ms is not None and token.expires_at_ms <= now)


def revoke(token: ApiToken) -> None:
    """From now on the token is refused; the row stays for the record."""
    if token.revoked_at_ms is None:
        token.revoked_at_ms = now_ms()
        token.save(update_fields=["revoked_at_ms"])


def revoke_all(owner: User, note: Note) -> list[str]:
    """End every token of a user, with a line in the audit log for each; returns their names."""
    ended = list(ApiToken.objects.filter(owner=owner, revoked_at_ms=None))
    for token in ended:
        revoke(token)
        note("token.revoke", label_of(token), {"active": True}, {"active": False})
    return [token.name for token in ended]


def limit_to_owner(owner: User, note: Note) -> None:
    """Take from a user's tokens what the user does not have any more, so that it does not come back with a later
    promotion of the user."""
    ranks = list(Role.values)
    for token in ApiToken.objects.filter(owner=owner, revoked_at_ms=None):
        before = rights_of(token)
        token.role = min(token.role, owner.role, key=ranks.index)
        token.may_read_bodies = token.may_read_bodies and owner.may_read_bodies
        token.may_export = token.may_export and owner.may_export
        if rights_of(token) != before:
            token.save(update_fields=["role", "may_read_bodies", "may_export"])
            note("token.cut_down", label_of(token), before, rights_of(token))


def label_of(token: ApiToken) -> str:
    """A token's name in the audit log."""
    return f"{token.owner.username}/{token.name}"


def rights_of(token: ApiToken) -> dict[str, object]:
    """What the audit log keeps of a token."""
    names = ("role", "may_read_bodies", "may_export", "topic_pattern", "group_pattern", "expires_at_ms")
    return {name: getattr(token, name) for name in names}


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
