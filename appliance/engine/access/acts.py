"""What people and tools change of a user, and what they see of it: never a secret. PURE but for new secrets.

One line in `USER_ACTS` is what an act does; `BUTTONS` in `console/users/wire_user_views.py` has its words for page and
API, `console/acts/users.py` its command.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from ..named_tuple import NamedTuple
from .book import Account, BookRefusal
from .policies import CUSTOM, DEFAULT, Entry, with_entry

#: Bytes of a secret that is made here: 160 bits, as hexadecimal text, which no shell and no form changes.
_SECRET_BYTES = 20
#: Of this process, so that a mark cannot serve for trying secrets.
_MARK_KEY = secrets.token_bytes(16)


def new_secret() -> str:
    return secrets.token_hex(_SECRET_BYTES)


class UserAct(NamedTuple):
    """An act that needs nothing but a user's name. makes_secret: the first secret of the account is new then."""

    change: Callable[[Account], Account]
    makes_secret: bool = False


def with_secret(account: Account, secret: str) -> Account:
    """Add a secret. The present one stays good, so that clients can be changed one by one."""
    if len(account.secrets) > 1:
        raise BookRefusal("two_secrets", "this user has two secrets: end the old one first", name=account.name)
    if secret in account.secrets:
        raise BookRefusal("same_secret", "this is the secret that the user has")
    return replace(account, secrets=(secret, *account.secrets))


def _rotated(account: Account) -> Account:
    return with_secret(account, new_secret())


def _without_old_secret(account: Account) -> Account:
    if len(account.secrets) < 2:
        raise BookRefusal("one_secret", "this user has one secret, which stays", name=account.name)
    return replace(account, secrets=account.secrets[:1])


USER_ACTS = {
    "enable": UserAct(lambda account: replace(account, is_enabled=True)),
    "disable": UserAct(lambda account: replace(account, is_enabled=False)),
    "make-super": UserAct(lambda account: replace(account, is_super=True)),
    "make-normal": UserAct(lambda account: replace(account, is_super=False)),
    "require-tls": UserAct(lambda account: replace(account, requires_tls=True)),
    "allow-clear": UserAct(lambda account: replace(account, requires_tls=False)),
    "rotate": UserAct(_rotated, makes_secret=True),
    "end-old-secret": UserAct(_without_old_secret),
}


def entry_put(account: Account, policy_type: str, entry: Entry) -> Account:
    """Return the account with an entry more; it takes the place of one of the same resource."""
    if policy_type == CUSTOM:
        return replace(account, custom=with_entry(account.custom, entry))
    return replace(account, default=with_entry(account.default, entry))


def entry_removed(account: Account, policy_type: str, resource: str) -> Account:
    """Return the account without the entry of a resource. Refuses if there is none."""
    custom, default = account.custom, account.default
    if policy_type == CUSTOM:
        custom = tuple(entry for entry in custom if entry.resource != resource)
    else:
        default = tuple(entry for entry in default if entry.resource != resource)
    if (custom, default) == (account.custom, account.default):
        raise BookRefusal("no_entry", "The acl is not exist.", name=account.name, resource=resource)
    return replace(account, custom=custom, default=default)


def with_quotas(account: Account, changes: Mapping[str, int | None]) -> Account:
    """Return the account with some other quotas. changes: name in `quotas.NAMES` -> number; None: the default counts.
    The book refuses numbers that cannot be."""
    return replace(account, quotas=replace(account.quotas, **changes))


# --- for the audit log and for previews


def user_states(account: Account) -> dict[str, str]:
    """Return what an account is, field -> text."""
    states = {
        "userType": "Super" if account.is_super else "Normal",
        "userStatus": "enable" if account.is_enabled else "disable",
        "secrets": str(len(account.secrets)),
    }
    if account.requires_tls:
        states["requireTls"] = "true"
    return states | {f"quota {name}": str(number) for name, number in account.quotas.items() if number is not None}


def secrets_mark(account: Account) -> str:
    """Return a text that changes with the secrets and says nothing else about them; another one in each process."""
    return hashlib.blake2b(repr(account.secrets).encode(), digest_size=8, key=_MARK_KEY).hexdigest()


def entry_states(account: Account) -> dict[str, str]:
    """Return an account's entries, resource -> text; the names of default ones say so."""
    own = {entry.resource: _text_of(entry) for entry in account.custom}
    return own | {f"{DEFAULT} {entry.resource}": _text_of(entry) for entry in account.default}


def _text_of(entry: Entry) -> str:
    sources = f" from {', '.join(entry.source_ips)}" if entry.source_ips else ""
    return f"{entry.decision} {', '.join(entry.actions)}{sources}"
