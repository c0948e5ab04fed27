"""The manifest of a backup: each file with its length and SHA-256, and the end of the log that the backup was made
at."""

from __future__ import annotations

import hashlib
import re

import msgspec

NAME = "manifest.json"
# Largest length of a file that a file system can count.
_LONGEST = (1 << 63) - 1
FORMAT = 1
#: Secrets that every backup contains.
SECRETS = (
    "message bodies",
    "password hashes of the console's users",
    "hashes of API tokens and sessions",
    "the key of sessions and of the audit log",
    "the secrets of wire users, sealed only with accessKeyFile",
)
_PATH = re.compile(r"(?:store|rocketbox)(?:/[^/\0]{1,255}){1,12}\Z")


class Entry(msgspec.Struct, frozen=True):
    """One file. bytes: its length in the backup; full_bytes: its length when restored, the rest is zeros."""

    name: str
    bytes: int
    full_bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """begin_offset, end_offset: the range of the log in it. digest: of all other fields, as `digest_of` makes it."""

    format: int
    version: str
    made_at_ms: int
    begin_offset: int
    end_offset: int
    files: list[Entry]
    secrets: list[str] = msgspec.field(default_factory=lambda: list(SECRETS))
    digest: str = ""

    @property
    def total_bytes(self) -> int:
        return sum(one.bytes for one in self.files)


def digest_of(manifest: Manifest) -> str:
    plain = msgspec.structs.replace(manifest, digest="")
    return hashlib.sha256(msgspec.json.encode(plain)).hexdigest()


def sealed(manifest: Manifest) -> Manifest:
    return msgspec.structs.replace(manifest, digest=digest_of(manifest))


def encode(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)


def decode(data: bytes) -> Manifest:
    """Return the manifest. Raises ValueError, with a sentence."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"its manifest cannot be read: {error}") from None
    if manifest.format != FORMAT:
        raise ValueError(f"it has format {manifest.format}, and this version reads {FORMAT}")
    if manifest.digest != digest_of(manifest):
        raise ValueError("its manifest was changed")
    names = [one.name for one in manifest.files]
    if len(set(names)) != len(names):
        raise ValueError("its manifest names a file twice")
    for one in manifest.files:
        if not is_safe(one.name) or not 0 <= one.bytes <= one.full_bytes <= _LONGEST:
            raise ValueError(f"its manifest names {one.name[:200]!r}, which is no file of a data directory")
    return manifest


def is_safe(name: str) -> bool:
    """True if a name stays inside the directory that it is restored into."""
    return _PATH.match(name) is not None and not {".", ".."} & set(name.split("/"))
