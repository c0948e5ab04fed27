"""Rules for passwords, and generated passwords. No service is asked over the network."""

from __future__ import annotations

import secrets
import string
from itertools import pairwise
from pathlib import Path

from django.contrib.auth import password_validation
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from ...program_files import content
from ..models import User

# Without 0 O 1 l I: people read passwords out to each other.
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
# Digits and signs that people type instead of a letter, and those that they add at either end.
_FOR_LETTERS = str.maketrans("013457@$!|", "oieastasil")
_ADDED = string.digits + string.punctuation + " "


def password_problem(password: str, user: User | None = None) -> str | None:
    """Return the reason to refuse a password, in one or more sentences; None if it is good."""
    if user is not None and user.username and password.casefold() == user.username.casefold():
        return _("The password must not be the user name.")
    if len(password) > 1024:
        return _("The password is too long.")
    try:
        password_validation.validate_password(password, user)
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


def is_weak(password: str, *names: str) -> bool:
    """True if a password is a common one or one of the given names, with digits and signs in or around it, a row, or a
    repetition. names: the user's."""
    plain = password.casefold()
    return _is_repeated(plain) or _is_row(plain) or _is_common(plain, names)


def _is_common(plain: str, names: tuple[str, ...]) -> bool:
    import gzip  # rarely needed

    # Django's 20,000 passwords are read again each time: 13 ms, where the framework would keep 2 MB for ever. Its own
    # class would look for the file in a directory, and the one-file build has none.
    path = Path(password_validation.__file__).with_name("common-passwords.txt.gz")
    common = set(gzip.decompress(content(path)).decode().split("\n"))
    common.update(_letters(name.casefold()) for name in (*names, "rocketmq", "rocketbox"))
    word = plain.strip(_ADDED)
    return any(one in common for one in (plain, word, _letters(word), _letters(word.translate(_FOR_LETTERS))) if one)


def _letters(text: str) -> str:
    return "".join(letter for letter in text if letter.isalpha())


def _is_repeated(plain: str) -> bool:
    """True if a text repeats a short piece, or has fewer than five different characters."""
    return len(set(plain)) < 5 or any(
        plain == (plain[:size] * (len(plain) // size + 1))[: len(plain)] for size in range(1, (len(plain) + 1) // 2 + 1)
    )


def _is_row(plain: str) -> bool:
    """True if most characters follow each other, forwards or backwards: 1234567890, abcdefghij."""
    steps = [ord(after) - ord(before) for before, after in pairwise(plain)]
    return bool(steps) and sum(step in (1, -1) for step in steps) >= 0.7 * len(steps)
