"""The signature of a request: base64(HMAC-SHA1(secret, content)). PURE.

    content = the values of all header fields but `Signature`, in the order of their names, then the body

There are no separators, so a signature binds neither the request code nor the fields that its values belong to, and it
never expires: an attacker who reads one on the wire can send it again, with every request whose content is the same
text. Clients have no other way. Only TLS keeps signatures from being read.
Source: RocketMQ 5.3.3 `AclClientRPCHook`, `AclSigner`, `DefaultAuthenticationContextBuilder`.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
#: Fields that some clients sign and others add after signing: 4.9.4 and later sign the first, brokers of 4.9 leave it
#: out; 5.x clients add the others behind the signature.
_KEY_QUERY = frozenset(("_UNIQUE_KEY_QUERY",))
_ZONES = frozenset(("__ZONE_NAME", "__ZONE_MODE"))

#: None of the requests that have such fields has a longer body, and each content is hashed on remoting-io.
_SHORT_BODY_BYTES = 16 * 1024

_BLOCK_BYTES = 64  # of SHA-1
_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))


class SigningKey:
    """A secret, prepared to sign: SHA-1 that has taken the padded secret, copied for each content."""

    __slots__ = ("_inner", "_outer", "inner_pad", "outer_pad")

    def __init__(self, secret: str) -> None:
        key = secret.encode()
        if len(key) > _BLOCK_BYTES:
            key = hashlib.sha1(key).digest()
        key = key.ljust(_BLOCK_BYTES, b"\0")
        #: The blocks that SHA-1 takes before the content, and before the digest of that.
        self.inner_pad, self.outer_pad = key.translate(_INNER), key.translate(_OUTER)
        self._inner = hashlib.sha1(self.inner_pad)
        self._outer = hashlib.sha1(self.outer_pad)

    def sign(self, content: bytes) -> str:
        """Return the signature of a content, as text."""
        inner = self._inner.copy()
        inner.update(content)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return b64encode(outer.digest()).decode()


def signed_content(fields: Mapping[str, str], body: bytes, without: frozenset[str] = frozenset()) -> bytes:
    """Return the bytes that are signed of a request with these header fields. without: other names that are left
    out."""
    text = "".join([fields[name] for name in signed_names(fields) if name not in without])
    return text.encode(errors="replace") + body


def signed_names(names: Iterable[str]) -> list[str]:
    """Return the names whose values are signed, in their order."""
    found = [name for name in names if name != SIGNATURE]
    found.sort(key=None if "".join(found).isascii() else _java_order)
    return found


def _java_order(name: str) -> bytes:
    """Return a name's key for Java's order, which compares UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")


def is_signed_by(keys: tuple[SigningKey, ...], fields: Mapping[str, str], body: bytes) -> bool:
    """True if a request bears the signature of one of these keys. Takes the same time wherever texts differ."""
    given = fields.get(SIGNATURE, "").encode(errors="replace")
    matches = False
    for content in _contents(fields, body):
        for key in keys:
            matches |= hmac.compare_digest(key.sign(content).encode(), given)
        if matches:
            break
    return matches


def _contents(fields: Mapping[str, str], body: bytes) -> Iterator[bytes]:
    """Yield the contents that a client may have signed: all fields, then without one or both of these kinds."""
    yield signed_content(fields, body)
    if len(body) > _SHORT_BODY_BYTES:
        return
    zones = _ZONES.intersection(fields)
    key_query = _KEY_QUERY.intersection(fields)
    for without in {zones, key_query, zones | key_query} - {frozenset()}:
        yield signed_content(fields, body, without)
