"""Hashes passwords with Django's scrypt, only a few at a time."""

from __future__ import annotations

import threading
from typing import Any

from django.contrib.auth.hashers import ScryptPasswordHasher

# Each hash takes 16 MiB and a processor.
AT_ONCE = 2

_places = threading.BoundedSemaphore(AT_ONCE)


class PasswordHasher(ScryptPasswordHasher):
    """Django's scrypt hasher, for AT_ONCE threads at a time; further ones wait. Any thread."""

    def encode(self, *arguments: Any, **named: Any) -> str:
        with _places:
            return str(super().encode(*arguments, **named))
