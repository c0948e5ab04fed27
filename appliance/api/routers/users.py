"""Users who may sign in, and their roles. Usernames are part of addresses.

A token manages users whose rights do not exceed its own, and no administrators: so a token that leaked
makes no user who could undo its revocation.
"""

from __future__ import annotations

from typing import Any, Literal

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Query, Router, Status

from ...console.audit.log import audit
from ...console.models import User
from ...console.sign_in import second_factor
from ...console.users import user_acts
from ...console.users.views import filtered, sorted_rows
from ...engine.errors import InvalidInput
from .. import auth
from ..errors import Refused
from ..paging import Cursor, Limit, encode_position, page_number
from ..schemas import (
    EndedOut,
    PasswordIn,
    SecondFactorRule,
    SecondFactorRuleOut,
    SessionList,
    UserIn,
    UserOut,
    UserPage,
    UserPatch,
    UserSecretOut,
)
from .account import session_rows

router = Router(tags=["users"])


@router.get("/users", response=UserPage)
def list_users(
    request: HttpRequest,
    cursor: Cursor,
    limit: Limit,
    q: str = Query("", max_length=64, description="Only those whose name contains this."),
    role: Literal["", "viewer", "operator", "admin"] = Query("", description="Only those of this role."),
    state: Literal["", "active", "disabled"] = Query("", description="Only those that may, or may not, sign in."),
    sort: Literal["name", "-name", "role", "-role", "last_sign_in", "-last_sign_in", "state", "-state"] = Query("name"),
) -> Any:
    """The users who may sign in to the console, or could once."""
    question = ("users", q, role, state, sort, limit)
    number = page_number(cursor, question)
    rows = sorted_rows(filtered(q, role, state), sort)
    found = list(rows[(number - 1) * limit : number * limit + 1])
    following = encode_position(number + 1, question) if len(found) > limit else None
    return {"items": found[:limit], "total": rows.count(), "next_cursor": following}


@router.post("/users", response={201: UserSecretOut})
def create_user(request: HttpRequest, response: HttpResponse, body: UserIn) -> Any:
    """Create a user. The answer has a link with which they set their password, unless you give them a first one."""
    rights = _given(body, "username", "password")
    person = User(username=body.username, **rights)
    try:
        made = user_acts.create(request, person, password=body.password)
    except (user_acts.Refused, ValidationError) as error:
        raise _invalid(error) from None
    response.headers["Location"] = f"{request.path}/{person.username}"
    return Status(201, _secret(request, person, made, []))


@router.get("/users/{username}", response=UserOut)
def user(request: HttpRequest, username: str) -> Any:
    """One user."""
    return _found(request, username)


@router.patch("/users/{username}", response=UserOut)
def change_user(request: HttpRequest, username: str, body: UserPatch) -> Any:
    """Change role, rights and patterns, or disable and enable. The last administrator stays one."""
    person = _found(request, username)
    auth.require_recent_login(request)
    rights = _given(body, "active")
    try:
        if rights:
            person = user_acts.change(request, person.pk, rights)
        if body.active is not None and body.active != person.is_active:
            person = user_acts.set_active(request, person.pk, body.active)
    except user_acts.Refused as error:
        raise Refused("conflict", str(error)) from None
    except ValidationError as error:
        raise _invalid(error) from None
    return person


@router.post("/users/{username}/password", response=UserSecretOut)
def reset_password(request: HttpRequest, username: str, body: PasswordIn) -> Any:
    """End a user's password, sessions and tokens. The answer has a link with which they set a new one, unless you give
    them a first one."""
    person = _found(request, username)
    try:
        person, made, ended = user_acts.reset_password(request, person.pk, generate=False, password=body.password)
    except user_acts.Refused as error:
        if error.field:
            raise _invalid(error) from None
        raise Refused("conflict", str(error)) from None
    return _secret(request, person, made, ended)


@router.delete("/users/{username}/second-factor", response=UserOut)
def remove_second_factor(request: HttpRequest, username: str) -> Any:
    """Take a lost second factor from a user: the password alone lets them in."""
    person = _found(request, username)
    return user_acts.remove_second_factor(request, person.pk)


@router.get("/users/{username}/sessions", response=SessionList)
def list_sessions(request: HttpRequest, username: str) -> Any:
    """Where a user is signed in, the session seen last first."""
    return {"items": session_rows(request, _found(request, username).pk)}


@router.delete("/users/{username}/sessions", response=EndedOut)
def end_sessions(
    request: HttpRequest,
    username: str,
    session: int | None = Query(None, ge=1, lt=1 << 63, description="Only the session of this id."),
) -> Any:
    """End a user's sessions; each is over at its next request."""
    person = _found(request, username)
    return {"ended": user_acts.end_sessions(request, person, session)}


@router.get("/system/second-factor", response=SecondFactorRuleOut)
def second_factor_rule(request: HttpRequest) -> Any:
    """The roles that need a second factor."""
    return {"roles": second_factor.required_roles()}


@router.put("/system/second-factor", response=SecondFactorRuleOut)
def require_second_factor(request: HttpRequest, body: SecondFactorRule) -> Any:
    """Say which roles need a second factor. Who has none sees nothing but the page that sets it up."""
    before = second_factor.required_roles()
    second_factor.require_for(list(body.roles))
    after = second_factor.required_roles()
    audit(request, "second_factor.require", "", {"roles": before}, {"roles": after})
    return {"roles": after}


def _found(request: HttpRequest, username: str) -> User:
    person = User.objects.named(username)
    if person is None:
        raise Refused("user_not_found", f"There is no user {username[:64]}.")
    return person


def _given(body: Any, *others: str) -> dict[str, Any]:
    """The rights that the body names."""
    return body.model_dump(exclude_unset=True, exclude=set(others))


def _invalid(error: user_acts.Refused | ValidationError) -> InvalidInput:
    if isinstance(error, user_acts.Refused):
        return InvalidInput(error.field or "username", str(error))
    field = next(iter(getattr(error, "error_dict", {"username": None})))
    return InvalidInput(str(field), user_acts.message_of(error))


def _secret(request: HttpRequest, person: User, made: Any, ended: list[str]) -> dict[str, Any]:
    link = until = None
    if isinstance(made, tuple):
        link, until = request.build_absolute_uri(reverse("set_password", args=[made[0]])), made[1]
    return {
        "user": UserOut.model_validate(person),
        "set_password_link": link,
        "set_password_until_ms": until,
        "revoked_tokens": ended,
    }
