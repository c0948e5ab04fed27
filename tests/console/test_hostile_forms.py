"""Every form of every page with something wrong in it: no page fails, no act is missing in the audit log, and no secret
comes back.

The settings are put back after each request; the broker keeps what was done to it.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote_plus, urljoin, urlsplit

import pytest
from django.db import connection, transaction
from django.test import Client
from django.urls import resolve

from appliance import runtime
from appliance.console import jobs
from appliance.console.alerts.models import AlertChannel, AlertRule, AlertSilence
from appliance.console.jobs import message_export
from appliance.console.models import AuditEntry, User, now_ms
from appliance.console.system import definitions
from appliance.console.users import tokens
from appliance.engine.config import Secret
from appliance.engine.engine import Engine
from tests.console.conftest import pretend_running
from tests.console.test_access import PAGES
from tests.support import report_days
from tests.support.dead_letters import make_group, put_dead_letters
from tests.support.directories import shared_directory
from tests.support.effort import effort
from tests.support.engine import RunningEngine, start_engine
from tests.support.halves import set_aside

pytestmark = pytest.mark.django_db

SEEDS = range(effort(1, 12, 200))
SECRETS = {
    "of a wire user": "Zq-wire-0001",
    "address of a channel": "https://hooks.example/Zq-hook-0002",
    "of a channel": "Zq-channel-0003",
    "of a second factor": "JBSWY3DPEHPK3PXP",
}
#: Streams and files, the door, and what a user chooses for themselves, of which nothing is written down.
_LEFT_OUT = {
    "overview_live", "message_tail", "static_file", "job_progress", "report_run_progress", "replay_progress", "logout",
    "login_oidc", "set_language", "set_time_zone", "client_ask",
}  # fmt: skip
#: Pages whose form shows with parameters only.
_ALSO = (
    "/delayed/act/?what=drop", "/groups/billing/retries/act/?what=drop",
    "/needs/mute/?key=dead_letters:dead_letters:billing",
)  # fmt: skip
#: Fields of forms that are on no page of these.
_MORE = {
    "delayed_act": {"what": ["drop", "deliver_now"], "pick": ["18-0"], "level": ["18"], "from": [""], "show": [""]},
    "group_retries_act": {"what": ["to_dead_letters"], "pick": ["3-0"], "level": ["3"]},
    "transaction_decide": {"what": ["commit", "roll_back"], "pick": ["0-"], "reason": ["r"]},
    "transaction_check": {"pick": ["0-"], "topic": ["orders"], "ticked": ["1"]},
    "clean_up": {"kind": ["groups", "offsets"], "idle_hours": ["0"], "q": [""]},
    "replay_act": {"act": ["pause", "cancel"]},
    "session_end": {"session": ["1"]},
    "wire_user_delete": {"name": ["root"]},
    "wire_user_entry_remove": {"resource": ["Topic:a"]},
}
_STEPS = {"step": ["apply", "preview", "back"], "force": ["yes"], "revision": [""]}
_ODD = [
    "", " ", "-1", "0", "9" * 23, "1e999", "nan", "１２", "²", "a\x00b", "\x00", "x" * 70_000, "é" * 300, "<b>1</b>",
    "*", "../../etc/passwd", "%s%n{}", "null", "[]", "2026-99-99 99:99", "9999-12-31 23:59", "253402300800000",
    "\r\nX: y", "\ud800",
]  # fmt: skip
_WRITES = re.compile(r'\s*(INSERT (?:OR \w+ )?INTO|UPDATE|DELETE FROM)\s+"(\w+)"')


class Forms(HTMLParser):
    """Collects the forms of a page that are posted: action -> field -> values."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: dict[str, dict[str, list[str]]] = {}
        self._fields: dict[str, list[str]] = {}
        self._select = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        name = given.get("name", "")
        if tag == "form":
            is_posted = given.get("method", "").lower() == "post"
            self._fields = self.found.setdefault(given.get("action", ""), {}) if is_posted else {}
        elif tag == "select":
            self._select = name
        elif tag == "option":
            name = self._select
        if tag in ("input", "button", "textarea", "option") and name and name != "csrfmiddlewaretoken":
            self._fields.setdefault(name, []).append(given.get("value", ""))


