"""Copies of users and policies on slaves and on the members of a set.

A follower asks the broker that it follows for the accounts that have changed (710003), on a connection on which both
sides have proved that they share a secret; `protocol/member_proof.py` has the proof and the sealing.

    request   fields `known`: the last answer's place, empty at first; `nonce`
    answer    sealed: {"begin": false, "accounts": [...], "place": "content:number", "more": false}

begin: the answer is the first of a whole copy, after which accounts that were not in it are gone. A whole copy is taken
over with its last page, so a follower never has only a part of it; accounts are those of the journal (`book.py`). The
follower's journal is synced before it reports that it has a change.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Callable

import msgspec

from ..clock import Clock
from ..errors import RefusedRequest
from ..few_lines import FewLines
from ..protocol.codes import RequestCode, ResponseCode
from ..protocol.command import RemotingCommand
from ..protocol.member_proof import BROKER, MEMBER, NONCE, PAGE_BYTES, PROOF, over, proof, seal, session_key, unseal
from ..remoting.connection import Connection
from ..remoting.dispatcher import Dispatcher
from .book import MOST_BYTES, MOST_USERS, Account, Book, Changes

logger = logging.getLogger(__name__)

#: Not "admin": a change there waits for the members that ask here.
POOL = "pull-cold"
KNOWN = "known"
_LONGEST_NONCE = 64
#: Most lines of the log about members that have another secret, in this many seconds.
_TOLD, _TELL_S = 3, 60.0


class MembersProcessor:
    """Proves members, and gives them users. `prove` on remoting-io, `users` on the pool's thread."""

    def __init__(self, book: Book, secret: bytes, clock: Clock) -> None:
        # Constant after construction.
        self._book = book
        self._secret = secret
        # Owned by remoting-io.
        self._lines = FewLines(logger.warning, _TOLD, _TELL_S, clock.monotonic)

    def register(self, dispatcher: Dispatcher) -> None:
        dispatcher.add(RequestCode.ROCKETBOX_MEMBER, self.prove)
        dispatcher.add(RequestCode.ROCKETBOX_USERS, self.users, POOL)

    def prove(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """Answer with a nonce, then check the proof made with it. A nonce is good for one try."""
        given, nonce = request.ext_fields.get(PROOF, ""), request.ext_fields.get(NONCE, "")
        challenge, conn.challenge = conn.challenge, ""
        if not 0 < len(nonce) <= _LONGEST_NONCE:
            raise RefusedRequest(ResponseCode.INVALID_PARAMETER, "a member sends a nonce")
        if not given:
            conn.challenge = secrets.token_hex(16)
            return RemotingCommand.response(ResponseCode.SUCCESS, None, {NONCE: conn.challenge})
        wanted = proof(self._secret, over(conn.channel, MEMBER), nonce, challenge)
        if not challenge or not hmac.compare_digest(given.encode(errors="replace"), wanted.encode()):
            self._lines.log("access: peer=%s is no member: it has another haSecretFile", conn.remote_host)
            raise RefusedRequest(ResponseCode.NO_PERMISSION, "this is not the secret in haSecretFile")
        conn.session_key = session_key(self._secret, nonce, challenge)
        conn.grants = None  # of a user: its requests are a member's now
        mine = proof(self._secret, over(conn.channel, BROKER), nonce, challenge)
        return RemotingCommand.response(ResponseCode.SUCCESS, None, {PROOF: mine})

    def users(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        """Answer with accounts that have changed, sealed for this connection."""
        nonce, key = request.ext_fields.get(NONCE, ""), conn.session_key
        if not key:
            raise RefusedRequest(ResponseCode.NO_PERMISSION, "users are copied by members only")
        if not 0 < len(nonce) <= _LONGEST_NONCE:
            raise RefusedRequest(ResponseCode.INVALID_PARAMETER, "a member sends a nonce")
        page = self._book.since(request.ext_fields.get(KNOWN, ""), PAGE_BYTES)
        body = seal(key, msgspec.json.encode(page), nonce, secrets.token_bytes(16))
        return RemotingCommand.response(ResponseCode.SUCCESS, body=body)


class UserCopies:
    """The copying from one broker, for as long as that one is followed. Owned by one thread."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._known = ""
        # Name -> account, of a whole copy under way; None: there is none. _bytes: of its pages.
        self._whole: dict[str, Account] | None = None
        self._bytes = 0

    def take(self, ask: Callable[[RemotingCommand], RemotingCommand], session: Callable[[], bytes]) -> None:
        """See `broker/role.py`. A broker that needs no proof has no users to give: the accounts here stay."""
        more = bool(session())
        while more:
            nonce = secrets.token_hex(16)
            fields = {KNOWN: self._known, NONCE: nonce}
            answer = ask(RemotingCommand(RequestCode.ROCKETBOX_USERS, ext_fields=fields))
            if answer.code != ResponseCode.SUCCESS:
                raise ValueError(f"the users of the master are not given: {answer.code} {answer.remark}")
            key = session()
            if not key:  # it was lost meanwhile, and what answers now proved nothing: a stranger can seal without one
                raise ValueError("the broker that gives users has not proved that it has the secret")
            body = unseal(key, bytes(answer.body), nonce)
            page = msgspec.json.decode(body, type=Changes)
            self._take_page(page, len(body))
            more = page.more

    def _take_page(self, page: Changes, size: int) -> None:
        if page.begin:
            self._whole, self._bytes = {}, 0
        whole = self._whole
        if whole is None:
            changed = self._book.take_copies(page.accounts)
        else:
            self._bytes += size
            if self._bytes > MOST_BYTES:
                raise ValueError("the users of the master are too many")
            whole.update((account.name, account) for account in page.accounts)
            if len(whole) > 2 * MOST_USERS:
                raise ValueError("the users of the master are too many")
            changed = [] if page.more else self._book.take_copies(whole.values(), are_all=True)
            if not page.more:
                self._whole = None
        self._known = page.place
        if changed:
            logger.info("replication: users taken over from the master: %s", sorted(changed)[:20])
