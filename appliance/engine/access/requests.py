"""3001 to 3010: users and their entries, as mqadmin of 5.3 sends them.

Only requests of Super users get here, see `asked.py`. A change takes effect at once and is durable when it is answered.
No answer holds a secret, unless `authGiveSecrets` is set and the request comes over TLS or from this machine, for
`mqadmin copyUser`; the audit log has each such answer.
Source: RocketMQ 5.3.3 `AdminBrokerProcessor`, `UserConverter`, `AclConverter`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ..broker.heartbeat import MAX_POOL_BODY_BYTES, decode_body
from ..errors import RefusedRequest
from ..protocol.codes import RequestCode, ResponseCode
from ..protocol.command import RemotingCommand
from ..remoting.connection import Connection
from ..remoting.dispatcher import Dispatcher
from ..wire_gate import Act, Names, State, is_loopback
from .acts import entry_put, entry_removed, entry_states, secrets_mark, user_states
from .book import Account, Book, of_known
from .policies import CUSTOM, DEFAULT, MOST_ENTRIES, POLICY_TYPES, Entry, checked_entry, spelled_resource

POOL = "admin"
#: The remark of a new response, which Apache leaves as it is.
_DONE = "not set any response code"
_SUBJECT = "User:"
_TYPES = {"super": True, "normal": False}
_STATUS = {"enable": True, "disable": False}


class UserBody(msgspec.Struct, rename="camel", gc=False):
    """Java's UserInfo."""

    username: str = ""
    password: str = ""
    user_type: str = ""
    user_status: str = ""


class EntryBody(msgspec.Struct, rename="camel", gc=False):
    """Java's PolicyEntryInfo."""

    resource: str = ""
    actions: list[str] = []
    source_ips: list[str] = []
    decision: str = ""


class PolicyBody(msgspec.Struct, rename="camel", gc=False):
    """Java's PolicyInfo."""

    policy_type: str = ""
    entries: list[EntryBody] = []


class AclBody(msgspec.Struct, rename="camel", gc=False):
    """Java's AclInfo."""

    subject: str = ""
    policies: list[PolicyBody] = []


