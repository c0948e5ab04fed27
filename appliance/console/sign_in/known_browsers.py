"""Browsers in which a user has signed in before: a signed cookie marks them, for a year or until the password changes.

The cookie does not sign anyone in. Such a browser has its own count of wrong passwords (`lockout`), so strangers who
keep guessing do not lock the user out there.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from django.conf import settings
from django.core import signing

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from ..models import User

COOKIE = "rocketbox_known"
AGE_S = 365 * 86_400


def known_as(request: HttpRequest, user: User | None) -> str:
    """Return the name under which this browser is known as the user's; "" if it is not."""
    shown = request.COOKIES.get(COOKIE)
    if user is None or not shown or len(shown) > 200:
        return ""
    try:
        return "browser " + _signer(user).unsign(shown)
    except signing.BadSignature:
        return ""


def remember(request: HttpRequest, response: HttpResponse, user: User) -> None:
    """Mark the browser as one in which the user has signed in."""
    if known_as(request, user):
        return
    response.set_cookie(
        COOKIE,
        _signer(user).sign(secrets.token_hex(8)),
        max_age=AGE_S,
        path=settings.SESSION_COOKIE_PATH,
        httponly=True,
        samesite="Lax",
        secure=settings.SESSION_COOKIE_SECURE,
    )


def _signer(user: User) -> signing.Signer:
    return signing.Signer(salt=f"known-browser {user.pk} {user.get_session_auth_hash()}")
