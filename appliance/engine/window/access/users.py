"""Users of the wire and their entries, for the window. Imported only while access control is on.

The rules of a change are the book's (`access/book.py`), for tools of the wire and for people alike.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TypedDict, TypeVar, Unpack

from ...access.acts import (
    USER_ACTS,
    entry_put,
    entry_removed,
    entry_states,
    new_secret,
    secrets_mark,
    user_states,
    with_quotas,
    with_secret,
)
from ...access.apache_accounts import Read, accounts_of
from ...access.apache_order import ApachePolicies, Differing, differences
from ...access.asked import Asked, of_group, of_topic
from ...access.book import Account, Book, BookRefusal, User, check_secret, creation, may_less, of_known
from ...access.brake import Brake
from ...access.last_requests import LastRequest, LastRequests
from ...access.policies import (
    ACTIONS,
    ALL,
    CREATE,
    CUSTOM,
    DEFAULT,
    DELETE,
    GET,
    GROUP,
    POLICY_TYPES,
    PUB,
    SUB,
    TOPIC,
    UPDATE,
    Address,
    Entry,
    EntryError,
    How,
    Policies,
    Resource,
    Verdict,
    checked_entry,
    parse_resource,
    spelled_resource,
)
from ...access.quotas import NAMES, Quotas
from ...access.refusals import NO_TLS, NOT_PROVED, NOT_SUPER, Refusal
from ...config import REPORT
from ...errors import AdminError, Conflict, InvalidInput, NotFound, Unavailable
from ...protocol.codes import RequestCode
from ...protocol.message_id import decode_host
from ..sentences import Sentence, say
from ..snapshots import Difference, Page
from ..tables import page_of, sorted_by
from .snapshots import (
    AccessRow,
    ComparedRow,
    Comparison,
    Decision,
    EntryRow,
    ImportedUser,
    ImportReport,
    JudgedRow,
    Limited,
    QuotaRow,
    RefusalRow,
    RequestRow,
    WireUser,
    WireUserChange,
)

logger = logging.getLogger(__name__)
T = TypeVar("T")

#: Most requests that a note on an imported account names.
_MOST_TOLD = 10

_TYPES = {"Super": True, "Normal": False}
_KEYS: dict[str, Callable[[Account], object]] = {
    "name": lambda account: account.name,
    "type": lambda account: _type_of(account),
    "state": lambda account: account.is_enabled,
    "entries": lambda account: len(account.custom) + len(account.default),
}

_REFUSAL_KEYS: dict[str, Callable[[Refusal], object]] = {
    "user": lambda row: row.user,
    "resource": lambda row: row.resource,
    "count": lambda row: row.count,
    "last": lambda row: row.last_ms,
}
#: Code -> name of the request in upstream's source.
_NAMES = {code: name for name, code in vars(RequestCode).items() if not name.startswith("_")}
_ACCESS_KEYS: dict[str, Callable[[AccessRow], object]] = {
    "user": lambda row: row.user,
    "type": lambda row: row.user_type,
}
#: Of actions of which any one would do, the one that gives least comes first.
_LEAST_FIRST = (GET, PUB, SUB, UPDATE, CREATE, DELETE)


class Terms(TypedDict, total=False):
    """Terms of a change. revision: that of the user as it was shown; Conflict if it has another one by now. dry_run:
    nothing is changed. by: for the log."""

    revision: str | None
    dry_run: bool
    by: str


class WireUsers:
    """Any thread but remoting-io: a change waits for the disk."""

    def __init__(
        self,
        book: Book,
        mode: Callable[[], str],
        refusals: Callable[[], list[Refusal]],
        brake: Brake | None = None,
        defaults: Callable[[], Quotas] = Quotas,
        own_check: Callable[[], AbstractContextManager[dict[str, str]]] = lambda: nullcontext({}),
        claims: Callable[[], list[Refusal]] = list,
        last: LastRequests | None = None,
        in_clear: Callable[[], list[str]] = list,
        serves_tls: bool = True,
    ) -> None:
        """mode: returns "report" or "enforce". refusals: returns what was refused, or would have been. brake: None
        without quotas; in report mode its counts are of what would be held back. defaults: returns the quotas of users
        who have none of their own. own_check: gives the fields of requests of this process, which are no refusals of
        users. claims: returns what was asked lately in the names of users that do not exist. last: None where nobody
        asks what users did last. in_clear: returns the Super users who signed in clear from another machine lately.
        serves_tls: the ports take TLS."""
        # Constant after construction.
        self._book = book
        self._mode = mode
        self._refusals = refusals
        self._brake = brake
        self._defaults = defaults
        self.own_check = own_check
        self._claims = claims
        self._last = last
        self.in_clear = in_clear
        self._serves_tls = serves_tls

    # --- looking

    @property
    def mode(self) -> str:
        """ "report" or "enforce"."""
        return self._mode()

    def changed_elsewhere(self) -> Sentence | None:
        """Return where users are changed, if that is another broker: the users here are copies. None if it is here."""
        refusal = self._book.changed_elsewhere()
        return None if refusal is None else say(refusal.key, **refusal.args_shown)

    def page(self, q: str = "", sort: str = "name", page: int = 1, page_size: int = 50) -> Page:
        """Return a page of WireUser. q: part of the name, upper and lower case alike. sort: name, type, state, entries;
        "-" before it for the largest first. page_size: 1 to 500. InvalidInput for anything else."""
        part = q.casefold()
        found = sorted_by((account for account in self._book if part in account.name.casefold()), sort, _KEYS)
        last, in_clear = self._last_requests(), frozenset(self.in_clear())
        return page_of(found, page, page_size, lambda account: self._shown(account, last, in_clear))

    def who_may(self, resource: str, sort: str = "user", page: int = 1, page_size: int = 50) -> Page:
        """Return a page of AccessRow: the users who may do something on one topic, group or cluster, as "Topic:orders".
        sort: user, type. InvalidInput (resource)."""
        asked = _resource_of(resource)
        rows = []
        for account in self._book:
            user = self._book.get(account.name)
            if user is not None and account.is_enabled:
                rows.append(_access_row(user, asked))
        found = sorted_by((row for row in rows if row.actions or row.some), sort, _ACCESS_KEYS)
        return page_of(found, page, page_size)

    def refusals(self, q: str = "", sort: str = "-last", page: int = 1, page_size: int = 50) -> Page:
        """Return a page of RefusalRow: what was refused since the start, or in report mode would be, without what the
        entries allow by now. q: part of user or resource. sort: user, resource, count, last."""
        part = q.casefold()
        rows = (row for row in self._refusals() if part in row.user.casefold() or part in row.resource.casefold())
        found = sorted_by((row for row in rows if self._still_refused(row)), sort, _REFUSAL_KEYS)
        return page_of(found, page, page_size, _refusal)

    def _still_refused(self, row: Refusal) -> bool:
        if not row.user:
            return True
        user = self._book.get(row.user)
        if user is None:
            return False
        if row.reason == NOT_PROVED:
            return True
        if row.reason == NO_TLS:
            return user.account.requires_tls
        if row.reason == NOT_SUPER or user.account.is_super:
            return not user.account.is_super
        kind, _, name = row.resource.partition(":")
        address = ipaddress.ip_address(row.address)
        return not user.policies.decide(kind, name, frozenset(row.actions), address).is_allowed

    def one(self, name: str) -> WireUser:
        """Return one user. NotFound."""
        return self._shown(self._known(name), self._last_requests(), frozenset(self.in_clear()))

    def shut_out(self, name: str) -> Sentence | None:
        """Return why a user who has to come over TLS cannot come; None where it can."""
        return None if self._serves_tls else say("wire_user_shut_out", name=name)

    def _last_requests(self) -> dict[str, LastRequest]:
        return {} if self._last is None else self._last.all()

    def _request(self, found: LastRequest | None) -> RequestRow | None:
        if found is None or self._last is None:
            return None
        return RequestRow(
            request=_NAMES.get(found.code, str(found.code)),
            at_ms=self._last.wall_ms(found),
            address=decode_host(found.peer)[0],
            tls=found.tls,
        )

    def _shown(self, account: Account, last: Mapping[str, LastRequest], in_clear: frozenset[str]) -> WireUser:
        defaults, now = self._defaults(), dict(account.quotas.items())
        quotas = account.quotas.over(defaults)
        return WireUser(
            name=account.name,
            user_type=_type_of(account),
            enabled=account.is_enabled,
            requires_tls=account.requires_tls,
            in_clear=account.name in in_clear,
            secrets=len(account.secrets),
            entries=_entries(account),
            quotas=tuple(QuotaRow(name, now[name], number or 0, NAMES[name]) for name, number in quotas.items()),
            limited=self._limited(account.name),
            last=self._request(last.get(account.name)),
            revision=_revision_of(account),
        )

    def _limited(self, name: str) -> Limited | None:
        brake = self._brake
        if brake is None:
            return None
        lately = brake.limited.is_lately(name, brake.loop.clock.monotonic())
        return Limited(lately, brake.connections_of(name), **brake.limited.of(name))

    def at_quota(self) -> list[str]:
        """Return the users whom a quota held back in the last minute, by name."""
        brake = self._brake
        return [] if brake is None or self.mode == REPORT else brake.limited.lately(brake.loop.clock.monotonic())

    def quota_count(self, what: str) -> int:
        """Return how often quotas took effect since the start: one of `brake.COUNTS`, or "users_at_quota", the number
        of users now."""
        if self._brake is None or self.mode == REPORT:
            return 0
        return len(self.at_quota()) if what == "users_at_quota" else self._brake.limited.totals()[what]

    def _known(self, name: str) -> Account:
        user = self._book.get(name)
        if user is None:
            raise NotFound("wire_user", name)
        return user.account

    # --- changing

    def create(
        self,
        name: str,
        *,
        user_type: str = "Normal",
        secret: str | None = None,
        dry_run: bool = False,
        by: str = "",
    ) -> WireUserChange:
        """Make a user. secret: of its own; None for a new one. InvalidInput (name, user_type, secret); Conflict if it
        exists."""
        is_super = _one_of("user_type", user_type, _TYPES)
        try:
            change = creation(name, new_secret() if secret is None else secret, is_super)
        except BookRefusal as refusal:
            raise _said(refusal) from None
        return self._change(name, change, secret is None, dry_run=dry_run, by=by)

    def import_accounts(self, content: object, *, dry_run: bool = False, by: str = "") -> ImportReport:
        """Make users of the accounts of Apache's ACL 1.0, and report what becomes of them; users that exist stay as
        they are. content: a file's, as YAML says it. InvalidInput (text); Conflict if they cannot be made now."""
        try:
            read, notes = accounts_of(content)
        except ValueError as error:
            raise InvalidInput("text", say("import_none", reason=str(error))) from None
        claims = self._claims()
        try:
            made = self._book.add([one.account for one in read if not one.refusal], dry_run=dry_run)
        except BookRefusal as refusal:
            raise _said(refusal) from None
        except OSError as error:
            raise Unavailable(say("not_saved", reason=error.strerror or str(error))) from None
        if not dry_run:
            logger.info("access: imported users=%d by=%s", len(made), by)
        outcome = "new" if dry_run else "made"
        users = tuple(_imported(one, outcome if one.account.name in made else "exists", claims) for one in read)
        return ImportReport(not dry_run, users, tuple(say(key, **args) for key, args in notes))

    def act(
        self,
        name: str,
        act: str,
        *,
        secret: str | None = None,
        **terms: Unpack[Terms],
    ) -> WireUserChange:
        """Do one of `access.acts.USER_ACTS`. secret: one that takes the place of the one that the act makes. NotFound,
        InvalidInput (act, secret); Conflict if it cannot be done now."""
        known = _one_of("act", act, USER_ACTS)
        if secret is None:
            return self._change(name, of_known(name, known.change), known.makes_secret, **terms)
        if not known.makes_secret:
            raise InvalidInput("secret", say("secret_unneeded"))
        try:
            check_secret(secret)
        except BookRefusal as refusal:
            raise _said(refusal) from None
        change = of_known(name, lambda account: with_secret(account, secret))
        return self._change(name, change, **terms)

    def delete(self, name: str, **terms: Unpack[Terms]) -> WireUserChange:
        """Delete a user and its entries. NotFound; Conflict for the last Super user who is enabled."""
        gone = of_known(name, lambda account: Account(name, gone=True))
        return self._change(name, gone, **terms)

    def set_quotas(
        self,
        name: str,
        changes: Mapping[str, int | None],
        **terms: Unpack[Terms],
    ) -> WireUserChange:
        """Change some of a user's quotas. changes: "send_bytes", "pull_bytes", "requests" or "connections" -> number, 0
        for no limit; None: the default counts. NotFound, InvalidInput (the quota)."""
        for quota in changes:
            _one_of("quota", quota, NAMES)
        return self._change(name, of_known(name, lambda account: with_quotas(account, changes)), **terms)

    def put_entry(
        self,
        name: str,
        resource: str,
        actions: Iterable[str],
        sources: Iterable[str] = (),
        decision: str = "Allow",
        policy: str = "Custom",
        **terms: Unpack[Terms],
    ) -> WireUserChange:
        """Give a user an entry; it takes the place of the one of the same policy and resource. NotFound, InvalidInput
        (resource, actions, sources, decision, policy); Conflict if there are too many."""
        kind = _policy_of(policy)
        try:
            checked = checked_entry(resource, tuple(actions), tuple(sources), decision)
        except EntryError as error:
            raise InvalidInput(error.field, say("entry_refused", reason=str(error))) from None
        return self._change(name, of_known(name, lambda account: entry_put(account, kind, checked)), **terms)

    def remove_entry(
        self,
        name: str,
        resource: str,
        policy: str = "Custom",
        **terms: Unpack[Terms],
    ) -> WireUserChange:
        """Take an entry from a user. NotFound, InvalidInput (resource, policy)."""
        kind = _policy_of(policy)
        try:
            spelled = spelled_resource(resource)
        except EntryError as error:
            raise InvalidInput(error.field, say("entry_refused", reason=str(error))) from None
        change = of_known(name, lambda account: entry_removed(account, kind, spelled))
        return self._change(name, change, **terms)

    def _change(
        self,
        name: str,
        change: Callable[[Account | None], Account],
        makes_secret: bool = False,
        *,
        revision: str | None = None,
        dry_run: bool = False,
        by: str = "",
    ) -> WireUserChange:
        def checked(account: Account | None) -> Account:
            if account is not None and revision not in (None, _revision_of(account)):
                raise Conflict(say("changed_meanwhile", name=name))
            return change(account)

        try:
            before, after = self._book.change(name, checked, dry_run=dry_run)
        except BookRefusal as refusal:
            raise _said(refusal) from None
        except OSError as error:
            raise Unavailable(say("not_saved", reason=error.strerror or str(error))) from None
        differences = _differences(before, after)
        if not dry_run:
            fields = ", ".join(one.field for one in differences)
            logger.info("access: changed user=%s by=%s fields=%s", name, by, fields)
        hung_up = say("wire_user_hung_up", name=name) if before is not None and may_less(before, after) else None
        is_held = after.requires_tls and not (before is not None and before.requires_tls)
        shut_out = self.shut_out(name) if is_held else None
        return WireUserChange(
            applied=not dry_run,
            name=name,
            differences=differences,
            warnings=tuple(one for one in (hung_up, shut_out) if one is not None),
            blockers=(),
            revision=_revision_after(before, after, dry_run),
            registered={},
            secret=after.secrets[0] if makes_secret and not dry_run else None,
        )

    # --- asking

    def decide(self, name: str, action: str, resource: str, address: str) -> Decision:
        """Return whether a user may do something, and which entry decides. action: as "Pub". resource: one topic, group
        or cluster, as "Topic:orders". address: the client's. NotFound, InvalidInput (action, resource, address)."""
        account = self._known(name)
        asked, source = _asked(action, resource), _address_of(address)
        if not account.is_enabled:
            return self._decision(False, say("decided_disabled", name=name))
        shut_out = self.shut_out(name) if account.requires_tls else None
        if shut_out is not None:
            return self._decision(False, shut_out, apache=say("apache_no_tls"))
        found = self._judged(account, asked, source)
        if account.requires_tls and found.allowed:
            return replace(found, over_tls=say("decided_over_tls", name=name))
        return found

    def _judged(self, account: Account, asked: Asked, source: Address) -> Decision:
        if account.is_super:
            return self._decision(True, say("decided_super", name=account.name))
        policies = Policies(account.custom, account.default)
        question = asked.kind, asked.name, asked.actions, source
        rows = tuple(JudgedRow(_row(judged.policy, judged.entry), judged.why) for judged in policies.explain(*question))
        here, there = policies.decide(*question), ApachePolicies(account.custom, account.default).decide(*question)
        if here.entry is None:
            sentence = say("decided_nothing")
        else:
            key = "decided_allow" if here.is_allowed else "decided_deny"
            sentence = say(key, resource=here.entry.resource)
        return self._decision(here.is_allowed, sentence, rows, there, _said_by_apache(here, there))

    def _decision(
        self,
        allowed: bool,
        sentence: Sentence,
        rows: tuple[JudgedRow, ...] = (),
        there: Verdict | None = None,
        apache: Sentence | None = None,
    ) -> Decision:
        """apache: None if 5.3.3 says the same."""
        passes = allowed or self.mode == REPORT
        if apache is None:
            return Decision(allowed, passes, sentence, rows, allowed, say("apache_same"))
        return Decision(allowed, passes, sentence, rows, None if there is None else there.is_allowed, apache)

    def compare(self, name: str) -> Comparison:
        """Return what RocketMQ 5.3.3 decides otherwise by a user's entries. NotFound."""
        return _compared(self._known(name))