class AccessProcessor:
    """Handles the requests on the pool's thread, because a change waits for the disk."""

    def __init__(self, book: Book, record_given: Callable[[str, RemotingCommand, Connection], None] | None) -> None:
        """record_given: records that secrets of a user, "*" for several, were given to a peer; None: none are given."""
        # Constant after construction.
        self._book = book
        self._record_given = record_given

    def register(self, dispatcher: Dispatcher) -> None:
        code = RequestCode
        for served, handler in (
            (code.AUTH_CREATE_USER, self._create_user),
            (code.AUTH_UPDATE_USER, self._update_user),
            (code.AUTH_DELETE_USER, self._delete_user),
            (code.AUTH_GET_USER, self._get_user),
            (code.AUTH_LIST_USER, self._list_users),
            (code.AUTH_CREATE_ACL, self._set_acl),
            (code.AUTH_UPDATE_ACL, self._set_acl),
            (code.AUTH_DELETE_ACL, self._delete_acl),
            (code.AUTH_GET_ACL, self._get_acl),
            (code.AUTH_LIST_ACL, self._list_acls),
        ):
            dispatcher.add(served, _told(handler), POOL)

    def acts(self) -> dict[int, Act]:
        """Return code -> the act that the audit log records for a change."""
        code = RequestCode
        user = Act("wire-user.set", _user_named, self._user_states)
        acl = Act("wire-acl.set", _subject_named, self._acl_states)
        return {
            code.AUTH_CREATE_USER: user,
            code.AUTH_UPDATE_USER: user,
            code.AUTH_DELETE_USER: Act("wire-user.delete", _user_named, self._user_states),
            code.AUTH_CREATE_ACL: acl,
            code.AUTH_UPDATE_ACL: acl,
            code.AUTH_DELETE_ACL: Act("wire-acl.delete", _subject_named, self._acl_states),
        }

    def _user_states(self, names: Names) -> State:
        account = self._account(names)
        # Apache's tools replace a secret; without a mark that would look like no change at all.
        return {} if account is None else user_states(account) | {"secretsMark": secrets_mark(account)}

    def _acl_states(self, names: Names) -> State:
        account = self._account(names)
        return {} if account is None else entry_states(account)

    def _account(self, names: Names) -> Account | None:
        user = self._book.get(names[0]) if len(names) == 1 else None
        return None if user is None else user.account

    # --- users

    def _create_user(self, request: RemotingCommand, conn: Connection) -> Any:
        name, body = _user_named(request), decode_body(request.body, UserBody)
        if not name:
            raise _bad("The username is blank")
        if not body.password.strip():
            raise _refused("password can not be blank")
        is_super = _one_of(_TYPES, "userType", body.user_type)
        is_enabled = _one_of(_STATUS, "userStatus", body.user_status)
        self._book.create(name[0], body.password, bool(is_super), is_enabled is not False)

    def _update_user(self, request: RemotingCommand, conn: Connection) -> Any:
        name, body = _user_named(request), decode_body(request.body, UserBody)
        if not name:
            raise _bad("The username is blank")
        self._book.update(
            name[0],
            secret=body.password or None,
            is_super=_one_of(_TYPES, "userType", body.user_type),
            is_enabled=_one_of(_STATUS, "userStatus", body.user_status),
        )

    def _delete_user(self, request: RemotingCommand, conn: Connection) -> Any:
        name = _user_named(request)
        if not name:
            raise _refused("username can not be blank")
        self._book.delete(name[0])

    def _get_user(self, request: RemotingCommand, conn: Connection) -> Any:
        name = request.ext_fields.get("username") or ""
        if not name.strip():
            raise _bad("The username is blank")
        user = self._book.get(name)
        if user is None:
            return None
        return _told_user(user.account, self._gives(name, request, conn))

    def _list_users(self, request: RemotingCommand, conn: Connection) -> Any:
        part = request.ext_fields.get("filter") or ""
        found = [account for account in self._book if part in account.name]
        if not found:
            return None
        gives = self._gives("*", request, conn)
        return [_told_user(account, gives) for account in found]

    def _gives(self, name: str, request: RemotingCommand, conn: Connection) -> bool:
        """True if this answer has secrets of the user; recorded then. Over TLS the connection has a certificate's
        digest. An address that a balancer tells is not this machine."""
        if self._record_given is None:
            return False
        if not conn.channel and (conn.relayed or not is_loopback(conn.born_host)):
            return False
        self._record_given(name, request, conn)
        return True

    # --- entries

    def _set_acl(self, request: RemotingCommand, conn: Connection) -> Any:
        """Add and replace entries (3006 and 3007 alike): one of a known resource takes its place, others go behind."""
        body = decode_body(request.body, AclBody, MAX_POOL_BODY_BYTES)
        name = _name_of(_subject_of(request, body))
        self._known(name)
        if not body.policies:
            raise _refused("The policies is empty.")
        if sum(len(policy.entries) for policy in body.policies) > MOST_ENTRIES:
            raise _refused(f"a user has at most {MOST_ENTRIES} entries")  # each is compared with all before it
        given = []
        for policy in body.policies:
            if not policy.entries:
                raise _refused("The policy entries is empty.")
            given += [(_policy_type(policy.policy_type), _entry_of(entry)) for entry in policy.entries]

        def change(account: Account) -> Account:
            for policy_type, entry in given:
                account = entry_put(account, policy_type, entry)
            return account

        self._book.change(name, of_known(name, change, _no_subject(name)))

    def _delete_acl(self, request: RemotingCommand, conn: Connection) -> Any:
        """Delete the entries of a resource, or all if none is named. Refuses a resource of an unknown type; Apache
        deletes all entries then."""
        fields = request.ext_fields
        name = _name_of(fields.get("subject") or "")
        self._known(name)
        resource = fields.get("resource") or ""
        if not resource.strip():
            self._book.set_entries(name, (), ())
            return
        try:
            spelled = spelled_resource(resource)
        except ValueError as error:
            raise _bad(str(error)) from None
        policy_type = _policy_type(fields.get("policyType") or "")
        change = of_known(name, lambda account: entry_removed(account, policy_type, spelled), _no_subject(name))
        self._book.change(name, change)

    def _get_acl(self, request: RemotingCommand, conn: Connection) -> Any:
        name = _name_of(request.ext_fields.get("subject") or "")
        user = self._book.get(name)
        if user is None:
            raise _refused("The subject is not exist.")
        return _told_acl(user.account)

    def _list_acls(self, request: RemotingCommand, conn: Connection) -> Any:
        subject = request.ext_fields.get("subjectFilter") or ""
        resource = request.ext_fields.get("resourceFilter") or ""
        found = []
        for account in self._book:
            if subject in _SUBJECT + account.name:
                told = _told_acl(account, resource)
                if told is not None:
                    found.append(told)
        return found or None

    def _known(self, name: str) -> None:
        if self._book.get(name) is None:
            raise _refused(_no_subject(name))


