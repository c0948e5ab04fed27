"""Who is asking: signing in and out, and the caller of a request. Django's own `auth` application is not installed:
it would bring fourteen migrations and a second permission system.

`request.user` is a `User`, a `Bearer` (an API token) or `AnonymousUser`; all have username, label, kind, role,
may_read_bodies, may_export and is_authenticated.
"""

from __future__ import annotations

import hmac
import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from django.contrib.auth.hashers import check_password, make_password
from django.middleware.csrf import rotate_token
from django.utils import timezone

from .models import Role, User

if TYPE_CHECKING:
    from django.http import HttpRequest

    from .models import ApiToken

_USER, _HASH, _AT, _SEEN = "user", "password", "confirmed_at", "seen_at"
# A session is renewed at most this often, so that reading pages does not write to the database each time.
_RENEW_S = 600


class AnonymousUser:
    """A caller who has not signed in."""

    pk = None
    username = label = ""
    kind = "nobody"
    role = ""
    language = ""
    may_read_bodies = may_export = is_admin = must_change_password = False
    is_authenticated = is_active = False
    is_anonymous = True


class Bearer:
    """The caller behind an API token: never more than the token's owner may, now."""

    kind = "token"
    is_authenticated = is_active = True
    is_anonymous = must_change_password = is_admin = False

    def __init__(self, token: ApiToken) -> None:
        owner = token.owner
        ranks = list(Role.values)
        self.token = token
        self.pk = owner.pk
        self.username = owner.username
        self.label = f"{owner.username}/{token.name}"
        self.language = ""
        self.role = min(token.role, owner.role, key=ranks.index)
        self.may_read_bodies = token.may_read_bodies and owner.may_read_bodies
        self.may_export = token.may_export and owner.may_export

    def may_access(self, name: str) -> bool:
        """Whether a topic or group of this name is within the token's pattern."""
        return fnmatchcase(name, self.token.pattern)


def authenticate(username: str, password: str) -> User | None:
    """The active user with this name and password; takes as long when there is none of that name."""
    user = User.objects.named(username)
    if user is None:
        make_password(password)
        return None
    return user if check_password(password, user.password) and user.is_active else None


def sign_in(request: HttpRequest, user: User) -> None:
    """Make the session this user's, under a new key; what a stranger may have put into it is gone."""
    request.session.flush()
    request.session[_USER] = user.pk
    request.session[_HASH] = user.get_session_auth_hash()
    request.session[_AT] = request.session[_SEEN] = int(time.time())
    User.objects.filter(pk=user.pk).update(last_login=timezone.now())
    rotate_token(request)
    request.user = user


def sign_out(request: HttpRequest) -> None:
    """Forget the session, here and in the database."""
    request.session.flush()
    rotate_token(request)
    request.user = AnonymousUser()


def confirm(request: HttpRequest) -> None:
    """Remember that the password was given just now, under a new session key."""
    request.session.cycle_key()
    request.session[_AT] = int(time.time())


def confirmed_s_ago(request: HttpRequest) -> float:
    """Seconds since the password was last given in this session."""
    return time.time() - request.session.get(_AT, 0)


def keep_signed_in(request: HttpRequest, user: User) -> None:
    """After users changed their own password: this session continues under a new key, all others end."""
    request.session.cycle_key()
    request.session[_HASH] = user.get_session_auth_hash()


def user_of(request: HttpRequest) -> Any:
    """The user of the session, or AnonymousUser: also after a new password, or when the user was disabled."""
    session = request.session
    pk = session.get(_USER)
    if pk is None:
        return AnonymousUser()
    user = User.objects.filter(pk=pk, is_active=True).first()
    if user is None or not hmac.compare_digest(session.get(_HASH, ""), user.get_session_auth_hash()):
        session.flush()
        return AnonymousUser()
    now = int(time.time())
    if now - session.get(_SEEN, 0) > _RENEW_S:
        session[_SEEN] = now  # saved with a new expiry
    return user
