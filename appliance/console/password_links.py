"""Links with which a user sets a password: once, and for two days. What is kept is their secret's SHA-256."""

from __future__ import annotations

import hashlib
import secrets

from .models import SetPasswordLink, User, now_ms

VALID_MS = 48 * 3_600_000


def make(user: User) -> tuple[str, int]:
    """A new link's secret, and when it ends; those made before are worth nothing from now on."""
    SetPasswordLink.objects.filter(user=user, used_at_ms=None).delete()
    secret, until = secrets.token_urlsafe(32), now_ms() + VALID_MS
    SetPasswordLink.objects.create(user=user, digest=_digest(secret), expires_at_ms=until)
    return secret, until


def find(secret: str) -> SetPasswordLink | None:
    """The link of this secret, be it good or not."""
    return SetPasswordLink.objects.select_related("user").filter(digest=_digest(secret)).first()


def is_good(link: SetPasswordLink | None) -> bool:
    return link is not None and link.used_at_ms is None and link.expires_at_ms > now_ms() and bool(link.user.is_active)


def use(link: SetPasswordLink) -> bool:
    """Whether this caller is the one who uses it; call in a transaction."""
    return SetPasswordLink.objects.filter(pk=link.pk, used_at_ms=None).update(used_at_ms=now_ms()) == 1


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
