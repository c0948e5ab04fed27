"""Digests. `hashlib` loads OpenSSL, 4 MB, so it is imported with the first digest: a broker alone may never need
one."""

from __future__ import annotations


def sha256(data: bytes) -> bytes:
    """Return the digest, 32 bytes."""
    import hashlib

    return hashlib.sha256(data).digest()


def blake2b(data: bytes, size: int) -> bytes:
    """Return the digest of `size` bytes, 1 to 64."""
    import hashlib

    return hashlib.blake2b(data, digest_size=size).digest()
