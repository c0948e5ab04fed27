"""The operation of the API behind a page, as a command line."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from django.http import HttpRequest

from ..acts import ACTS, CALLS
from ..acts.row import names_in, with_names


def _operations() -> dict[str, str]:
    found: dict[str, str] = {}
    pages = {act.name: act for act in ACTS if act.curl is not None}
    for name, call in CALLS:
        page = pages.get(name)
        if page is not None and name not in found and call.operation.startswith("GET "):
            path = with_names(call.operation.removeprefix("GET "), names_in(page.address or ""))
            found[name] = f"{path}?{page.curl}".rstrip("?").replace("!", "")
    return found


#: Page -> its operation, below /api/v1/, with the arguments of the page's address; behind "?" those parameters of the
#: page's filter that the operation takes under the same name.
OPERATIONS = _operations()
#: Page -> the parameter without which its operation answers nothing.
NEEDED = {act.name: one[:-1] for act in ACTS for one in (act.curl or "").split() if one.endswith("!")}


def curl(request: HttpRequest, more: Mapping[str, object] | None = None) -> str:
    """Return the command; "" for a page without such an operation. The reader has a token in ROCKETBOX_TOKEN.

    more: parameters of the operation that the page's address has under other names, or as people type them; None and ""
    are left out. Views with such put the command into their context as `as_curl`.
    """
    match = request.resolver_match
    operation = OPERATIONS.get(match.view_name) if match else None
    if match is None or operation is None:
        return ""
    path, _, names = operation.partition("?")
    path = path.format(**{name: quote(str(value), safe="") for name, value in match.kwargs.items()})
    asked: dict[str, object] = {name: request.GET[name] for name in names.split() if request.GET.get(name)}
    if match.view_name in NEEDED and NEEDED[match.view_name] not in asked:
        return ""
    return command_of(request, path, asked | dict(more or {}))


def command(request: HttpRequest, path: str) -> str:
    """Return the command that gets a path below /api/v1/, quoted as an address has it."""
    address = f"{root_of(request)}/api/v1/{path}"
    return f'curl -H "Authorization: Bearer $ROCKETBOX_TOKEN" {shlex.quote(address)}'


def command_of(request: HttpRequest, path: str, asked: Mapping[str, object]) -> str:
    """Return the command that gets a path below /api/v1/ with those parameters that are neither None nor "". For views
    whose page is not one operation; they put it into their context as `as_curl`."""
    given = urlencode({name: value for name, value in asked.items() if value not in (None, "")})
    return command(request, f"{path}{'?' if given else ''}{given}")


def root_of(request: HttpRequest) -> str:
    """Return the address under which this server was asked, with the path before it, and without a slash at its
    end."""
    return request.build_absolute_uri("/").rstrip("/") + request.META.get("SCRIPT_NAME", "").rstrip("/")
