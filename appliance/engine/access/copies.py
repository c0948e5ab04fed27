"""Copies of users and policies on slaves and on the members of a set.

A follower asks the broker that it follows for the accounts that have changed (710003), on a connection on which both
sides have proved that they share a secret; `protocol/member_proof.py` has the proof and the sealing.

    request   fields `known`: the last answer's place, empty at first; `nonce`; `waitMs`: the answer may wait so long
              for a change
    answer    sealed: {"begin": false, "accounts": [...], "place": "content:number", "more": false}

A plain slave always waits for an answer between its rounds, so that it learns of a change at once. Its next request
says that it has the change, for which the change's own answer waits (`wait_for_followers`). In a set,
`topic_service.tell_members` waits.

begin: the answer is the first of a whole copy, after which accounts that were not in it are gone. A whole copy is taken
over with its last page, so a follower never has only a part of it; accounts are those of the journal (`book.py`). A
follower of an older version keeps the fields that it does not know, and gives them to those that follow it later. The
follower's journal is synced before it reports that it has a change.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import threading
from collections.abc import Callable

from ..clock import Clock
from ..errors import RefusedRequest
from ..few_lines import FewLines
from ..protocol.codes import RequestCode, ResponseCode
from ..protocol.command import RemotingCommand
from ..protocol.member_proof import BROKER, MEMBER, NONCE, PAGE_BYTES, PROOF, over, proof, seal, session_key, unseal
from ..remoting.connection import Connection
from ..remoting.dispatcher import Dispatcher
from .book import MOST_BYTES, MOST_USERS, Account, Book, Changes, decoded, encoded

logger = logging.getLogger(__name__)

#: Not "admin": a change there waits for the members that ask here.
POOL = "pull-cold"
KNOWN, WAIT_MS = "known", "waitMs"
#: Longest time for which an answer waits for a change; less than its asker's time-out.
LONGEST_WAIT_MS = 2000
#: Time for which a change waits for slaves; tools wait for 5 s. A slave that has asked nothing for _AWAY_S is away.
_FOLLOWERS_S, _AWAY_S, _LOOK_S = 4.0, 10.0, 0.005
_LONGEST_NONCE = 64
#: Most lines of the log about members that have another secret, in this many seconds.
_TOLD, _TELL_S = 3, 60.0


class MembersProcessor:
    """Proves members, and gives them users. `prove` on remoting-io, `users` on the pool's thread."""

    def __init__(
        self, book: Book, secret: bytes, clock: Clock, later: Callable[[float, Callable[[], None]], None]
    ) -> None:
        """later: has a function called in so many seconds; any thread."""
        # Constant after construction.
        self._book = book
        self._secret = secret
        self._clock = clock
        self._later = later
        # Guarded by _lock. Followers -> the change up to which they have all, and when they asked last; and requests
        # that wait for a change.
        self._lock = threading.Lock()
        self._followers: dict[Connection, tuple[int, float]] = {}
        self._held: dict[Connection, RemotingCommand] = {}
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

    def users(self, request: RemotingCommand, conn: Connection) -> RemotingCommand | None:
        """Answer with accounts that have changed, sealed for this connection. None: the answer waits for a change."""
        nonce = request.ext_fields.get(NONCE, "")
        if not conn.session_key:
            raise RefusedRequest(ResponseCode.NO_PERMISSION, "users are copied by members only")
        if not 0 < len(nonce) <= _LONGEST_NONCE:
            raise RefusedRequest(ResponseCode.INVALID_PARAMETER, "a member sends a nonce")
        has = self._book.number_of(request.ext_fields.get(KNOWN, ""))
        wait_ms = request.ext_fields.get(WAIT_MS, "")
        with self._lock:
            if not conn.closed:
                self._followers[conn] = has, self._clock.monotonic()
                if wait_ms.isdecimal() and len(wait_ms) < 9 and has == self._book.generation:
                    self._held[conn] = request
                    self._later(min(int(wait_ms), LONGEST_WAIT_MS) / 1000, lambda: self._let_go(conn, request))
                    return None
        return self._answer(request, conn)

    def _answer(self, request: RemotingCommand, conn: Connection) -> RemotingCommand:
        return _sealed(self._book.since(request.ext_fields.get(KNOWN, ""), PAGE_BYTES), request, conn)

    def _let_go(self, conn: Connection, request: RemotingCommand) -> None:
        """Answer a request for which no change has come. On remoting-io."""
        with self._lock:
            if self._held.get(conn) is not request:
                return
            del self._held[conn]
        conn.respond(request, _sealed(Changes(False, [], request.ext_fields[KNOWN], False), request, conn))

    def changed(self) -> None:
        """Answer all requests that wait for a change. Any thread that may wait for the disk."""
        with self._lock:
            held = list(self._held.items())
            self._held.clear()
        for conn, request in held:
            conn.respond(request, self._answer(request, conn))

    def leave(self, conn: Connection) -> None:
        """Forget a connection that closed. On remoting-io."""
        with self._lock:
            self._followers.pop(conn, None)
            self._held.pop(conn, None)

    def wait_for_followers(self) -> None:
        """Wait until the slaves that follow have all changes that are in the book by now. Refuses with 1 after
        _FOLLOWERS_S. Any thread that may wait."""
        newest = self._book.generation
        end = self._clock.monotonic() + _FOLLOWERS_S
        while not self._all_have(newest):
            if self._clock.monotonic() >= end:
                raise RefusedRequest(
                    ResponseCode.SYSTEM_ERROR,
                    "it is changed here, and not all slaves have said that they know; try again",
                )
            self._clock.sleep(_LOOK_S)

    def _all_have(self, number: int) -> bool:
        now = self._clock.monotonic()
        with self._lock:
            return all(has >= number or now - at > _AWAY_S for has, at in self._followers.values())


def _sealed(page: Changes, request: RemotingCommand, conn: Connection) -> RemotingCommand:
    nonce = request.ext_fields[NONCE]
    body = seal(conn.session_key, encoded(page), nonce, secrets.token_bytes(16))
    return RemotingCommand.response(ResponseCode.SUCCESS, body=body)


class UserCopies:
    """The copying from one broker, for as long as that one is followed. Owned by one thread."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._known = ""
        # Name -> account, of a whole copy under way; None: there is none. _bytes: of its pages.
        self._whole: dict[str, Account] | None = None
        self._bytes = 0

    def take(
        self, ask: Callable[[RemotingCommand], RemotingCommand], session: Callable[[], bytes], wait_ms: int = 0
    ) -> bool:
        """See `broker/role.py`. A broker that needs no proof has no users to give: the accounts here stay."""
        more = bool(session())
        place = self._known
        while more:
            nonce = secrets.token_hex(16)
            fields = {KNOWN: self._known, NONCE: nonce}
            if wait_ms:
                fields[WAIT_MS] = str(min(wait_ms, LONGEST_WAIT_MS))
                wait_ms = 0
            answer = ask(RemotingCommand(RequestCode.ROCKETBOX_USERS, ext_fields=fields))
            if answer.code != ResponseCode.SUCCESS:
                raise ValueError(f"the users of the master are not given: {answer.code} {answer.remark}")
            key = session()
            if not key:  # it was lost meanwhile, and what answers now proved nothing: a stranger can seal without one
                raise ValueError("the broker that gives users has not proved that it has the secret")
            body = unseal(key, bytes(answer.body), nonce)
            page = decoded(body)
            self._take_page(page, len(body))
            more = page.more
        return self._known != place

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
