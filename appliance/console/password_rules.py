"""Rules for passwords, and generated passwords."""

from __future__ import annotations

import secrets

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from .models import User
from .weak_passwords import is_weak

# Without 0 O 1 l I: people read passwords out to each other.
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


def password_problem(password: str, user: User | None = None) -> str | None:
    """Return the reason to refuse a password, in one or more sentences; None if it is good."""
    if user is not None and user.username and password.casefold() == user.username.casefold():
        return _("The password must not be the user name.")
    if len(password) > 1024:
        return _("The password is too long.")
    try:
        validate_password(password, user)
    except ValidationError as error:
        for one in error.error_list:
            one.__traceback__ = None  # it holds the framework's frame, which holds the errors: a cycle (D10)
        return " ".join(error.messages)
    if is_weak(password, user.username if user is not None else ""):
        return _("This is easy to guess: a common word, a row of keys, your name, or a repetition. Take several words.")
    return None


def generate_password() -> str:
    """Return a password of four groups of five characters, 99 bits, to be read out once and changed."""
    return "-".join("".join(secrets.choice(_ALPHABET) for _ in range(5)) for _ in range(4))