def _imported(one: Read, outcome: str, claims: Iterable[Refusal]) -> ImportedUser:
    account, notes = one.account, [say(key, **args) for key, args in one.notes]
    if one.refusal:
        outcome, notes = "refused", [say("import_refused", reason=one.refusal)]
    elif outcome == "exists":
        notes = [say("import_exists")]
    else:
        notes += _would_be(one, [row for row in claims if row.user == account.name])
    return ImportedUser(
        name=account.name,
        user_type=_type_of(account),
        outcome=outcome,
        entries=_entries(account),
        notes=tuple(notes),
    )


def _would_be(one: Read, asked: list[Refusal]) -> list[Sentence]:
    """Return what the entries of an account that is imported say of what its clients have asked for lately."""
    account = one.account
    if not asked:
        return [say("import_unasked")]
    if account.is_super:
        return [say("import_asked")]
    policies = Policies(account.custom, account.default)
    migrated = ApachePolicies(*map(tuple, one.migrated))
    refused, otherwise = [], []
    for row in asked:
        kind, _, name = row.resource.partition(":")
        question = kind, name, frozenset(row.actions), ipaddress.ip_address(row.address)
        here, there = policies.decide(*question), migrated.decide(*question)
        told = f"{_NAMES.get(row.code, row.code)} {row.resource}"
        if not here.is_allowed:
            refused.append(told)
        if there is None or there.is_allowed != here.is_allowed:
            otherwise.append(told)
    notes = [say("import_would_refuse", what=_some(refused)) if refused else say("import_asked")]
    return [*notes, say("import_apache_otherwise", what=_some(otherwise))] if otherwise else notes


