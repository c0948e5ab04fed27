"""The operation of the API that tells what a page shows, as a command line."""

from __future__ import annotations

import shlex
from urllib.parse import quote, urlencode

from django.http import HttpRequest

#: Page -> its operation, below /api/v1/, with the arguments of the page's address; behind "?" those parameters of the
#: page's filter that the operation takes under the same name.
OPERATIONS = {
    "account": "me",
    "alert": "alerts/{pk}",
    "alert_channel": "alert-channels/{pk}",
    "alert_channels": "alert-channels",
    "alert_rule": "alert-rules/{pk}",
    "alert_rules": "alert-rules",
    "alerts": "alerts",
    "audit": "audit?result",
    "backups": "system/backups",
    "broker_history": "metrics",
    "client": "clients/{client_id}",
    "clients": "clients?q role group sort",
    "dead_letter_groups": "dead-letters?q sort",
    "dead_letters": "groups/{name}/dead-letters",
    "delayed": "delayed?q",
    "group": "groups/{name}",
    "group_diagnosis": "groups/{name}/diagnosis",
    "group_reset_done": "groups/{name}/offset-resets/{number}",
    "group_resets": "groups/{name}/offset-resets",
    "group_retries": "groups/{name}/retries",
    "groups": "groups?q sort",
    "job": "jobs/{job}",
    "jobs": "jobs?kind state",
    "needs": "needs",
    "overview": "broker",
    "quarantine": "replication/quarantine/{name}",
    "replay": "replays/{job}",
    "replication": "replication",
    "report": "reports/days/{day}/{report}",
    "report_run": "reports/runs/{run}",
    "report_runs": "reports/runs",
    "report_settings": "reports/settings",
    "reports": "reports",
    "search": "search?q",
    "support_bundle": "system/bundle",
    "system": "system",
    "system_checks": "system/checks",
    "system_config": "system/config",
    "tokens": "tokens",
    "topic": "topics/{name}",
    "topics": "topics?q kind sort",
    "transactions": "transactions",
    "users": "users",
    "wire_access": "wire-access?resource sort",
    "wire_refusals": "wire-refusals?q sort",
    "wire_user": "wire-users/{name}",
    "wire_users": "wire-users?q sort",
}
#: Page -> the parameter without which its operation answers nothing.
NEEDED = {"search": "q", "wire_access": "resource"}


def curl(request: HttpRequest) -> str:
    """Return the command; "" for a page without such an operation. The reader has a token in ROCKETBOX_TOKEN."""
    match = request.resolver_match
    operation = OPERATIONS.get(match.view_name) if match else None
    if match is None or operation is None:
        return ""
    path, _, names = operation.partition("?")
    path = path.format(**{name: quote(str(value), safe="") for name, value in match.kwargs.items()})
    asked = {name: request.GET[name] for name in names.split() if request.GET.get(name)}
    if match.view_name in NEEDED and NEEDED[match.view_name] not in asked:
        return ""
    return command(request, f"{path}{'?' if asked else ''}{urlencode(asked)}")


def command(request: HttpRequest, path: str) -> str:
    """Return the command that asks for a path below /api/v1/, quoted as an address has it."""
    address = f"{root_of(request)}/api/v1/{path}"
    return f'curl -H "Authorization: Bearer $ROCKETBOX_TOKEN" {shlex.quote(address)}'


def root_of(request: HttpRequest) -> str:
    """Return the address under which this server was asked, with the path before it, and without a slash at its
    end."""
    return request.build_absolute_uri("/").rstrip("/") + request.META.get("SCRIPT_NAME", "").rstrip("/")