def _told(
    act: Callable[[RemotingCommand, Connection], Any],
) -> Callable[[RemotingCommand, Connection], RemotingCommand]:
    def handle(request: RemotingCommand, conn: Connection) -> RemotingCommand:
        try:
            answer = act(request, conn)
        except OSError as error:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"the change cannot be saved: {error}") from None
        body = b"" if answer is None else msgspec.json.encode(answer, order="sorted")
        return RemotingCommand.response(ResponseCode.SUCCESS, _DONE, body=body)

    return handle


def _no_subject(name: str) -> str:
    return f"The subject of {_SUBJECT}{name} is not exist."


def _refused(text: str) -> RefusedRequest:
    return RefusedRequest(ResponseCode.NO_PERMISSION, text)


def _bad(text: str) -> RefusedRequest:
    return RefusedRequest(ResponseCode.INVALID_PARAMETER, text)


def _user_named(request: RemotingCommand) -> Names:
    """Return the user's name; the header's name wins over the body's."""
    name = request.ext_fields.get("username") or ""
    if not name and request.body:
        name = decode_body(request.body, UserBody).username
    return (name,) if name.strip() else ()


def _subject_of(request: RemotingCommand, body: AclBody) -> str:
    """Return the subject; the body's wins over the header's."""
    return body.subject or request.ext_fields.get("subject") or ""


def _subject_named(request: RemotingCommand) -> Names:
    body = decode_body(request.body, AclBody, MAX_POOL_BODY_BYTES) if request.body else AclBody()
    subject = _subject_of(request, body)
    return (subject[len(_SUBJECT) :],) if subject.startswith(_SUBJECT) else ()


def _name_of(subject: str) -> str:
    if not subject.startswith(_SUBJECT):
        raise _bad(f"The subject is {_SUBJECT} and a name, not {subject[:100]!r}")
    return subject[len(_SUBJECT) :]


def _one_of(words: dict[str, bool], field: str, text: str) -> bool | None:
    """Return the value of a word; None for an empty text. Refuses unknown words; Apache takes them for the first
    one."""
    if not text.strip():
        return None
    found = words.get(text.strip().lower())
    if found is None:
        raise _bad(f"{field} is {' or '.join(words)}, not {text[:50]!r}")
    return found


def _policy_type(text: str) -> str:
    found = POLICY_TYPES.get(text.strip().lower() or CUSTOM.lower())
    if found is None:
        raise _bad(f"policyType is {CUSTOM} or {DEFAULT}, not {text[:50]!r}")
    return found


def _entry_of(given: EntryBody) -> Entry:
    try:
        return checked_entry(given.resource, given.actions, given.source_ips, given.decision)
    except ValueError as error:
        raise _bad(str(error)) from None


def _told_user(account: Account, with_secret: bool) -> dict[str, str]:
    """with_secret: with the newest one, as the password of Java's UserInfo."""
    secret = {"password": account.secrets[0]} if with_secret and account.secrets else {}
    return secret | {
        "userStatus": "enable" if account.is_enabled else "disable",
        "userType": "Super" if account.is_super else "Normal",
        "username": account.name,
    }


def _told_acl(account: Account, part: str = "") -> dict[str, Any] | None:
    """Return a user's entries whose resource has `part` in it; None if there are none."""
    policies = []
    for kind, entries in ((CUSTOM, account.custom), (DEFAULT, account.default)):
        told = [_told_entry(entry) for entry in entries if part in entry.resource]
        if told:
            policies.append({"entries": told, "policyType": kind})
    return {"policies": policies, "subject": _SUBJECT + account.name} if policies else None


def _told_entry(entry: Entry) -> dict[str, Any]:
    told: dict[str, Any] = {"actions": entry.actions, "decision": entry.decision, "resource": entry.resource}
    if entry.source_ips:
        told["sourceIps"] = entry.source_ips
    return told
