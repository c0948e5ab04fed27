"""The caller, its sessions and its tokens."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from ninja import Router, Status

from ...console.audit.log import audit
from ...console.models import ApiToken, Role, User, now_ms
from ...console.sign_in import identity, sessions
from ...console.users import tokens, user_acts
from .. import auth
from ..errors import Refused
from ..paging import Cursor, Limit, decode_position, encode_position
from ..schemas import EndedOut, MeOut, NewTokenOut, SessionList, TokenIn, TokenOut, TokenPage

router = Router(tags=["account"])

_DAY_MS = 86_400_000


@router.get("/me", response=MeOut)
def me(request: HttpRequest) -> Any:
    """The caller: role, rights, and the names that its token may access."""
    user: Any = request.user
    names = auth.names(request)
    facts = ("kind", "username", "label", "role", "may_read_bodies", "may_export")
    patterns = {"topic_patterns": list(names.topics), "group_patterns": list(names.groups)}
    return {name: getattr(user, name) for name in facts} | patterns


@router.get("/me/sessions", response=SessionList)
def list_own_sessions(request: HttpRequest) -> Any:
    """Your sessions, the one seen last first."""
    return {"items": session_rows(request, request.user.pk)}


@router.delete("/me/sessions/{int:number}", response=EndedOut)
def end_own_session(request: HttpRequest, number: int) -> Any:
    """End one of your sessions; it is over at its next request."""
    if not (ended := user_acts.end_sessions(request, User.objects.get(pk=request.user.pk), number)):
        raise Refused("session_not_found", f"You have no session {number}.")
    return {"ended": ended}


def session_rows(request: HttpRequest, owner: int) -> list[dict[str, Any]]:
    """A user's sessions as `SessionOut`."""
    here = identity.present(request)
    return [
        {
            "id": one.pk, "address": one.address, "agent": one.agent, "way": one.way, "since_at_ms": one.since_ms,
            "seen_at_ms": one.seen_ms, "present": one.pk == here,
        }
        for one in sessions.of(User(pk=owner))
    ]  # fmt: skip


@router.get("/tokens", response=TokenPage)
def list_tokens(request: HttpRequest, cursor: Cursor, limit: Limit) -> Any:
    """Your tokens, newest first; administrators see everyone's. Secrets are never shown again."""
    rows = _visible(request).order_by("-id").select_related("owner")
    if cursor is not None:
        rows = rows.filter(id__lt=decode_position(cursor, "tokens"))
    found = list(rows[: limit + 1])
    more = len(found) > limit
    return {"items": found[:limit], "next_cursor": encode_position(found[limit - 1].pk, "tokens") if more else None}


@router.post("/tokens", response={201: NewTokenOut})
def create_token(request: HttpRequest, body: TokenIn) -> Any:
    """Create a token. Its secret is in this answer and nowhere else. A session needs its password given recently.
    Tokens that a token creates have at most its rights, and end with it."""
    user: Any = request.user
    maker = user.token if user.kind == "token" else None
    if maker is not None and len(tokens.chain(maker)) >= tokens.LONGEST_CHAIN:
        raise Refused("exceeds_caller", "Tokens that were made by tokens so many times make no further ones.")
    ranks = list(Role.values)
    if ranks.index(body.role) > ranks.index(user.role) or any(
        getattr(body, grant) and not getattr(user, grant) for grant in ("may_read_bodies", "may_export")
    ):
        raise Refused("exceeds_caller", "A token cannot have more rights than you have.")
    expires = None if body.expires_in_days is None else now_ms() + body.expires_in_days * _DAY_MS
    options = body.model_dump(exclude={"name", "role", "expires_in_days"})
    try:
        with transaction.atomic():
            owner = user if maker is None else maker.owner
            token, secret = tokens.create(owner, body.name, body.role, expires_at_ms=expires, made_by=maker, **options)
            audit(request, "token.create", token.name, None, tokens.rights_of(token))
    except tokens.OwnerChanged:
        raise Refused("forbidden", "Your password or your rights have just changed. Sign in again.") from None
    except tokens.TooMany:
        raise Refused("conflict", f"You have {tokens.MOST_EACH} tokens. Revoke some first.") from None
    token.secret = secret
    return Status(201, token)


@router.delete("/tokens/{int:token_id}", response=TokenOut)
def revoke_token(request: HttpRequest, token_id: int) -> Any:
    """Revoke one of your tokens; administrators may revoke any. It is refused from now on, and stays in the list."""
    token = _visible(request).filter(pk=token_id).select_related("owner").first()
    if token is None:
        raise Refused("token_not_found", f"You have no token {token_id}.")
    if token.revoked_at_ms is None:
        tokens.revoke(token)
        audit(request, "token.revoke", tokens.label_of(token), {"active": True}, {"active": False})
    return token


def _visible(request: HttpRequest) -> QuerySet[ApiToken]:
    user: Any = request.user
    everybody = user.role == Role.ADMIN and not auth.has_pattern(request)
    return ApiToken.objects.all() if everybody else ApiToken.objects.filter(owner_id=user.pk)