def _some(texts: list[str]) -> str:
    return ", ".join(texts[:_MOST_TOLD]) + (f", … ({len(texts)})" if len(texts) > _MOST_TOLD else "")


def _compared(account: Account) -> Comparison:
    found, are_all = differences(account.custom, account.default)
    return Comparison(tuple(map(_compared_row, found)), are_all)


def _compared_row(one: Differing) -> ComparedRow:
    here, there = one.here, one.there
    return ComparedRow(
        resource=one.resource,
        actions=one.actions,
        address=one.address,
        allowed=here.is_allowed,
        by="" if here.entry is None else here.entry.resource,
        apache_allowed=None if there is None else there.is_allowed,
        apache_by="" if there is None or there.entry is None else there.entry.resource,
    )


def _said_by_apache(here: Verdict, there: Verdict | None) -> Sentence:
    if there is None:
        return say("apache_untold")
    if there.is_allowed == here.is_allowed and there.entry == here.entry:
        return say("apache_same")
    if there.entry is None:
        return say("apache_nothing")
    return say("apache_allow" if there.is_allowed else "apache_deny", resource=there.entry.resource)


def _access_row(user: User, resource: Resource) -> AccessRow:
    found: dict[bool | None, list[str]] = {True: [], None: [], False: []}
    for action in _LEAST_FIRST:
        asked = _need(resource, action)
        [needed] = asked.actions
        allowed = user.account.is_super or user.policies.from_anywhere(asked.kind, asked.name, needed)
        found[allowed].append(action)
    return AccessRow(user.account.name, _type_of(user.account), tuple(found[True]), tuple(found[None]))