@pytest.fixture(scope="module")
def site(request) -> Iterator[Engine]:
    first = Secret(json.dumps({"username": "root", "password": SECRETS["of a wire user"]}))
    options = {"access_control": "report", "init_authentication_user": first}
    engine = start_engine(shared_directory(request, "site"), broker=options)
    yield engine
    engine.stop()


@pytest.fixture
def made(site, people) -> Iterator[dict[str, str]]:
    """One of everything; what addresses call them."""
    pretend_running(site)
    running, window = RunningEngine.of(site), site.window
    for group in ("billing", "idle"):
        make_group(running, group, "orders")
    put_dead_letters(running, "billing", 1)
    running.put("orders", b"now", properties="KEYS\x01k\x02")
    running.put("orders", b"later", properties="DELAY\x0118\x02")
    running.commit("billing", "orders", 0, 1)
    reset = window.offset_commands.reset("billing", None, window.offset_target("earliest"), by="somebody")
    channel = AlertChannel.objects.create(
        name="hook", kind="webhook", address=SECRETS["address of a channel"], secret=SECRETS["of a channel"]
    )
    rule = AlertRule.objects.create(name="lag", figure="lag_minutes", above=5)
    silence = AlertSilence.objects.create(rule=rule, until_ms=now_ms() + 10**7, reason="", by="", created_at_ms=0)
    other = User.objects.create(username="other", role="admin", totp_secret=SECRETS["of a second factor"])
    token, secret = tokens.create(other, "theirs", "admin")
    report_days.put(runtime.place().directory)
    job = jobs.Job(
        jobs.new_id(), message_export.EXPORT, "other", "user", now_ms(), {"topic": "orders"}, target="orders"
    )
    jobs.board().add(job, None)
    yield {
        "topic": "orders", "wire_user": "root", "user": str(other.pk), "token": str(token.pk), "": "billing",
        "alert_rule": str(rule.pk), "alert_channel": str(channel.pk), "alert_silence": str(silence.pk),
        "number": str(reset.id), "message": window.messages.page("orders", limit=1).rows[0].offset_id,
        "transaction": set_aside(site, "orders"), "job": job.id, "secret": secret, "digest": token.digest,
    }  # fmt: skip
    running.hang_up()
    runtime.set_running(None)


def address(name: str, route: str, made: dict[str, str]) -> str:
    """Return the address of a page about what was made; what else it names does not exist."""

    def value(part: re.Match[str]) -> str:
        kind = max((one for one in made if name.startswith(one)), key=len)
        if part[2] in ("number", "job"):
            return made[part[2]]
        return made[kind] if kind or part[2] == "name" else "1"

    return "/" + re.sub(r"<(\w+:)?(\w+)>", value, route)


def forms_of(client: Client, made: dict[str, str]) -> dict[str, dict[str, list[str]]]:
    """Return address -> field -> values of every form, as far as pages show it; for other views that take one, what
    `_MORE` says."""
    found: dict[str, dict[str, list[str]]] = {}
    of_views = {address(name, route, made): name for name, route in PAGES if name not in _LEFT_OUT}
    for one in (*of_views, *_ALSO):
        page = client.get(one)
        if not page.streaming and page.headers.get("Content-Type", "").startswith("text/html"):
            for action, fields in Forms(page.content.decode()).found.items():
                found.setdefault(urlsplit(urljoin(one, action)).path, {}).update(fields)
    for one, name in of_views.items():
        if one not in found and client.head(one).status_code == 405:
            found[one] = {}
        if name in _MORE:
            found.setdefault(one, {}).update(_MORE[name])
    return {one: _STEPS | fields for one, fields in found.items() if resolve(one).url_name not in _LEFT_OUT}


