"""Users of the wire and their permissions: DATA/rocketbox/access.journal, one line a change, with the whole account.

    <crc> {"name":"orders","secrets":["..."],"enabled":true,"custom":[{"resource":"Topic:orders","actions":["Pub"]}]}
    <crc> {"name":"orders","gone":true}

A line is synced before the change takes effect and before its request is answered. A torn last line was never answered
and is cut. Any other damage prevents the start: the damaged line may have been one that took a right away.

The journal holds secrets in clear text, because a signature is checked with the secret itself; the file is 0600 in a
directory of 0700. Secrets are in no answer, no log line and no audit entry.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ..config_journal import JournalCalls
from ..crc_lines import line_of, text_of
from ..errors import RefusedRequest, StartError
from ..journal_file import JournalFile
from ..protocol.codes import ResponseCode
from .policies import MOST_ENTRIES, Entry, Policies
from .signature import SigningKey

#: Names that RocketBox takes. Apache takes any name that is not blank.
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}\Z", re.ASCII)
MOST_USERS = 10_000
SHORTEST_SECRET, LONGEST_SECRET = 8, 256
#: Secrets in examples: on Apache's pages, in its shipped files, and in RocketBox's.
_EXAMPLES = frozenset(("12345678", "rocketmq", "rocketmq2", "rocketmq12", "secretkey", "password", "rocketbox"))
MOST_BYTES = 64 << 20
#: The file is rewritten when it has doubled and grown by this much more.
_ANEW_BYTES = 256 << 10


class Account(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A user, and its entries. secrets: one, or two while one is replaced by the other."""

    name: str
    secrets: tuple[str, ...] = ()
    is_super: bool = msgspec.field(name="super", default=False)
    is_enabled: bool = msgspec.field(name="enabled", default=True)
    custom: tuple[Entry, ...] = ()
    default: tuple[Entry, ...] = ()
    gone: bool = False


class User:
    """An account with its keys and policies prepared. Frozen."""

    __slots__ = ("account", "keys", "policies")

    def __init__(self, account: Account) -> None:
        self.account = account
        self.keys = tuple(map(SigningKey, account.secrets))
        self.policies = Policies(account.custom, account.default)


def check_name(name: str) -> None:
    """Refuse with 16 a name that a user cannot have."""
    if not _NAME.match(name):
        raise _refused("a user's name has 1 to 64 letters, digits and . _ -")


def check_secret(secret: str) -> None:
    """Refuse with 16 a secret that a user cannot have; the text does not show the secret."""
    if not SHORTEST_SECRET <= len(secret) <= LONGEST_SECRET or not secret.isprintable() or secret != secret.strip():
        raise _refused(f"a secret has {SHORTEST_SECRET} to {LONGEST_SECRET} printable characters, no blank at its ends")
    if secret.lower() in _EXAMPLES:
        raise _refused("this secret stands in public examples")


