"""Ways to sign in besides name and password: a reverse proxy's header, and OpenID Connect. Both are off by default.

Their settings are keys of [console] in a configuration file, or variables ROCKETBOX_CONSOLE_...; secrets stand in files
of their own.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROLES = ("viewer", "operator", "admin")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class ProxySignIn:
    """header: has the user's name. trusted: the proxies' addresses; from others the header is ignored. create_role:
    role of users who sign in for the first time; "" if only existing users may sign in."""

    header: str
    trusted: tuple[Network, ...]
    create_role: str = ""

    def trusts(self, address: str) -> bool:
        """True if a peer's address is one of the trusted proxies'."""
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
            parsed = parsed.ipv4_mapped
        return any(parsed in network for network in self.trusted)


@dataclass(frozen=True, slots=True)
class OidcSignIn:
    """A provider. roles: group of its users -> role here. default_role: of users in none of the groups; "" refuses
    them. domains: if given, a user's mail address has to be verified, and in one of these."""

    issuer: str
    client_id: str
    secret_file: Path | None = None
    label: str = "Single sign-on"
    scopes: str = "openid profile email"
    name_claim: str = "preferred_username"
    groups_claim: str = "groups"
    roles: tuple[tuple[str, str], ...] = ()
    default_role: str = ""
    domains: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SignInOptions:
    """Ways to sign in besides name and password; None: off."""

    proxy: ProxySignIn | None = None
    oidc: OidcSignIn | None = None


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be text, not {value!r}")
    return value.strip()


def _words(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"must be a list, not {value!r}")
    return tuple(part.strip() for part in parts if part.strip())


def _header(value: Any) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", text := _text(value)):
        raise ValueError(f"must be the name of a header, without underscores, not {value!r}")
    return text.lower()


def _networks(value: Any) -> tuple[Network, ...]:
    try:
        found = tuple(ipaddress.ip_network(part) for part in _words(value))
    except ValueError as error:
        raise ValueError(f"must be addresses or networks like 127.0.0.1, 10.0.0.0/8: {error}") from None
    if any(network.prefixlen == 0 for network in found):
        raise ValueError("must not be every address there is: whoever sends the header would be let in")
    return found


def _role(value: Any) -> str:
    if value not in ROLES:
        raise ValueError(f"must be one of {', '.join(ROLES)}, not {value!r}")
    return str(value)


def _roles(value: Any) -> tuple[tuple[str, str], ...]:
    pairs = value.items() if isinstance(value, dict) else [part.rpartition("=")[::2] for part in _words(value)]
    return tuple((str(group).strip(), _role(str(role).strip())) for group, role in pairs)


def _issuer(value: Any) -> str:
    text = _text(value)
    parts = urlsplit(text)
    local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme not in ("https", "http") or (parts.scheme == "http" and not local) or not parts.hostname:
        raise ValueError(f"must begin with https:// (http:// on this machine only), not {value!r}")
    if parts.query or parts.fragment:
        raise ValueError(f"must have no query and no fragment, not {value!r}")
    return text


def _scopes(value: Any) -> str:
    text = " ".join(_text(value).split())
    if "openid" not in text.split():
        raise ValueError(f"must contain openid, not {value!r}")
    return text


def _path(value: Any) -> Path:
    return Path(_text(value))


#: Key of [console] -> parser of its value, which raises ValueError.
KEYS: dict[str, Callable[[Any], Any]] = {
    "proxyUserHeader": _header,
    "proxyTrustedAddresses": _networks,
    "proxyCreateRole": _role,
    "oidcIssuer": _issuer,
    "oidcClientId": _text,
    "oidcClientSecretFile": _path,
    "oidcLabel": _text,
    "oidcScopes": _scopes,
    "oidcNameClaim": _text,
    "oidcGroupsClaim": _text,
    "oidcRoles": _roles,
    "oidcDefaultRole": _role,
    "oidcAllowedDomains": _words,
}
_OIDC = {
    "oidcIssuer": "issuer", "oidcClientId": "client_id", "oidcClientSecretFile": "secret_file", "oidcLabel": "label",
    "oidcScopes": "scopes", "oidcNameClaim": "name_claim", "oidcGroupsClaim": "groups_claim", "oidcRoles": "roles",
    "oidcDefaultRole": "default_role", "oidcAllowedDomains": "domains",
}  # fmt: skip


def of_keys(values: dict[str, Any], public_url: str | None) -> SignInOptions:
    """Return the ways to sign in that these values, parsed by KEYS, turn on. Raises ValueError, a sentence, if they are
    incomplete."""
    proxy = oidc = None
    if any(key.startswith("proxy") for key in values):
        if "proxyUserHeader" not in values or not values.get("proxyTrustedAddresses"):
            raise ValueError("Signing in by a proxy's header needs both proxyUserHeader and proxyTrustedAddresses.")
        proxy = ProxySignIn(
            values["proxyUserHeader"], values["proxyTrustedAddresses"], values.get("proxyCreateRole", "")
        )
    if any(key.startswith("oidc") for key in values):
        if "oidcIssuer" not in values or "oidcClientId" not in values:
            raise ValueError("OpenID Connect needs both oidcIssuer and oidcClientId.")
        if public_url is None:
            raise ValueError("OpenID Connect needs --public-url: the provider sends browsers back to that address.")
        oidc = OidcSignIn(**{_OIDC[key]: value for key, value in values.items() if key in _OIDC})
    return SignInOptions(proxy, oidc)
