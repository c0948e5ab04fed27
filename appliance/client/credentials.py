"""`Credentials`: a user of the brokers and its secret, which signs every request."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NoReturn

from .core.signing import Signer
from .errors import InvalidOption

_USER, _SECRET, _TOKEN, _FILE = (
    "ROCKETMQ_ACCESS_KEY",
    "ROCKETMQ_SECRET_KEY",
    "ROCKETMQ_SECURITY_TOKEN",
    "ROCKETMQ_CREDENTIALS_FILE",
)
#: Names in a file, as Apache's conf/tools.yml has the first two.
_IN_FILE = ("accessKey", "secretKey", "securityToken")
_MOST_FILE_BYTES = 64 * 1024


class Credentials:
    """A user and its secret: RocketMQ's access key and secret key, of ACL 1.0 and 2.0.

    Every request is signed. The secret is never sent, and is in no repr, log or pickle. A signature that is read on its
    way can be sent again: use TLS where others can listen. Raises InvalidOption.
    """

    __slots__ = ("_signer", "user")

    def __init__(self, user: str, secret: str, token: str | None = None) -> None:
        """token: a security token, for services that ask for one."""
        wrong = next(
            (
                name
                for name, value in (("user", user), ("secret", secret), ("token", token))
                if not (value is None and name == "token") and not _is_usable(value)
            ),
            None,
        )
        if wrong is not None:
            del user, secret, token  # a traceback may show them
            raise InvalidOption(f"The {wrong} of Credentials is a text that is not empty.")
        self.user = user
        self._signer = Signer(user, secret, token)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Credentials:
        """Read `accessKey: ...` and `secretKey: ...` from a file, one a line, as in Apache's conf/tools.yml; and
        `securityToken: ...` if it is there."""
        try:
            with Path(path).open("rb") as file:
                lines = file.read(_MOST_FILE_BYTES).decode().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
            raise InvalidOption(f"The credentials in {os.fspath(path)!r} cannot be read: {why}.") from None
        found: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.strip().partition(":")
            if colon and name.strip() in _IN_FILE:
                found[name.strip()] = _unquoted(value.strip())
        missing = [name for name in _IN_FILE[:2] if not found.get(name)]
        if missing:
            del lines, found
            raise InvalidOption(f"The file {os.fspath(path)!r} has no line {missing[0] + ': ...'!r}.")
        return cls(found["accessKey"], found["secretKey"], found.get("securityToken") or None)

    @classmethod
    def from_environment(cls) -> Credentials | None:
        """Return what the variables ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY say, or the file that
        ROCKETMQ_CREDENTIALS_FILE names; None without them."""
        user, secret = os.environ.get(_USER), os.environ.get(_SECRET)
        if not user and not secret:
            path = os.environ.get(_FILE)
            return cls.from_file(path) if path else None
        if not user or not secret:
            given, other = (_USER, _SECRET) if user else (_SECRET, _USER)
            del user, secret
            raise InvalidOption(f"The variable {given} is set, but {other} is not.")
        return cls(user, secret, os.environ.get(_TOKEN) or None)

    @property
    def signer(self) -> Signer:
        return self._signer

    def __repr__(self) -> str:
        return f"Credentials({getattr(self, 'user', None)!r}, ...)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Credentials are not pickled: make them where they are used.")


def _is_usable(value: Any) -> bool:
    if not isinstance(value, str) or not value.strip():
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'" else value
