"""Every page of the console and every GET of the API, from their own tables of URLs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.browser import Browser, BrowserError
from bench.filled_store import group_name, topic_name
from tests.support import report_days

#: Not pages: streams, forms that change something by GET of nothing, and doors that are closed to who is inside.
_LEFT_OUT = re.compile(
    r"live/$|^needs/mute/|/unmute/|^logout/|^login/|^language/|^setup/|/revoke/|/reset-password/|/active/|^confirm/"
    r"|backups/now/|backups/<|^delayed/(act|done)/|/retries/done/|^transactions/.+"
    r"|/check/|^replication/(switch|adopt)/|replication/set$|replication/quarantine/|^reports/run/|/cancel/|/files/|<str:ticket>|<str:secret>|/end/|/test/$|alerts/<int"
    r"|alerts/(rules|channels)/<int|alert-(rules|channels)/<int"
)
#: What an address asks for besides, and the other ways to ask the lists.
_QUERIES: dict[str, tuple[str, ...]] = {
    "topics/": (
        "", "?sort=-in_rate", "?sort=-bytes", "?sort=-oldest", "?sort=-consumers", "?show=all", "?q=77", "?page=40",
        "?format=csv",
    ),
    "groups/": (
        "", "?sort=-lag", "?sort=-lag_time", "?sort=-clients", "?system=yes", "?online=yes", "?q=77", "?format=csv",
    ),
    "history/": ("", "?span=1h", "?span=13mo", "?format=csv"),
    "topics/<name:name>/history/": ("", "?span=7d"),
    "groups/<name:name>/history/": ("", "?span=7d"),
    "clients/": ("", "?role=consumer", "?q=127"),
    "messages/": ("", "?topic={topic}", "?topic=Load"),
    "messages/send/": ("", "?topic={topic}", "?from={ref}"),
    "messages/tail/": ("", "?topic=Load"),
    "connect/": ("", "?topic={topic}"),
    "delayed/": ("", "?span=7d", "?topic={topic}", "?show=delayed", "?q=k{number}"),
    "transactions/": ("", "?show=discarded", "?show=resolved"),
    "dead-letters/": ("", "?sort=group", "?q=77"),
    "dead-letters/<name:name>/": ("", "?from=1", "?retries=16", "?replayed=no&origin={topic}", "?format=csv"),
    "groups/<name:name>/retries/": ("", "?level=3"),
    "groups/<name:name>/retries/act/": ("?what=deliver_now",),
    "replays/<str:job>/": ("", "?result=replayed"),
    "system/audit/": ("",),
    "jobs/": ("", "?state=done"),
    "api/v1/topics": ("", "?limit=500", "?sort=-bytes"),
    "api/v1/groups": ("", "?limit=500", "?sort=-lag_time"),
    "api/v1/clients": ("", "?limit=500"),
    "search/": ("", "?q=k{number}"),
    "api/v1/search": ("?q=k{number}", "?q={ref}"),
    "api/v1/metrics/series": ("?metric=in", "?metric=in&topic={topic}", "?metric=out&group={group}",
                              "?metric=lag&from=1", "?metric=group_lag&group={group}&seconds=3600"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Address:
    """One thing to look at; `route` is the pattern it came from."""

    route: str
    path: str


def make_users(data_dir: Path, names: Sequence[str], password: str) -> None:
    """The settings database with administrators who have every right, made by the console's own code."""
    from appliance import runtime

    (data_dir / "rocketbox").mkdir(parents=True, exist_ok=True)
    runtime.set_place(runtime.Place(data_dir))
    os.environ["DJANGO_SETTINGS_MODULE"] = "appliance.settings"
    import django

    django.setup()
    from django.db import connection

    from appliance.console.models import User
    from appliance.console.serving import database

    database.bring_up_to_date()
    for name in names:
        user = User(username=name, role="admin", may_read_bodies=True, may_export=True)
        user.set_password(password)
        user.save()
    connection.close()


def make_reports(data_dir: Path, groups: int) -> None:
    """Reports of a day, and runs, with as many rows as a page of theirs ever has."""
    report_days.put(data_dir, groups=tuple(group_name(number) for number in range(min(groups, 500))))
    report_days.put_runs(data_dir)


def addresses(browser: Browser, topics: int, groups: int) -> list[Address]:
    """Every address, its parameters filled in; after `make_users`, and once the group in the middle has dead letters:
    a replay of those is started."""
    topic, group = topic_name(topics // 2), group_name(groups // 2)
    ref = _message_ref(browser, topic)
    names = {
        "topic": topic,
        "group": group,
        "ref": ref,
        "pk": "1",
        "unit": "unit",
        "username": "anna",
        "token_id": "1",
        "client_id": "127.0.0.1@0",
    }
    replay = _replay(browser, group)
    names["number"] = names["reset_id"] = _reset(browser, group)
    document, _ = report_days.documents()[0]
    names |= {"day": document.day, "report": document.report, "run": report_days.RUN}
    names |= {"plot": document.plots[0].key, "table": document.tables[0].key}
    job = browser.fill_in("/system/audit/", "/system/audit/check/").split("/")[2]
    found = []
    for route in _routes():
        if _LEFT_OUT.search(route):
            continue
        others = {"name": _named_by(route, topic, group), "job": job if "jobs/" in route else replay}
        path = _filled(route, names | others)
        for query in _QUERIES.get(route, ("",)):
            found.append(
                Address(route, "/" + path + query.format(topic=topic, group=group, ref=ref, number=topics // 2))
            )
    return found


def _routes() -> list[str]:
    """Those that answer a GET, each once."""
    from django.urls import URLPattern, get_resolver

    from appliance.console.users.access import ACCESS

    def every(patterns: Sequence[Any], prefix: str = "") -> Iterator[str]:
        for pattern in patterns:
            route = prefix + str(pattern.pattern)
            if isinstance(pattern, URLPattern):
                yield route
            else:
                yield from every(pattern.url_patterns, route)

    changes = {key.partition(" ")[2] for key in ACCESS if " " in key} - {
        key.partition(" ")[2] for key in ACCESS if key.startswith("GET ")
    }
    return sorted(set(every(get_resolver().url_patterns)) - changes)


def _named_by(route: str, topic: str, group: str) -> str:
    """What <name> stands for in a route."""
    if route.startswith("static/"):
        return "console.css"
    return group if route.startswith(("groups/", "dead-letters/")) else topic


def _filled(route: str, names: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1].rpartition(":")[2]
        if name not in names:
            raise BrowserError(f"what stands for <{name}> in {route}? Say so in bench/console_pages.py")
        return names[name]

    return re.sub(r"<([^>]+)>", value, route)


def _message_ref(browser: Browser, topic: str) -> str:
    status, _, body = browser.get(f"/api/v1/topics/{topic}/messages")
    if status != 200:
        raise BrowserError(f"the messages of {topic} were answered with {status}: {body[:300]!r}")
    items = json.loads(body)["items"]
    return str(items[0]["offset_id"])


def _replay(browser: Browser, group: str) -> str:
    """The id of one that was started by its form."""
    asked = {"target": "group", "rate": "10000", "max_replays": "1000", "step": "apply"}
    return browser.fill_in(f"/dead-letters/{group}/replay/", **asked).rstrip("/").rpartition("/")[2]


def _reset(browser: Browser, group: str) -> str:
    """The id of a reset of offsets that was made by its form."""
    asked = {"to": "earliest", "step": "apply"}
    return browser.fill_in(f"/groups/{group}/reset/", **asked).rstrip("/").rpartition("/")[2]
