"""Sign-in by a reverse proxy, which sends the user's name in a header.

The header counts only if the connection itself comes from an address in `proxyTrustedAddresses`; else it is ignored,
and so is a header that occurs twice. A session that began in this way ends at the first request without the header.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from django.core.exceptions import ValidationError
from django.db import transaction

from ... import runtime
from ..audit.log import Actor, record
from ..models import User

if TYPE_CHECKING:
    from django.http import HttpRequest

logger = logging.getLogger(__name__)
IDENTITY = "proxy"


def name_in(request: HttpRequest) -> str | None:
    """Return the user's name from a trusted proxy; None if there is none, or this way of signing in is off."""
    options = runtime.place().sign_in.proxy
    if options is None or not options.trusts(str(request.META.get("REMOTE_ADDR") or "")):
        return None
    values = _values(request, options.header)
    name = values[0].strip() if len(values) == 1 else ""
    return name or None


def user_named(name: str, address: str, request_id: str) -> User | None:
    """Return the active user with this name, made now if the settings allow that; else None."""
    user = User.objects.named(name)
    if user is not None:
        return user if user.is_active else None
    options = runtime.place().sign_in.proxy
    if options is None or not options.create_role:
        return None
    user = User(username=name, role=options.create_role, identity=IDENTITY)
    user.set_unusable_password()
    try:
        with transaction.atomic():
            user.full_clean(exclude=["password"])
            user.save()
            record(
                "user.create", user.username, None, {"role": user.role, "by": "proxy"},
                by=Actor(user.username, "proxy", address, request_id),
            )  # fmt: skip
    except ValidationError:
        logger.warning("console: the proxy named a user whose name cannot be one name=%r", name[:80])
        return None
    return user


def _values(request: HttpRequest, header: str) -> list[str]:
    scope = getattr(request, "scope", None)
    if scope is None:  # WSGI, as in Django's test client, which joins repeated headers
        found = request.headers.get(header)
        return [] if found is None else [found]
    wanted = header.encode("latin-1")
    return [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == wanted]
