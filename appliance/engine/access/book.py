"""Users of the wire and their permissions: DATA/rocketbox/access.journal, one line a change, with the whole account.

    <crc> {"name":"orders","secrets":["..."],"enabled":true,"custom":[{"resource":"Topic:orders","actions":["Pub"]}]}
    <crc> {"name":"orders","sealed":"...","enabled":true}
    <crc> {"name":"orders","gone":true}

Fields that this version does not know are kept and not heeded (`unknown_fields.py`); the log names them.

A line is synced before the change takes effect and before its request is answered. A torn last line was never answered
and is cut. Any other damage prevents the start: the damaged line may have been one that took a right away.

A signature is checked with the secret itself, so the journal holds secrets: sealed with `accessKeyFile` (`sealing.py`),
else in clear text. The file is 0600 in a directory of 0700. Secrets are in no answer, no log line and no audit entry.
"""

from __future__ import annotations

import itertools
import logging
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..crc_lines import line_of, text_of
from ..disk import Disk
from ..errors import RefusedRequest, StartError
from ..hotpath import TableState
from ..journal_file import JournalFile
from ..protocol.codes import ResponseCode
from ..protocol.signature import SigningKey
from ..wire_gate import plain
from .policies import ALL, ALLOW, DENY, MOST_ENTRIES, Entry, Policies
from .quotas import NAMES, Quotas, wrong_quota
from .sealing import OPTION, Sealer
from .unknown_fields import Inner, names_of, read
from .unknown_fields import text_of as json_of

logger = logging.getLogger(__name__)

#: Names that RocketBox takes. Apache takes any name that is not blank. Names of only dots would change an address.
_NAME = re.compile(r"(?=[._-]*[A-Za-z0-9])[A-Za-z0-9._-]{1,64}\Z", re.ASCII)
MOST_USERS = 10_000
SHORTEST_SECRET, LONGEST_SECRET = 8, 256
#: Secrets in examples: on Apache's pages, in its shipped files, and in RocketBox's.
_EXAMPLES = frozenset(("12345678", "rocketmq", "rocketmq2", "rocketmq12", "secretkey", "password", "rocketbox"))
MOST_BYTES = 64 << 20
#: The file is rewritten when it has doubled and grown by this much more.
_ANEW_BYTES = 256 << 10
#: Most names in one line of the log about unknown fields.
_MOST_TOLD = 20