class Book:
    """Read by any thread; changed by any but remoting-io, one at a time."""

    def __init__(self, path: Path, calls: JournalCalls | None = None) -> None:
        """Open and read the journal. Raises OSError, and StartError for a file that is damaged."""
        # Constant after construction.
        self._path = path
        #: Called with the name of a user who may do less than before; any thread.
        self.on_less: Callable[[str], None] = lambda name: None
        # Held by whoever writes. Owns the file.
        self._writing = threading.Lock()
        # Replaced one by one by whoever holds _writing.
        self._users: dict[str, User] = {}
        self._anew_at = _ANEW_BYTES
        #: Grows with every change.
        self.generation = 0
        self._file = JournalFile("users", path, MOST_BYTES, self._content, calls)
        self._file.load(self._take)

    def _take(self, raw: bytes) -> bool:
        text = text_of(raw)
        try:
            account = msgspec.json.decode(text or b"", type=Account)
            user = User(account)
        except ValueError:  # msgspec's, and those of a resource or a network
            raise StartError(
                f"{self._path} is damaged: who may do what cannot be told. Put a backup of it in its place, or move it "
                "away and make the users again."
            ) from None
        if account.gone:
            self._users.pop(account.name, None)
        else:
            self._users[account.name] = user
        return True

    def _content(self) -> bytes:
        return b"".join(_encode(user.account) for user in self._users.values())

    # --- reading

    def get(self, name: str) -> User | None:
        return self._users.get(name)

    def __iter__(self) -> Iterator[Account]:
        """Iterate over all accounts, by name."""
        users = list(self._users.values())
        return iter(sorted((user.account for user in users), key=lambda account: account.name))

    def has_super(self, but: str = "") -> bool:
        """True if there is an enabled Super user, other than `but`."""
        return any(account.is_super and account.is_enabled and account.name != but for account in self)

    # --- changing

    def create(self, name: str, secret: str, is_super: bool = False, is_enabled: bool = True) -> None:
        """Make a new user. Refuses with 16; raises OSError."""
        check_name(name)
        check_secret(secret)
        with self._writing:
            if name in self._users:
                raise _refused("The user is existed")  # Apache's words
            if len(self._users) >= MOST_USERS:
                raise _refused(f"there are {MOST_USERS} users, which is the most")
            self._replace(Account(name, (secret,), is_super, is_enabled))

    def update(
        self,
        name: str,
        *,
        secret: str | None = None,
        is_super: bool | None = None,
        is_enabled: bool | None = None,
    ) -> None:
        """Change the given settings of a user. A new secret replaces all others. Refuses with 16; raises OSError."""
        if secret is not None:
            check_secret(secret)
        with self._writing:
            account = self._known(name)
            changed = msgspec.structs.replace(
                account,
                secrets=account.secrets if secret is None else (secret,),
                is_super=account.is_super if is_super is None else is_super,
                is_enabled=account.is_enabled if is_enabled is None else is_enabled,
            )
            if not (changed.is_super and changed.is_enabled):
                self._keep_a_super(account)
            self._replace(changed)
        if secret is not None or is_super is False or is_enabled is False:
            self.on_less(name)

    def delete(self, name: str) -> None:
        """Delete a user and its entries, if it exists. Refuses with 16; raises OSError."""
        with self._writing:
            user = self._users.get(name)
            if user is None:
                return
            self._keep_a_super(user.account)
            self._replace(Account(name, gone=True))
        self.on_less(name)

    def set_entries(self, name: str, custom: tuple[Entry, ...], default: tuple[Entry, ...]) -> None:
        """Replace all entries of a user. Refuses with 16; raises OSError."""
        if len(custom) + len(default) > MOST_ENTRIES:
            raise _refused(f"a user has at most {MOST_ENTRIES} entries")
        with self._writing:
            account = self._known(name)
            self._replace(msgspec.structs.replace(account, custom=custom, default=default))
        self.on_less(name)

    def _known(self, name: str) -> Account:
        user = self._users.get(name)
        if user is None:
            raise _refused("The user is not exist")  # Apache's words
        return user.account

    def _keep_a_super(self, account: Account) -> None:
        if account.is_super and account.is_enabled and not self.has_super(but=account.name):
            raise _refused("this is the last Super user who is enabled: nobody could change anything any more")

    def _replace(self, account: Account) -> None:
        """Write an account down, then let it take effect. Raises OSError; nothing has changed then."""
        user = User(account)
        anew = self._file.size > self._anew_at
        self._file.append(_encode(account), anew=anew)
        if account.gone:
            del self._users[account.name]
        else:
            self._users[account.name] = user
        self.generation += 1
        if anew:
            self._anew_at = 2 * self._file.size + _ANEW_BYTES

    def close(self) -> None:
        """Close the journal: changes are refused from now on."""
        self._file.close()


def _encode(account: Account) -> bytes:
    return line_of(msgspec.json.encode(account))


def _refused(text: str) -> RefusedRequest:
    return RefusedRequest(ResponseCode.NO_PERMISSION, text)