def _asked(action: str, resource: str) -> Asked:
    """Return what a request would ask for. Raises InvalidInput."""
    actions = {known.lower(): known for known in ACTIONS if known != ALL}
    wanted = _one_of("action", action.strip().lower(), actions, shown=actions.values())
    return _need(_resource_of(resource), wanted)


def _resource_of(text: str) -> Resource:
    """Parse one topic, group or cluster. Raises InvalidInput."""
    try:
        parsed = parse_resource(text.strip())
    except ValueError:
        parsed = None
    if parsed is None or parsed.how != How.LITERAL:
        raise InvalidInput("resource", say("resource_literal"))
    return parsed


def _need(parsed: Resource, wanted: str) -> Asked:
    if parsed.kind == TOPIC:
        return of_topic(parsed.name, wanted)
    if parsed.kind == GROUP:
        return of_group(parsed.name, wanted)
    return Asked(parsed.kind, parsed.name, frozenset((wanted,)))


def _address_of(text: str) -> Address:
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError:
        raise InvalidInput("address", say("bad_address")) from None
    return getattr(address, "ipv4_mapped", None) or address


def _policy_of(policy: str) -> str:
    return _one_of("policy", policy.strip().lower(), POLICY_TYPES, shown=POLICY_TYPES.values())


def _one_of(field: str, given: str, known: Mapping[str, T], shown: Iterable[str] = ()) -> T:
    """Return what is known by the name given. Raises InvalidInput."""
    if given not in known:
        raise InvalidInput(field, say("one_of", field=field, choices=", ".join(shown or known)))
    return known[given]


