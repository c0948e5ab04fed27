"""Users whom a reverse proxy has signed in: it says their name in a header.

The header is believed from the addresses in `proxyTrustedAddresses` alone, where the connection itself comes from; from
others it means nothing, and so does one that is there twice. A session that began so ends at the first request that
comes without it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from django.core.exceptions import ValidationError
from django.db import transaction

from .. import runtime
from .audit import record
from .models import User

if TYPE_CHECKING:
    from django.http import HttpRequest

logger = logging.getLogger(__name__)
IDENTITY = "proxy"


def name_in(request: HttpRequest) -> str | None:
    """The user's name, when a trusted proxy says one; None otherwise, also while this way in is off."""
    options = runtime.place().sign_in.proxy
    if options is None or not options.trusts(str(request.META.get("REMOTE_ADDR") or "")):
        return None
    values = _values(request, options.header)
    name = values[0].strip() if len(values) == 1 else ""
    return name or None


def user_named(name: str, address: str, request_id: str) -> User | None:
    """The active user of this name; made when that is said in the settings. None for others."""
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
                "user.create", user.username, None, {"role": user.role, "by": "proxy"}, actor=user.username,
                actor_kind="proxy", address=address, request_id=request_id,
            )  # fmt: skip
    except ValidationError:
        logger.warning("console: the proxy named a user whose name cannot be one name=%r", name[:80])
        return None
    return user


def _values(request: HttpRequest, header: str) -> list[str]:
    scope = getattr(request, "scope", None)
    if scope is None:  # WSGI, as in Django's test client, has joined them
        found = request.headers.get(header)
        return [] if found is None else [found]
    wanted = header.encode("latin-1")
    return [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == wanted]
