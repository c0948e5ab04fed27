"""API tokens: `rbx_` and 256 random bits. A token is shown once; only its SHA-256 is stored, which is enough for random
bits.

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
from django.db.models import Q

from ..models import ApiToken, Role, User, now_ms

# (action, target, before, after): `audit.audit` for a request, or `audit.record` for an actor.
Note = Callable[[str, str, Any, Any], object]

PREFIX = "rbx_"
_SHOWN_CHARACTERS = 12
# Longest chain of tokens that were made by tokens.
LONGEST_CHAIN = 4
# Most tokens of one user that work. An act that ends them all takes a moment for each and holds the database meanwhile.
MOST_EACH = 100
# Most tokens of one user that stay in the list long after they were revoked or have expired, the newest ones.
ENDED_EACH = 20
# An ended one stays at least so long: with a revoked one end the jobs and links to set a password that it made, and
# without it their origin would be lost. Links are good for two days.
ENDED_MS = 3 * 86_400_000
# The time of last use is written at most this often.
_LAST_USED_STEP_MS = 60_000
# The owner's fields that limit or end a token.
_OWNERS = ("password", "is_active", "role", "may_read_bodies", "may_export", "topic_pattern", "group_pattern")


class TooMany(Exception):
    """The owner has MOST_EACH tokens that work."""


class OwnerChanged(Exception):
    """The owner got a new password, was disabled, or gained or lost rights after the request had begun."""


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
    passing: bool = False,
) -> tuple[ApiToken, str]:
    """Create a token; return it and its secret, which is not stored. The caller audits it, in the same transaction.

    pattern: for topics and for groups, unless `topic_pattern` or `group_pattern` is given.
    made_by: the token with which it is made; it ends with that one. passing: it is for one command, which deletes it.
    owner: as the request loaded them. Raises OwnerChanged if they have changed since: otherwise a token that is made
    during a reset of the password would outlive it. Raises TooMany, unless it is passing.
    """
    secret = PREFIX + secrets.token_urlsafe(32)
    with transaction.atomic():  # IMMEDIATE: the owner's row cannot change before the token is inserted
        if User.objects.filter(pk=owner.pk).values_list(*_OWNERS).first() != tuple(
            getattr(owner, field) for field in _OWNERS
        ):
            raise OwnerChanged
        if not passing:
            _make_room(owner)
        token = ApiToken.objects.create(
            owner=owner, made_by=made_by, name=name, role=role, may_read_bodies=may_read_bodies, may_export=may_export,
            topic_pattern=pattern if topic_pattern is None else topic_pattern,
            group_pattern=pattern if group_pattern is None else group_pattern, expires_at_ms=expires_at_ms,
            prefix=secret[:_SHOWN_CHARACTERS], digest=_digest(secret),
        )  # fmt: skip
    return token, secret


def _make_room(owner: User) -> None:
    """Delete the owner's oldest tokens that ended long ago. Raises TooMany if too many others work."""
    now = now_ms()
    theirs = ApiToken.objects.filter(owner=owner)
    then = now - ENDED_MS
    ended = theirs.filter(Q(revoked_at_ms__lte=then) | Q(expires_at_ms__lte=then)).order_by("-pk")
    if (last := ended.values_list("pk", flat=True)[ENDED_EACH:].first()) is not None:
        ended.filter(pk__lte=last).delete()
    if theirs.filter(revoked_at_ms=None).exclude(expires_at_ms__lte=now).count() >= MOST_EACH:
        raise TooMany


def authenticate(secret: str) -> ApiToken | None:
    """Return the token with this secret; None if it is revoked or expired, or its owner is not active."""
    token = ApiToken.objects.select_related("owner", "made_by").filter(digest=_digest(secret)).first()
    now = now_ms()
    if token is None or not token.owner.is_active or any(_is_over(one, now) for one in chain(token)):
        return None
    if now - (token.last_used_at_ms or 0) > _LAST_USED_STEP_MS:
        # A full disk must not lock out operators who want to look at it.
        with contextlib.suppress(DatabaseError):
            ApiToken.objects.filter(pk=token.pk).update(last_used_at_ms=now)
    return token


def chain(token: ApiToken) -> list[ApiToken]:
    """Return the token, the one it was made by, the one that was made by, and so on."""
    found = [token]
    while (maker := found[-1].made_by) is not None and len(found) <= LONGEST_CHAIN:
        found.append(maker)
    return found


def _is_over(token: ApiToken, now: int) -> bool:
    return token.revoked_at_ms is not None or (token.expires_at_ms is not None and token.expires_at_ms <= now)


def revoke(token: ApiToken) -> None:
    """Revoke a token, which is rejected from now on. Its row stays for a while."""
    if token.revoked_at_ms is None:
        token.revoked_at_ms = now_ms()
        token.save(update_fields=["revoked_at_ms"])


def revoke_all(owner: User, note: Note) -> list[str]:
    """Revoke every token of a user, with an entry in the audit log for each; return their names."""
    ended = list(ApiToken.objects.filter(owner=owner, revoked_at_ms=None))
    for token in ended:
        revoke(token)
        note("token.revoke", label_of(token), {"active": True}, {"active": False})
    return [token.name for token in ended]


def limit_to_owner(owner: User, note: Note) -> None:
    """Take from a user's tokens the rights that the user has lost, so that they do not come back with a later promotion
    of the user."""
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
    """Return a token's name for the audit log."""
    return f"{token.owner.username}/{token.name}"


def rights_of(token: ApiToken) -> dict[str, object]:
    """Return the values of a token that the audit log keeps."""
    names = ("role", "may_read_bodies", "may_export", "topic_pattern", "group_pattern", "expires_at_ms")
    return {name: getattr(token, name) for name in names}


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
