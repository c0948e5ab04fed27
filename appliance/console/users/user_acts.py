"""Acts of administrators on users, for pages, the API and definitions alike, each with its entry in the audit log.

A token cannot manage users with rights that it does not have itself, nor administrators. The sessions, tokens and links
that an act ends are ended in its transaction.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest
from django.utils.translation import gettext as _

from ..audit.log import audit
from ..models import ApiToken, Role, User
from ..sign_in import password_links, second_factor, sessions
from ..sign_in.password_rules import generate_password, password_problem
from . import tokens
from .roles import GRANTS

RIGHTS = ("role", "may_read_bodies", "may_export", "topic_pattern", "group_pattern")


class ExceedsCaller(Exception):
    """A token would make an administrator, or give or reach rights that it does not have itself."""


class Refused(Exception):
    """An act was refused; the text gives the reason in the reader's language. field: the wrong field, "" for none."""

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


def require_not_more(caller: Any, rights: dict[str, Any]) -> None:
    """Raise ExceedsCaller if a token would give rights that it does not have, or make an administrator."""
    if caller.kind != "token":
        return
    if any(rights.get(grant) and not getattr(caller, grant) for grant in GRANTS) or rights.get("role") == Role.ADMIN:
        raise ExceedsCaller("A token makes no administrators, and gives nobody rights that it does not have.")


def require_below(caller: Any, person: User) -> None:
    """Raise ExceedsCaller if a token would change a user with more rights than it has, or an administrator."""
    require_not_more(caller, rights_of(person))


def require_present(caller: Any) -> None:
    """Raise Refused if the caller lost the password, the role or the token since the request began, by an act that was
    under way at the same time. Call in the transaction: what the caller makes would outlive that act."""
    fields = ("password", "is_active", "role")
    if caller.kind == "token":
        *links, owner = caller.holders
        is_present = ApiToken.objects.filter(pk__in=[one.pk for one in links], revoked_at_ms=None).count() == len(links)
    elif caller.kind == "user":
        owner, is_present = caller, True
    else:
        return
    now = User.objects.filter(pk=owner.pk).values_list(*fields).first()
    if not is_present or now != tuple(getattr(owner, field) for field in fields):
        raise Refused(_("Your role or your rights do not include this. An administrator can change that."))


def rights_of(person: User) -> dict[str, object]:
    """Return the rights of a user for the audit log; patterns only if they are not "*"."""
    kept = {name: getattr(person, name) for name in RIGHTS}
    return {name: value for name, value in kept.items() if not (name.endswith("_pattern") and value == "*")}


def create(request: HttpRequest, person: User, *, password: str | None = None, generate: bool = False) -> Any:
    """Save a new user. password: the first one; generate: make one; without either, make a link to set one.

    Return the generated password, or (the link's secret, when it ends in ms), or None. Raises Refused, ValidationError.
    """
    require_below(request.user, person)
    if password is not None and (problem := password_problem(password, person)):
        raise Refused(problem, "password")
    made: Any = None
    with transaction.atomic():
        require_present(request.user)
        if User.objects.named(person.username) is not None:
            raise Refused(_("There is already a user with this name."), "username")
        if generate:
            password = made = generate_password()
        _give(person, password)
        person.full_clean(exclude=["password"])
        person.save()
        audit(request, "user.create", person.username, None, rights_of(person))
        if password is None:
            made = password_links.make(person, request.user)
    return made


def change(request: HttpRequest, pk: int, values: dict[str, Any]) -> User:
    """Set rights (RIGHTS). Raises Refused, ValidationError, User.DoesNotExist."""
    # IMMEDIATE: of the last two administrators, two requests at once cannot demote both.
    with transaction.atomic():
        require_present(request.user)
        person = User.objects.get(pk=pk)
        require_below(request.user, person)
        require_not_more(request.user, values)
        before = rights_of(person)
        if is_last_admin(person) and values.get("role", Role.ADMIN) != Role.ADMIN:
            raise Refused(_last_admin_sentence(), "role")
        for name in RIGHTS:
            if name in values:
                setattr(person, name, values[name])
        person.full_clean(exclude=["password", "username"])  # it may be one that is not given any more
        person.save()
        if rights_of(person) != before:
            audit(request, "user.change", person.username, before, rights_of(person))
        tokens.limit_to_owner(person, partial(audit, request))
    return person


def set_active(request: HttpRequest, pk: int, active: bool) -> User:
    """Disable a user, whose sessions and tokens end at once; or enable the user again, without the old tokens."""
    with transaction.atomic():
        person = User.objects.get(pk=pk)
        require_below(request.user, person)
        if active:
            require_present(request.user)
        if not active and is_last_admin(person):
            raise Refused(_last_admin_sentence())
        before = {"active": person.is_active}
        person.is_active = active
        person.save(update_fields=["is_active"])
        audit(request, "user.enable" if active else "user.disable", person.username, before, {"active": active})
        if not active:
            tokens.revoke_all(person, partial(audit, request))
            sessions.end_all(person)
    return person


def reset_password(
    request: HttpRequest, pk: int, *, generate: bool, password: str | None = None
) -> tuple[User, Any, list[str]]:
    """Reset a user's password and end their sessions and tokens. Return the user, the password or link as `create`
    does, and the names of the tokens. Raises Refused."""
    if password is not None and (problem := password_problem(password, User.objects.get(pk=pk))):
        raise Refused(problem, "password")
    with transaction.atomic():
        require_present(request.user)
        person = User.objects.get(pk=pk)
        require_below(request.user, person)
        if person.pk == request.user.pk and request.user.kind == "user":
            raise Refused(_("Change your own password on the page of your account."))
        if person.identity:
            raise Refused(_("This user signs in elsewhere and has no password here."))
        made: Any = generate_password() if generate else None
        _give(person, made or password)
        person.save(update_fields=["password", "must_change_password"])
        audit(request, "user.reset_password", person.username)
        if made is None and password is None:
            made = password_links.make(person, request.user)
        ended = tokens.revoke_all(person, partial(audit, request))
        sessions.end_all(person)
    return person, made, ended


def remove_second_factor(request: HttpRequest, pk: int) -> User:
    """Remove a user's second factor, for example after a phone was lost: the password alone is enough again."""
    with transaction.atomic():
        person = User.objects.get(pk=pk)
        require_below(request.user, person)
        if person.has_second_factor:
            second_factor.turn_off(person)
            audit(request, "second_factor.remove", person.username, {"on": True}, {"on": False})
    return person


def end_sessions(request: HttpRequest, person: User, number: int | None = None, but: int | None = None) -> int:
    """End one of a user's sessions, or all except `but`; return how many were ended. A leaked token cannot sign out the
    users who could revoke it."""
    require_below(request.user, person)
    found = [one for one in sessions.of(person) if number in (None, one.pk) and one.pk != but]
    with transaction.atomic():
        for one in found:
            sessions.end(int(one.pk))
        if found:
            audit(request, "session.end", person.username, {"sessions": len(found)}, None)
    return len(found)


def is_last_admin(person: User) -> bool:
    """True if this is the only active administrator."""
    return bool(
        person.is_active and person.is_admin and not User.objects.active_admins().exclude(pk=person.pk).exists()
    )


def message_of(error: ValidationError) -> str:
    return " ".join(error.messages)


def _last_admin_sentence() -> str:
    return _("This is the last administrator. Make another user an administrator first.")


def _give(person: User, password: str | None) -> None:
    """Set a first password, which the user has to change. Without one, the user cannot sign in before the link was
    used."""
    if password is None:
        person.set_unusable_password()
    else:
        person.set_password(password)
    person.must_change_password = password is not None
