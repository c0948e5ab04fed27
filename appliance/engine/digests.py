"""Digests. `hashlib` loads OpenSSL, 4 MB, and is imported when the first digest is made: a broker alone may
never need one."""

from __future__ import annotations


def sha256(data: bytes) -> bytes:
    """32 bytes."""
    import hashlib

    return hashlib.sha256(data).digest()


def blake2b(data: bytes, size: int) -> bytes:
    """`size` bytes, 1 to 64."""
    import hashlib

    return hashlib.blake2b(data, digest_size=size).digest()
