"""Secrets of users sealed at rest, with a key in a file (`accessKeyFile`): AES-256-GCM of `cryptography`.

A sealed text is the base64 of 12 random bytes and what AES-GCM made of the text; the user's name is authenticated with
it, so the secrets of one user cannot be put in the place of another's. It protects copies of the journal, as in
backups, not the memory of the broker.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from pathlib import Path

from ..errors import StartError
from ..secret_file import read_secret_file

OPTION = "accessKeyFile"
_KEY = re.compile(rb"[0-9a-fA-F]{64}", re.ASCII)
#: Keys of the file: the one that seals, and those that it has replaced.
_MOST_KEYS = 8
_MOST_BYTES = 66 * _MOST_KEYS
_NONCE_BYTES = 12


class Sealer:
    """Any thread."""

    def __init__(self, keys: list[bytes]) -> None:
        """keys: of 32 bytes; the first one seals, all unseal. Raises ImportError without `cryptography`."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._ciphers = [AESGCM(key) for key in keys]

    def seal(self, name: str, text: bytes) -> str:
        """Seal a text of the user `name`."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return base64.b64encode(nonce + self._ciphers[0].encrypt(nonce, text, name.encode())).decode()

    def unseal(self, name: str, sealed: str) -> tuple[bytes, bool]:
        """Return the text, and True if the first key sealed it. Raises ValueError if none of the keys did."""
        from cryptography.exceptions import InvalidTag

        try:
            raw = base64.b64decode(sealed, validate=True)
        except binascii.Error:
            raise ValueError("what is sealed is no base64") from None
        for number, cipher in enumerate(self._ciphers):
            try:
                return cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], name.encode()), not number
            except (InvalidTag, ValueError):
                continue
        raise ValueError("none of the keys opens it")


def sealer_of(path: str) -> Sealer | None:
    """Return what seals with the keys in a file: one line of 64 hexadecimal digits for each, the newest first. None if
    `cryptography` is not installed. Raises StartError for a file that is none, or that others may read."""
    lines = read_secret_file(OPTION, Path(path), _MOST_BYTES + 1).split()
    if not 0 < len(lines) <= _MOST_KEYS or not all(map(_KEY.fullmatch, lines)):
        raise StartError(
            f"{OPTION} {path} must hold one key of 64 hexadecimal digits a line, at most {_MOST_KEYS}, the newest "
            "first; `openssl rand -hex 32` makes one."
        )
    try:
        return Sealer([bytes.fromhex(line.decode()) for line in lines])
    except ImportError:
        return None
