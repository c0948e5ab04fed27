"""Signing in and out, and the caller of a request. Django's own `auth` application is not installed: it would bring
fourteen migrations and a second permission system.

`request.user` is a `User`, a `Bearer` (an API token) or `AnonymousUser`; all have username, label, kind, role,
may_read_bodies, may_export and is_authenticated. `names_for` returns the topics and groups that each may access.
"""

from __future__ import annotations

import hmac
import math
import time
from typing import TYPE_CHECKING, Any

from django.contrib.auth.hashers import check_password, make_password
from django.middleware.csrf import rotate_token
from django.utils import timezone

from ..models import Role, User
from ..users.patterns import Names, names_of
from ..users.tokens import chain
from . import sessions

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ..models import ApiToken

_USER, _HASH, _AT, _SEEN = "user", "password", "confirmed_at", "seen_at"
# The number of the session's row in `sessions`; without that row the session ends.
_SIGN_IN = "sign_in"
# A session is renewed at most this often, so that reading pages does not write to the database each time.
_RENEW_S = 600
# A clock that is not set may go back by this when it is corrected.
_SLEWED_S = 5.0


class AnonymousUser:
    """A caller who has not signed in."""

    pk = None
    username = label = ""
    kind = "nobody"
    role = ""
    language = time_zone = ""
    may_read_bodies = may_export = is_admin = must_change_password = False
    is_authenticated = is_active = False
    is_anonymous = True


class Bearer:
    """The caller behind an API token. It never has more rights than the token's owner has now, nor than the tokens by
    which it was made."""

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
        self.time_zone = ""
        self.holders = (*chain(token), owner)
        self.role = min((one.role for one in self.holders), key=ranks.index)
        self.may_read_bodies = all(one.may_read_bodies for one in self.holders)
        self.may_export = all(one.may_export for one in self.holders)


def names_for(caller: Any) -> Names:
    """Return the topics and groups that a caller may access. For a caller who has not signed in, the patterns exclude
    none: the access table refuses them before."""
    if caller.kind == "token":
        return names_of(*caller.holders)
    return names_of(caller) if caller.kind == "user" else Names()


def authenticate(username: str, password: str) -> User | None:
    """Return the active user with this name and password, else None. It takes as long if there is no such user."""
    user = User.objects.named(username)
    if user is None:
        make_password(password)
        return None
    return user if check_password(password, user.password) and user.is_active else None


def sign_in(request: HttpRequest, user: User, way: str = "password") -> None:
    """Begin a session for this user, under a new key; the values of the old session are dropped, since a stranger may
    have put them there. way: how the user signed in, as in `models.SignIn`."""
    _end_present(request)
    request.session.flush()
    request.session[_SIGN_IN] = sessions.begin(request, user, way)
    request.session[_USER] = user.pk
    request.session[_HASH] = user.get_session_auth_hash()
    request.session[_AT] = request.session[_SEEN] = int(time.time())
    User.objects.filter(pk=user.pk).update(last_login=timezone.now())
    rotate_token(request)
    request.user = user
    request.way = way


def sign_out(request: HttpRequest) -> None:
    """End the session, in the request and in the database."""
    _end_present(request)
    request.session.flush()
    rotate_token(request)
    request.user = AnonymousUser()
    request.way = ""


def confirm(request: HttpRequest) -> None:
    """Record in the session that the password was given just now, and give it a new key."""
    request.session.cycle_key()
    request.session[_AT] = int(time.time())


def confirmed_s_ago(request: HttpRequest) -> float:
    """Return the seconds since the password was last given in this session. After the clock was set back that is not
    known, and counts as long ago."""
    seconds = time.time() - request.session.get(_AT, 0)
    return seconds if seconds > -_SLEWED_S else math.inf


def keep_signed_in(request: HttpRequest, user: User) -> None:
    """Continue this session under a new key and end all others, after users have changed their own password."""
    request.session.cycle_key()
    request.session[_HASH] = user.get_session_auth_hash()
    sessions.end_all(user, but=present(request))


def present(request: HttpRequest) -> int | None:
    """Return the number of the request's session in `sessions`; None if it has none."""
    found = request.session.get(_SIGN_IN)
    return found if isinstance(found, int) else None


def way_of(request: HttpRequest) -> str:
    """Return how the session's user signed in; "" if the session has no user."""
    return str(getattr(request, "way", ""))


def _end_present(request: HttpRequest) -> None:
    number = present(request)
    if number is not None:
        sessions.end(number)


def user_of(request: HttpRequest) -> Any:
    """Return the user of the session; AnonymousUser if there is none, the password changed, the user was disabled, or
    the session was ended from elsewhere."""
    session = request.session
    pk = session.get(_USER)
    if pk is None:
        return AnonymousUser()
    row = sessions.row(present(request))
    user = row.user if row is not None and row.user_id == pk and row.user.is_active else None
    if row is None or user is None or not hmac.compare_digest(session.get(_HASH, ""), user.get_session_auth_hash()):
        _end_present(request)
        session.flush()
        return AnonymousUser()
    now = int(time.time())
    if now - session.get(_SEEN, 0) > _RENEW_S:
        session[_SEEN] = now  # saved with a new expiry
    sessions.seen(row, request)
    request.way = row.way
    return user
