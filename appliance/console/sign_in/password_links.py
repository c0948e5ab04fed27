"""Links with which a user sets a password. Each works once, for two days. Only the SHA-256 of its secret is stored.

A link also ends if the administrator who made it is disabled or demoted or gets another password, or if the token that
made it is revoked: with a link they, or an intruder with their password, could go on as its user.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from ..models import SetPasswordLink, User, now_ms
from ..users.tokens import chain

VALID_MS = 48 * 3_600_000


def make(user: User, by: Any) -> tuple[str, int]:
    """Make a link; return its secret and the time when it ends, in ms. The user's earlier unused links are deleted.
    by: the caller who makes it."""
    SetPasswordLink.objects.filter(user=user, used_at_ms=None).delete()
    secret, until = secrets.token_urlsafe(32), now_ms() + VALID_MS
    SetPasswordLink.objects.create(
        user=user, digest=_digest(secret), expires_at_ms=until, made_by_id=by.pk,
        made_with=by.token if by.kind == "token" else None,
    )  # fmt: skip
    return secret, until


def find(secret: str) -> SetPasswordLink | None:
    """Return the link with this secret, even if it is used or has ended; None if there is none."""
    return SetPasswordLink.objects.select_related("user", "made_by", "made_with").filter(digest=_digest(secret)).first()


def is_good(link: SetPasswordLink | None) -> bool:
    if link is None or link.used_at_ms is not None or link.expires_at_ms <= now_ms() or not link.user.is_active:
        return False
    maker = link.made_by
    if maker is not None and not (maker.is_active and maker.is_admin):
        return False
    return link.made_with is None or all(one.revoked_at_ms is None for one in chain(link.made_with))


def use(link: SetPasswordLink) -> bool:
    """Mark the link as used. Return False if another request used it first. Call in a transaction."""
    return SetPasswordLink.objects.filter(pk=link.pk, used_at_ms=None).update(used_at_ms=now_ms()) == 1


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
