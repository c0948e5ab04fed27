"""The first run: a link with a secret, printed at start while there is no administrator, and the steps that follow.

The secret is only in this process's memory. It ends with a restart, and when the administrator is created with it.
Later steps need that administrator's session. After the last step every page of the wizard is 404.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from django.core.exceptions import ValidationError
from django.db import transaction

from ...engine.errors import StartError
from ..audit.log import Actor, record
from ..models import Setting, User
from ..users.tokens import revoke_all
from .password_rules import password_problem

STEPS = ("language", "administrator", "address", "message")
_KEY = "set-up"
DONE = "done"

# Owned by the main thread at start, read by all; None once an administrator exists.
_secret: str | None = None
# True once `is_open` has found the wizard closed, which is for ever.
_closed = False


def offer_link() -> str | None:
    """At start: return the path of the set-up page, with a new secret; None if an administrator exists."""
    global _secret
    _secret = None
    if User.objects.active_admins().exists():
        return None
    _secret = secrets.token_urlsafe(32)
    return f"/setup/{_secret}/"


def is_valid(secret: str) -> bool:
    """True if this is the secret of the link and the link is still valid."""
    return _secret is not None and hmac.compare_digest(secret.encode(), _secret.encode())


def is_open() -> bool:
    """True if the wizard's pages exist: from the first start until its last step is done."""
    global _closed
    if _secret is not None:
        return True
    if not _closed:
        _closed = not User.objects.exists() or next_step() == DONE
    return not _closed


def next_step() -> str:
    """Return the next step after the administrator was created, or DONE."""
    found = Setting.objects.filter(key=_KEY).first()
    return str(found.value) if found else DONE


def go_to(step: str) -> None:
    """Store the next step; DONE closes the wizard."""
    Setting.objects.update_or_create(key=_KEY, defaults={"value": step})


def create_administrator(username: str, password: str, language: str, secret: str, time_zone: str = "") -> User | None:
    """Create the first administrator through the link, which ends with it. Return None if another request did it
    first."""
    global _secret, _closed
    user = User(username=username, language=language, time_zone=time_zone, **_ALL_RIGHTS)
    user.set_password(password)
    with transaction.atomic():  # IMMEDIATE: two browsers with the same link come one after the other
        if not is_valid(secret) or User.objects.active_admins().exists():
            return None
        user.full_clean()
        user.save()
        go_to("address")
        record("user.create", username, None, _ALL_RIGHTS, by=Actor(username, "set-up"))
    _secret, _closed = None, False
    return user


_ALL_RIGHTS = {"role": "admin", "may_read_bodies": True, "may_export": True}


def create_from_environment(environ: Mapping[str, str]) -> None:
    """Create the administrator from ADMIN_USER and ADMIN_PASSWORD (or ADMIN_PASSWORD_FILE), if there is none yet.

    Later these variables change nothing; use `rocketbox user reset-password`. Raises StartError if they are incomplete
    or refused.
    """
    username = environ.get("ADMIN_USER", "").strip()
    if not username or User.objects.active_admins().exists():
        return
    password = environ.get("ADMIN_PASSWORD") or _password_in(environ.get("ADMIN_PASSWORD_FILE", ""))
    if not password:
        raise StartError("ADMIN_USER is set, so ADMIN_PASSWORD or ADMIN_PASSWORD_FILE must be set too.")
    user = User.objects.named(username) or User(username=username)
    for name, value in _ALL_RIGHTS.items():
        setattr(user, name, value)
    user.is_active = True
    problem = password_problem(password, user)
    if problem:
        raise StartError(f"The password of ADMIN_USER is refused: {problem}")
    user.set_password(password)
    try:
        user.full_clean()
    except ValidationError as error:
        raise StartError(f"ADMIN_USER is refused: {' '.join(error.messages)}") from None
    with transaction.atomic():
        user.save()
        note = partial(record, by=Actor("environment", "set-up"))
        note("user.create", username, None, _ALL_RIGHTS)
        revoke_all(user, note)  # a user of this name may have existed, with tokens of another person


def _password_in(name: str) -> str:
    if not name:
        return ""
    try:
        return Path(name).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise StartError(f"ADMIN_PASSWORD_FILE {name} cannot be read: {reason}.") from None