class Account(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """A user, and its entries. secrets: one, or two while one is replaced by the other. requires_tls: its requests in
    clear are refused. unknown: see `unknown_fields.py`."""

    name: str
    secrets: tuple[str, ...] = ()
    is_super: bool = msgspec.field(name="super", default=False)
    is_enabled: bool = msgspec.field(name="enabled", default=True)
    custom: tuple[Entry, ...] = ()
    default: tuple[Entry, ...] = ()
    gone: bool = False
    quotas: Quotas = Quotas()
    requires_tls: bool = msgspec.field(name="requireTls", default=False)
    unknown: str = ""


class _Line(Account, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """An account in the journal. sealed: JSON of its secrets, sealed; empty if they are in clear text."""

    sealed: str = ""


_numbers = itertools.count()


class User:
    """An account with its keys and policies prepared. Frozen."""

    __slots__ = ("account", "keys", "number", "policies", "signer")

    def __init__(self, account: Account) -> None:
        """Raises ValueError for an account that no journal may hold."""
        if any(wrong_quota(quota, number) for quota, number in account.quotas.items()):
            raise ValueError(f"a quota of {account.name} that cannot be")
        self.account = account
        #: Another one for each state of each user.
        self.number = next(_numbers)
        self.keys = tuple(map(SigningKey, account.secrets))
        #: The keys for the compiled twin, made when they are first used.
        self.signer: Any = None
        self.policies = Policies(account.custom, account.default)


class BookRefusal(RefusedRequest):
    """A change that the book does not make, answered with 16 (NO_PERMISSION) as a rule. remark: for tools of the wire.
    key, args: of the sentence for people, in `window/sentences.py`."""

    def __init__(self, key: str, remark: str, code: int = ResponseCode.NO_PERMISSION, **args: object) -> None:
        super().__init__(code, remark)
        self.key = key
        self.args_shown = args


def check_name(name: str) -> None:
    """Refuse a name that a user cannot have."""
    if not _NAME.match(name):
        raise BookRefusal("wire_user_name", "a user's name has 1 to 64 letters, digits and . _ -")


def check_secret(secret: str) -> None:
    """Refuse a secret that a user cannot have; the text does not show the secret."""
    if not SHORTEST_SECRET <= len(secret) <= LONGEST_SECRET or not secret.isprintable() or secret != secret.strip():
        raise BookRefusal(
            "bad_secret",
            f"a secret has {SHORTEST_SECRET} to {LONGEST_SECRET} printable characters, no blank at its ends",
            shortest=SHORTEST_SECRET,
            longest=LONGEST_SECRET,
        )
    if secret.lower() in _EXAMPLES:
        raise BookRefusal("example_secret", "this secret stands in public examples")


class Changes(msgspec.Struct):
    """Accounts that have changed, for a copy of the book. begin: the first of all accounts; those that are in none of
    the answers up to the last one do not exist. place: where the next answer begins. more: that one is not empty."""

    begin: bool
    accounts: list[Account]
    place: str
    more: bool


#: See `unknown_fields.py`.
_INNER: Inner = {"accounts": Account, "custom": Entry, "default": Entry, "quotas": Quotas}


def encoded(changes: Changes) -> bytes:
    """Return changes as another broker reads them."""
    return json_of(changes, _INNER)


def decoded(data: bytes) -> Changes:
    """Return the changes of another broker. Raises ValueError."""
    return read(data, Changes, _INNER)


class Book(TableState):
    """Read by any thread; changed by any but remoting-io, one at a time."""

    def __init__(self, path: Path, disk: Disk | None = None, sealer: Sealer | None = None) -> None:
        """Open and read the journal. sealer: seals the secrets in it. Raises OSError, and StartError for a file that is
        damaged, or sealed with another key."""
        # Constant after construction.
        self._path = path
        self._sealer = sealer
        # True if the journal has secrets that the sealer's newest key has not sealed. Of the start alone.
        self._is_unsealed = False
        #: Called with the name of a user who may do less than before, and of any that changed; any thread.
        self.on_less: Callable[[str], None] = lambda name: None
        self.on_change: Callable[[str], None] = lambda name: None
        #: Called before a change is written, under _writing. Returns what to call after it, which may wait for other
        #: brokers. Raises BookRefusal where users are changed at another broker; both may.
        self.begin_change: Callable[[], Callable[[], None]] = lambda: lambda: None
        # Held by whoever writes. Owns the file.
        self._writing = threading.Lock()
        # Replaced one by one by whoever holds _writing.
        self._users: dict[str, User] = {}
        self._anew_at = _ANEW_BYTES
        #: Grows with every change; the last number in _changed.
        self.generation = 0
        # Name -> generation of its last change, in this order; also of users that are gone. _content: names this
        # numbering. Guarded by _writing.
        self._changed: dict[str, int] = {}
        self._content_id = secrets.token_hex(8)
        self._file = JournalFile("users", path, MOST_BYTES, self._content, disk)
        try:
            self._file.load(self._take)
            self._tell_unknown(user.account for user in self._users.values())
            if sealer is not None and self._is_unsealed:
                self._file.begin_anew()
        except BaseException:
            self._file.close()
            raise

    def _take(self, raw: bytes) -> bool:
        text = text_of(raw)
        try:
            user = User(self._opened(read(text or b"", _Line, _INNER)))
        except ValueError:  # msgspec's, and those of a resource, a network or a quota
            raise StartError(
                f"{self._path} is damaged: who may do what cannot be told. Put a backup of it in its place, or move it "
                "away and make the users again."
            ) from None
        self._keep(user)
        return True

    def _opened(self, line: _Line) -> Account:
        """Return the account of a line. Raises ValueError, and StartError for secrets that cannot be unsealed."""
        account = Account(**{name: getattr(line, name) for name in Account.__struct_fields__})
        if not line.sealed:
            self._is_unsealed |= bool(line.secrets)
            return account
        if self._sealer is None:
            raise StartError(
                f"{self._path} is sealed: it takes {OPTION}, and the package cryptography, which the console has."
            )
        try:
            text, is_newest = self._sealer.unseal(line.name, line.sealed)
        except ValueError as error:
            raise StartError(f"{self._path} cannot be unsealed with {OPTION}: {error}.") from None
        self._is_unsealed |= not is_newest
        return msgspec.structs.replace(account, secrets=msgspec.json.decode(text, type=tuple[str, ...]))

    def _line(self, account: Account) -> bytes:
        """Return an account's line of the journal."""
        if self._sealer is None or not account.secrets:
            return _encode(account)
        sealed = self._sealer.seal(account.name, msgspec.json.encode(account.secrets))
        fields = {name: getattr(account, name) for name in Account.__struct_fields__}
        return line_of(json_of(_Line(**fields | {"secrets": (), "sealed": sealed}), _INNER))

    def _tell_unknown(self, accounts: Iterable[Account]) -> None:
        """Log what a newer version says of users and this one does not heed."""
        found = {account.name: names for account in accounts if (names := names_of(account, _INNER))}
        if found:
            logger.warning(
                "access: a newer version says things of %d users that this one does not heed: %s of %s",
                len(found),
                [plain(name, 64) for name in sorted(set().union(*found.values()))[:_MOST_TOLD]],
                sorted(found)[:_MOST_TOLD],
            )

    def _keep(self, user: User) -> None:
        """Let an account that was written down take effect."""
        name = user.account.name
        if user.account.gone:
            self._users.pop(name, None)
        else:
            self._users[name] = user
        self.generation += 1
        self._changed.pop(name, None)
        self._changed[name] = self.generation
        if len(self._changed) > 2 * MOST_USERS:  # most are gone: whoever copies begins anew
            left = {*self._users, name}  # this change has a number that copies can reach, also if it is a deletion
            self._changed = {known: number for known, number in self._changed.items() if known in left}
            self._content_id = secrets.token_hex(8)

    def _content(self) -> bytes:
        return b"".join(self._line(user.account) for user in self._users.values())

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

    def change(
        self, name: str, change: Callable[[Account | None], Account], *, dry_run: bool = False
    ) -> tuple[Account | None, Account]:
        """Change a user; return it before (None if there was none) and after, durable. change: makes the new account of
        the present one; called once, with no other change in between, and may refuse. dry_run: nothing changes.

        Raises BookRefusal, and OSError when nothing was changed.
        """
        with self._writing:
            user = self._users.get(name)
            before = None if user is None else user.account
            after = change(before)
            is_same = after == before or (before is None and after.gone)
            if is_same:
                end_change = self._nothing_changed(dry_run)
            else:
                end_change = self.begin_change()
                self._check(before, after)
                if dry_run:
                    return before, after
                self._write([User(after)])
        if is_same:
            end_change()
            return before, after
        self.on_change(name)
        if before is not None and may_less(before, after):
            self.on_less(name)
        end_change()
        return before, after

    def _nothing_changed(self, dry_run: bool) -> Callable[[], None]:
        """Return what to call where an account is there already: others may lack it, if an earlier change could not be
        confirmed. A copy has nothing to wait for."""
        try:
            return (lambda: None) if dry_run else self.begin_change()
        except BookRefusal:
            return lambda: None

    def add(self, accounts: Iterable[Account], *, dry_run: bool = False) -> list[str]:
        """Make new users, all or none, durable; those whose name is taken stay as they are. Return the names of those
        that are made. dry_run: nothing changes. Raises BookRefusal, OSError."""
        with self._writing:
            made = [account for account in accounts if account.name not in self._users]
            names = [account.name for account in made]
            end_change = self.begin_change() if made else self._nothing_changed(dry_run)
            if len(self._users) + len(made) > MOST_USERS:
                raise BookRefusal("wire_users_most", f"there are {MOST_USERS} users at most", count=MOST_USERS)
            news = [User(account) for account in made]
            for user in news:
                self._check(None, user.account)
            if dry_run:
                return names
            if news:
                self._write(news)
        for name in names:
            self.on_change(name)
        end_change()
        return names

    def _check(self, before: Account | None, after: Account) -> None:
        if before is None and not after.gone and len(self._users) >= MOST_USERS:
            raise BookRefusal("wire_users_most", f"there are {MOST_USERS} users, which is the most", count=MOST_USERS)
        for quota, number in after.quotas.items():
            if wrong_quota(quota, number):
                raise BookRefusal(
                    "wrong_quota", f"{quota} is a number from 0 to {NAMES[quota]}", quota=quota, most=NAMES[quota]
                )
        if len(after.custom) + len(after.default) > MOST_ENTRIES:
            raise BookRefusal("entries_most", f"a user has at most {MOST_ENTRIES} entries", count=MOST_ENTRIES)
        if (
            before is not None
            and _administers(before)
            and not _administers(after)
            and not self.has_super(but=before.name)
        ):
            raise BookRefusal(
                "last_super", "this is the last Super user who is enabled: nobody could change anything any more"
            )

    def changed_elsewhere(self) -> BookRefusal | None:
        """Return the refusal of a change if users are copies of another broker's, else None."""
        try:
            self.begin_change()
        except BookRefusal as refusal:
            return refusal
        return None

    def create(self, name: str, secret: str, is_super: bool = False, is_enabled: bool = True) -> None:
        """Make a new user. Raises BookRefusal, OSError. Where users are copies, one that has come just like this is no
        error: `mqadmin createUser -c` has each broker of a cluster make it, the followers after their leader."""
        made = creation(name, secret, is_super, is_enabled)

        def unless_copied(account: Account | None) -> Account:
            if account is not None and account == made(None) and self.changed_elsewhere() is not None:
                return account
            return made(account)

        self.change(name, unless_copied)

    def update(
        self,
        name: str,
        *,
        secret: str | None = None,
        is_super: bool | None = None,
        is_enabled: bool | None = None,
    ) -> None:
        """Change the given settings of a user. A new secret replaces all others. Raises BookRefusal, OSError."""
        if secret is not None:
            check_secret(secret)

        def updated(account: Account) -> Account:
            return msgspec.structs.replace(
                account,
                secrets=account.secrets if secret is None else (secret,),
                is_super=account.is_super if is_super is None else is_super,
                is_enabled=account.is_enabled if is_enabled is None else is_enabled,
            )

        self.change(name, of_known(name, updated))

    def delete(self, name: str) -> None:
        """Delete a user and its entries, if it exists. Raises BookRefusal, OSError."""
        self.change(name, lambda account: Account(name, gone=True))

    def set_entries(self, name: str, custom: tuple[Entry, ...], default: tuple[Entry, ...]) -> None:
        """Replace all entries of a user. Raises BookRefusal, OSError."""
        self.change(
            name, of_known(name, lambda account: msgspec.structs.replace(account, custom=custom, default=default))
        )

    def _write(self, users: list[User]) -> None:
        """Write accounts down, then let them take effect. Raises OSError; nothing has changed then."""
        anew = self._file.size > self._anew_at
        lines = b"".join(self._line(user.account) for user in users)
        self._file.append(lines, anew=anew, at_once=len(users) > 1)
        for user in users:
            self._keep(user)
        if anew:
            self._anew_at = 2 * self._file.size + _ANEW_BYTES

    # --- copying

    def since(self, place: str, most_bytes: int) -> Changes:
        """Return accounts that have changed since `place`, as an earlier answer has it; all accounts if this book did
        not give it. Ends behind the account with which it has most_bytes. Any thread that may wait for the disk."""
        with self._writing:
            seen = self.number_of(place)
            begin = seen < 0
            names: list[str] = []
            for name, number in reversed(self._changed.items()):
                if number <= seen:
                    break
                names.append(name)
            accounts: list[Account] = []
            size = 0
            while names and size < most_bytes:
                name = names.pop()
                user = self._users.get(name)
                account = Account(name, gone=True) if user is None else user.account
                seen = self._changed[name]
                size += len(_encode(account))
                accounts.append(account)
            return Changes(begin, accounts, f"{self._content_id}:{max(seen, 0)}", bool(names))

    def number_of(self, place: str) -> int:
        """Return the change up to which a copy at this place has all; -1 if this book did not give it. Any thread."""
        content, _, at = place.partition(":")
        return int(at) if content == self._content_id and at.isdecimal() and len(at) <= 18 else -1

    def take_copies(self, accounts: Iterable[Account], *, are_all: bool = False) -> list[str]:
        """Take accounts over as another broker has them, durably; return the names of those that changed here.
        are_all: other users are gone. Raises OSError and ValueError, with nothing changed."""
        less = []
        with self._writing:
            given = {account.name: account for account in accounts}
            if are_all:
                given |= {name: Account(name, gone=True) for name in self._users if name not in given}
            news = []
            for name, account in given.items():
                here = self._users.get(name)
                before = None if here is None else here.account
                if account == before or (before is None and account.gone):
                    continue
                news.append(User(account))
                if before is not None and may_less(before, account):
                    less.append(name)
            if news:
                self._write(news)
        self._tell_unknown(user.account for user in news)
        names = [user.account.name for user in news]
        for name in names:
            self.on_change(name)
        for name in less:
            self.on_less(name)
        return names

    def close(self) -> None:
        """Close the journal: changes are refused from now on."""
        self._file.close()


def _encode(account: Account) -> bytes:
    return line_of(json_of(account, _INNER))


def creation(
    name: str, secret: str, is_super: bool = False, is_enabled: bool = True
) -> Callable[[Account | None], Account]:
    """Return the change that makes a new user."""
    check_name(name)
    check_secret(secret)

    def made(account: Account | None) -> Account:
        if account is not None:
            raise BookRefusal("wire_user_exists", "The user is existed", name=name)  # Apache's words
        return Account(name, (secret,), is_super, is_enabled)

    return made


def of_known(
    name: str, change: Callable[[Account], Account], remark: str = "The user is not exist"
) -> Callable[[Account | None], Account]:
    """Return a change that refuses if there is no such user. remark: what tools of the wire get then."""

    def changed(account: Account | None) -> Account:
        if account is None:
            raise BookRefusal("wire_user_unknown", remark, name=name)
        return change(account)

    return changed


def may_less(before: Account, after: Account) -> bool:
    """True if the change may have taken a right or a secret away."""
    return (
        after.gone
        or not set(before.secrets) <= set(after.secrets)
        or before.is_super > after.is_super
        or before.is_enabled > after.is_enabled
        or before.requires_tls < after.requires_tls
        or _takes(before.custom, after.custom)
        or _takes(before.default, after.default)
    )


def _takes(before: tuple[Entry, ...], after: tuple[Entry, ...]) -> bool:
    """True if an entry that allowed something is gone, unless one in its place allows all of that, or one that denies
    has come. Other entries only give."""
    gone, new = set(before) - set(after), set(after) - set(before)
    if any(entry.decision == DENY for entry in new):
        return True
    in_place = {entry.resource: entry for entry in new}
    return any(entry.decision == ALLOW and not _allows_all(in_place.get(entry.resource), entry) for entry in gone)


def _allows_all(wider: Entry | None, entry: Entry) -> bool:
    """True if an entry of the same resource allows all that another one does."""
    return (
        wider is not None
        and wider.unknown == entry.unknown
        and (ALL in wider.actions or set(entry.actions) <= set(wider.actions))
        and (not wider.source_ips or (bool(entry.source_ips) and set(entry.source_ips) <= set(wider.source_ips)))
    )


def _administers(account: Account) -> bool:
    return account.is_super and account.is_enabled and not account.gone
