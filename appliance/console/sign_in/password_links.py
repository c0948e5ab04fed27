"""Links with which a user sets a password. Each works once, for two days. Only the SHA-256 of its secret is stored."""

from __future__ import annotations

import hashlib
import secrets

from ..models import SetPasswordLink, User, now_ms

VALID_MS = 48 * 3_600_000


def make(user: User) -> tuple[str, int]:
    """Make a link; return its secret and the time when it ends, in ms. The user's earlier unused links are deleted."""
    SetPasswordLink.objects.filter(user=user, used_at_ms=None).delete()
    secret, until = secrets.token_urlsafe(32), now_ms() + VALID_MS
    SetPasswordLink.objects.create(user=user, digest=_digest(secret), expires_at_ms=until)
    return secret, until


def find(secret: str) -> SetPasswordLink | None:
    """Return the link with this secret, even if it is used or has ended; None if there is none."""
    return SetPasswordLink.objects.select_related("user").filter(digest=_digest(secret)).first()


def is_good(link: SetPasswordLink | None) -> bool:
    return link is not None and link.used_at_ms is None and link.expires_at_ms > now_ms() and bool(link.user.is_active)


def use(link: SetPasswordLink) -> bool:
    """Mark the link as used. Return False if another request used it first. Call in a transaction."""
    return SetPasswordLink.objects.filter(pk=link.pk, used_at_ms=None).update(used_at_ms=now_ms()) == 1


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