def _said(refusal: BookRefusal) -> AdminError:
    """Return the error for people of a change that the book refuses."""
    args = refusal.args_shown
    match refusal.key:
        case "wire_user_unknown":
            return NotFound("wire_user", str(args["name"]))
        case "no_entry":
            return NotFound("entry", str(args["resource"]))
        case "wire_user_name":
            return InvalidInput("name", say(refusal.key))
        case "bad_secret" | "example_secret" | "same_secret":
            return InvalidInput("secret", say(refusal.key, **args))
        case "wrong_quota":
            return InvalidInput(str(args["quota"]), say(refusal.key, **args))
        case _:
            return Conflict(say(refusal.key, **args))


def _type_of(account: Account) -> str:
    return "Super" if account.is_super else "Normal"


def _refusal(row: Refusal) -> RefusalRow:
    return RefusalRow(
        user=row.user,
        resource=row.resource,
        actions=tuple(sorted(row.actions, key=_LEAST_FIRST.index)),
        reason=row.reason,
        request=_NAMES[row.code],
        address=row.address,
        count=row.count,
        first_at_ms=row.first_ms,
        last_at_ms=row.last_ms,
    )


def _entries(account: Account) -> tuple[EntryRow, ...]:
    return (
        *(_row(CUSTOM, entry) for entry in account.custom),
        *(_row(DEFAULT, entry) for entry in account.default),
    )


def _row(policy: str, entry: Entry) -> EntryRow:
    return EntryRow(policy, entry.resource, entry.actions, entry.source_ips, entry.decision)


def _states(account: Account | None) -> dict[str, str]:
    return {} if account is None or account.gone else user_states(account) | entry_states(account)


def _revision_of(account: Account) -> str:
    """Return a digest of an account, with its secrets: which of them is the old one decides what an act ends."""
    return hashlib.sha256(repr((_states(account), secrets_mark(account))).encode()).hexdigest()[:16]


def _revision_after(before: Account | None, after: Account, dry_run: bool) -> str | None:
    """Return the revision to give with the act that was previewed, or the one after a change; None for no user."""
    account = before if dry_run else after
    return None if account is None or account.gone else _revision_of(account)


def _differences(before: Account | None, after: Account) -> tuple[Difference, ...]:
    old, new = _states(before), _states(after)
    return tuple(
        Difference(field, old.get(field), new.get(field))
        for field in {**old, **new}
        if old.get(field) != new.get(field)
    )
