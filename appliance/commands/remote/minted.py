"""A token for one command: a user who can write the console's database on this machine needs no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from ...engine.errors import StartError
from ..offline_console import open_console, who

NAME = "command line"


@contextmanager
def minted(options: Sequence[str], good_for_s: int) -> Iterator[str]:
    """Yield the secret of a new token of an administrator, which is deleted at the end. Raises StartError.

    The audit log has the acts done with it, under its name, which contains the user; its creation is not logged.
    """
    open_console(options)
    from django.db import DatabaseError, connection, transaction

    from ...console.models import ApiToken, User, now_ms
    from ...console.users import tokens

    owner = User.objects.active_admins().order_by("pk").first()
    if owner is None:
        raise StartError("There is no active administrator: open the console and set it up first.")
    name = f"{NAME} of {who()}"[:64]
    try:
        with transaction.atomic():
            # Tokens that killed commands left. A revoked one stays: what it made ends with it.
            ApiToken.objects.filter(name__startswith=NAME, expires_at_ms__lt=now_ms(), revoked_at_ms=None).delete()
            token, secret = tokens.create(
                owner, name, "admin", may_read_bodies=owner.may_read_bodies, may_export=owner.may_export,
                expires_at_ms=now_ms() + good_for_s * 1000, passing=True,
            )  # fmt: skip
    except DatabaseError as error:
        raise StartError(f"No token can be made in the console's database: {error}.") from None
    finally:
        connection.close()
    try:
        yield secret
    finally:
        with suppress(DatabaseError):
            ApiToken.objects.filter(pk=token.pk, revoked_at_ms=None).delete()
        connection.close()


def create_for_keeps(options: Sequence[str], name: str, fields: dict[str, object]) -> dict[str, object]:
    """Make a token that stays, in the database: one made by means of a token would end with that. Raises StartError."""
    open_console(options)
    from django.db import connection, transaction

    from ...console.audit.log import Actor, record
    from ...console.models import User, now_ms
    from ...console.users import tokens

    owner = User.objects.active_admins().order_by("pk").first()
    if owner is None:
        raise StartError("There is no active administrator: open the console and set it up first.")
    days = fields.pop("expires_in_days", 90)
    expires = None if days is None else now_ms() + int(str(days)) * 86_400_000
    role = str(fields.pop("role", "viewer"))
    if role not in ("viewer", "operator", "admin"):
        raise StartError(f"There is no role {role}: viewer, operator and admin are.")
    try:
        with transaction.atomic():
            token, secret = tokens.create(owner, name, role, expires_at_ms=expires, **fields)  # type: ignore[arg-type]
            after = {"role": role, "owner": owner.username, "expires_at_ms": expires, **fields}
            record("token.create", name, None, after, by=Actor(who(), "command line"))
    except tokens.TooMany:
        raise StartError(f"{owner.username} has {tokens.MOST_EACH} tokens. Revoke some first.") from None
    finally:
        connection.close()
    return {
        "id": token.pk,
        "name": name,
        "owner": owner.username,
        "role": role,
        "expires_at_ms": expires,
        "secret": secret,
    }
