"""API tokens: `rbx_` and 256 random bits. Shown once; what is kept is their SHA-256, enough for random bits."""

from __future__ import annotations

import hashlib
import secrets

from .models import ApiToken, User, now_ms

PREFIX = "rbx_"
_SHOWN_CHARACTERS = 12
# The time of last use is written at most this often.
_LAST_USED_STEP_MS = 60_000


def create(
    owner: User,
    name: str,
    role: str,
    *,
    may_read_bodies: bool = False,
    may_export: bool = False,
    pattern: str = "*",
    expires_at_ms: int | None = None,
) -> tuple[ApiToken, str]:
    """A new token and its secret, which cannot be had again. The caller audits it."""
    secret = PREFIX + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        owner=owner, name=name, role=role, may_read_bodies=may_read_bodies, may_export=may_export, pattern=pattern,
        expires_at_ms=expires_at_ms, prefix=secret[:_SHOWN_CHARACTERS], digest=_digest(secret),
    )  # fmt: skip
    return token, secret


def authenticate(secret: str) -> ApiToken | None:
    """The token of this secret, when it is neither revoked nor expired and its owner is active."""
    token = ApiToken.objects.select_related("owner").filter(digest=_digest(secret)).first()
    now = now_ms()
    if token is None or token.revoked_at_ms is not None or not token.owner.is_active:
        return None
    if token.expires_at_ms is not None and token.expires_at_ms <= now:
        return None
    if now - (token.last_used_at_ms or 0) > _LAST_USED_STEP_MS:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at_ms=now)
    return token


def revoke(token: ApiToken) -> None:
    """From now on the token is refused; the row stays for the record."""
    if token.revoked_at_ms is None:
        token.revoked_at_ms = now_ms()
        token.save(update_fields=["revoked_at_ms"])


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