def spoiled(fields: dict[str, list[str]], r: random.Random) -> str:
    """Return the body of a form with something wrong in one field, and now and then in all."""
    wrong = set(r.sample(sorted(fields), 1)) if r.random() < 0.9 else set(fields)
    parts: list[tuple[str, str | bytes]] = []
    for name, values in fields.items():
        kind = r.randrange(6) if name in wrong else -1
        if kind == 0:
            continue
        parts.append((name, r.choice(values or [""]) if kind == -1 else b"\xff\xfe" if kind == 1 else r.choice(_ODD)))
        if kind == 2:
            parts += [(name, value) for value in [*values, "b"] * 3]
    return "&".join(f"{quote_plus(name)}={_quoted(value)}" for name, value in parts)


def _quoted(value: str | bytes) -> str:
    return quote_plus(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)


def rows_of(table: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        return list(cursor.execute(f'SELECT * FROM "{table}" ORDER BY 1').fetchall())


class Tried:
    """Sends forms, and keeps what was wrong with an answer."""

    def __init__(self, secrets: dict[str, str]) -> None:
        self.wrong: list[str] = []
        self._secrets = secrets
        self._written: set[str] = set()
        self._settings = {table: rows_of(table) for table in connection.introspection.table_names()}
        self._defined = definitions.export()

    def _note(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        found = _WRITES.match(sql)
        if found is not None and (found[1], found[2]) != ("UPDATE", "console_signin"):  # when it was last seen
            self._written.add(found[2])
        return execute(sql, params, many, context)

    def send(self, client: Client, address: str, body: str) -> int:
        """Send a form and put the settings back; return the answer's status."""
        self._written.clear()
        before, mark, cookies = AuditEntry.objects.count(), transaction.savepoint(), dict(client.cookies)
        with connection.execute_wrapper(self._note):
            answer = client.post(address, body, content_type="application/x-www-form-urlencoded")
        told = AuditEntry.objects.count() > before
        written = self._written - {"console_auditentry", "django_session"}
        changed = {table for table in written if rows_of(table) != self._settings[table]}
        transaction.savepoint_rollback(mark)
        client.cookies.clear()
        client.cookies.update(cookies)
        text = str(answer.headers) + ("" if answer.streaming else answer.content.decode(errors="replace"))
        shown = [name for name, secret in self._secrets.items() if secret in text]
        if answer.status_code < 400 and (defined := definitions.export()) != self._defined:
            self._defined = defined
            changed.add("definitions")
        for is_wrong, why in (
            (answer.status_code >= 500 and answer.status_code != 503, f"answers {answer.status_code}"),
            (shown, f"shows secrets: {shown}"),
            (changed and not told, f"changed {changed} without a line in the audit log"),
        ):
            if is_wrong:
                self.wrong.append(f"{address} {why}: {body[:2000]}")
        return int(answer.status_code)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_is_sent_to_a_form_is_answered_and_written_down(client_as, made, people, seed):
    admin, viewer = client_as("admin", "may_read_bodies", "may_export"), client_as("viewer")
    admin.raise_request_exception = viewer.raise_request_exception = False
    forms = forms_of(admin, made)
    assert len(forms) > 60
    assert all(name in {resolve(one).url_name for one in forms} for name in _MORE)
    hashed = User.objects.get(username="the-admin").password
    tried = Tried(SECRETS | {"of a token": made["secret"], "digest": made["digest"], "hash": hashed})
    r = random.Random(seed)
    for one, fields in sorted(forms.items()):
        for _ in range(2):
            tried.send(admin, one, spoiled(fields, r))
        tried.send(viewer, one, spoiled(fields, r))
    assert not tried.wrong, "\n".join(tried.wrong)
