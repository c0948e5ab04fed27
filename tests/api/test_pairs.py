"""Every operation of the API beside the page that does the same: both have the same guards.

The rows of `console/acts` name the page of each operation, and give both the same role and grants. Pages without
another half are in ALONE with the reason. A difference between two halves needs a line in DIFFERENT with its reason,
and a line whose difference is gone fails, too.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from appliance import runtime
from appliance.api.api import operations
from appliance.console import jobs
from appliance.console.acts import CALLS
from appliance.console.alerts.models import AlertChannel, AlertRule, AlertSilence
from appliance.console.backups import settings as backups
from appliance.console.models import ApiToken, AuditEntry, Setting, SignIn, User, now_ms
from appliance.console.reports import acts, records
from appliance.console.reports.runner import ReportRunner, new_record
from appliance.console.users import tokens
from appliance.engine.errors import NotFound, Unavailable
from tests.console.conftest import age_login
from tests.console.test_access import PAGES
from tests.support.dead_letters import make_group, put_dead_letters
from tests.support.direct_consumers import answering_member
from tests.support.engine import RunningEngine
from tests.support.halves import set_aside
from tests.support.made_set import MadeSet, cut_tail, member_of
from tests.support.members import Member
from tests.support.wire_users import wire_users

from .conftest import NAMES, Caller, answer_of, problem_of

pytestmark = pytest.mark.django_db

PAGE_OF = {call.key: page for page, call in CALLS}

_MACHINE = "for machines, without a caller"
_DOOR = "a session's own: a token neither comes nor goes"
_SET_UP = "of the first start only, with its link"
_OWN = "a person's own: a program has no phone, reads times in UTC, and gets secrets in its answers"
ALONE = {
    **dict.fromkeys(("healthz", "readyz", "metrics", "static_file", "nsaddr", "nsaddr_unit"), _MACHINE),
    **dict.fromkeys(("login", "logout", "set_language", "confirm_password"), _DOOR),
    **dict.fromkeys(("setup", "setup_administrator", "setup_address", "setup_message", "setup_message_count"), _SET_UP),
    **dict.fromkeys(("login_code", "login_oidc", "login_oidc_back", "set_password"), _DOOR),
    **dict.fromkeys(("second_factor", "second_factor_off", "second_factor_codes", "set_time_zone"), _OWN),
    **dict.fromkeys(("user_secret", "token_created", "wire_user_secret"), _OWN),
    "user_set_active": "PATCH .../users/<username>, whose page has a button of its own for it",
    "replication_now": "the replication page again, every two seconds",
    "overview_live": "the overview again, as a stream",
    "needs_panel": "a part of the overview, fetched again when needs change",
    "topic_history": "GET .../metrics/series with its topic, as broker_history",
    "group_history": "GET .../metrics/series with its group, as broker_history",
    "report_run_progress": "GET .../reports/runs/<run>, whose progress it shows again when it changes",
    "job_progress": "GET .../jobs/<job>, whose figures it shows again when they change",
    "replay_results_file": "GET .../replays/<job>/results, whose rows it joins",
    "group_retries_done": "what the answer of POST .../retries/acts says, kept for the page",
    "replay_progress": "GET .../replays/<job>, whose figures it shows again each second",
    "delayed_done": "what POST .../delayed/acts answers, shown again",
    "transaction_done": "what POST .../transactions/checks and .../decisions answer, shown again",
    "group_now": "the group's page again, every five seconds",
    "group_reset_progress": "GET .../offset-resets/<int:reset_id>, whose states it shows again each second",
    "message_download": "GET .../body, whose bytes beyond those its page shows take the same right; tested below",
    "openapi": "the API's description of itself",
    "api_docs": "the API's description of itself",
}
# (operation, guard) -> why the page's guard differs.
DIFFERENT = {
    ("DELETE api/v1/topics/<topic>", "typed name"): "its address is the name, and no button stands beside another",
    ("POST api/v1/topics/<topic>/purge", "typed name"): "its address is the name, and no button stands beside another",
    ("DELETE api/v1/groups/<group>", "typed name"): "its address is the name, and no button stands beside another",
    ("DELETE api/v1/wire-users/<name>", "typed name"): "its address is the name, and no button stands beside another",
}


def test_every_page_and_every_operation_has_its_other_half_or_a_reason():
    assert {f"{one.method} {one.route}" for one in operations()} == set(PAGE_OF)
    pages = {name for name, _ in PAGES} | {"openapi", "api_docs"}
    assert pages == set(PAGE_OF.values()) | set(ALONE)
    assert not set(PAGE_OF.values()) & set(ALONE)
    assert all(ALONE.values())


class Act:
    """One change through the page and through the API. page, api: send the request and return the response."""

    def __init__(
        self, page: Callable[[Client, str], Any], api: Callable[[Caller, str], Any], named: bool = False
    ) -> None:
        self.page = page
        self.api = api
        # True if the page requires the name to be typed.
        self.named = named


def _session_of(username: str) -> int:
    return SignIn.objects.create(user=User.objects.get(username=username), way="password").pk


def _user(name: str, seen: bool = False) -> User:
    """Create a user with a second factor; seen: signed in somewhere."""
    found = User.objects.create(username=name, totp_secret="A" * 32)
    if seen:
        SignIn.objects.create(user=found, way="password")
    return found


def _with_schema(topic: str) -> str:
    """Give the topic a schema, if there is such a topic; return its name."""
    with suppress(NotFound):
        runtime.window().schemas.put(topic, kind="avro", data=b'"int"')
    return topic


def _token_of(name: str) -> int:
    owner = User.objects.get(username="the-admin")
    return tokens.create(owner, name, "viewer")[0].pk


def _with_member(name: str, act: Callable[[], Any]) -> Any:
    """Call `act` while a consumer of the topic's own group answers."""
    running = RunningEngine.of(runtime.running().engine)
    if runtime.window().messages.page(name).total == 0:
        running.put(name, b"x")
    with answering_member(running, "c", f"of-{name}", name):
        answer = act()
    running.hang_up()
    return answer


def _first_of(name: str) -> str:
    return str(runtime.window().messages.detail(f"{name}/0/0", story=False).offset_id)


TOPIC = {"name": "", "kind": "NORMAL", "read_queues": 4, "write_queues": 4, "readable": "on", "writable": "on",
         "reserve_hours": 0, "step": "apply"}  # fmt: skip
GROUP = {"name": "", "consume_enable": "on", "retry_max_times": 7, "retry_queue_nums": 1, "step": "apply"}
RESET = {"topic": "", "queues": "0", "to": "earliest", "step": "apply"}
REPLAY = {"target": "group", "rate": 100, "max_replays": 3, "step": "apply"}
ALERT_RULE = {"figure": "lag_minutes", "pattern": "orders-*", "above": 10, "for_minutes": 5}
RULE = ALERT_RULE | {"severity": "act", "again_after_minutes": 0, "is_active": "on"}
CHANNEL = {"kind": "webhook", "address": "http://127.0.0.1:1/", "language": "en"}
REPORTS = {
    "at": "02:00", "zone": "UTC", "engine": "auto", "master": "local[2]", "driver_mib": 1024, "memory_mib": 2048,
    "timeout_min": 60, "keep_days": 35, "limit_minutes": 5, "limits": "", "step": "apply",
}  # fmt: skip


def _cut_tail() -> str:
    """Cut messages from the log; return the name of the file that keeps them."""
    return cut_tail(RunningEngine.of(runtime.running().engine))


def _in_a_set(act: Callable[[], Any]) -> Any:
    """Call `act` while this broker is a member of a replica set."""
    with member_of(runtime.window(), MadeSet()):
        return act()


def _accounts(name: str) -> str:
    """Return a file of Apache's ACL 1.0 with one account."""
    return f"accounts: [{{accessKey: {name}, secretKey: a secret of {name}}}]"


ENTRY = {"resource": "Topic:orders/eu", "actions": ["Pub"], "decision": "Allow"}
SILENCE = {"pattern": "orders-*", "hours": 2, "reason": "deploy"}
ACTS = {
    "POST api/v1/replication/quarantine/<name>/sends": Act(
        lambda client, name: client.post(reverse("quarantine_send", args=[_cut_tail()])),
        lambda caller, name: caller.post(f"/replication/quarantine/{_cut_tail()}/sends", None),
    ),
    "POST api/v1/replication/set/switch": Act(
        lambda client, name: _in_a_set(
            lambda: client.post(reverse("set_switch"), {"to": "uuid-of-the-other", "step": "apply"})
        ),
        lambda caller, name: _in_a_set(lambda: caller.post("/replication/set/switch", {"to": "uuid-of-the-other"})),
    ),
    "POST api/v1/replication/set/adopt": Act(
        lambda client, name: _in_a_set(lambda: client.post(reverse("set_adopt"), {"name": "orders-set"})),
        lambda caller, name: _in_a_set(
            lambda: caller.post("/replication/set/adopt", {"uuid": "uuid-of-this-one", "confirm": "orders-set"})
        ),
    ),
    "POST api/v1/tokens": Act(
        lambda client, name: client.post(reverse("token_create"), {"name": name, "role": "viewer"}),
        lambda caller, name: caller.post("/tokens", {"name": name}),
    ),
    "DELETE api/v1/tokens/<int:token_id>": Act(
        lambda client, name: client.post(reverse("token_revoke", args=[_token_of(name)])),
        lambda caller, name: caller.delete(f"/tokens/{_token_of(name)}"),
    ),
    "DELETE api/v1/me/sessions/<int:number>": Act(
        lambda client, name: client.post(reverse("session_end"), {"session": _session_of("the-admin")}),
        lambda caller, name: caller.delete(f"/me/sessions/{_session_of('the-admin')}"),
    ),
    "POST api/v1/users": Act(
        lambda client, name: client.post(reverse("user_create"), {"username": name, "role": "viewer"}),
        lambda caller, name: caller.post("/users", {"username": name}),
    ),
    "PATCH api/v1/users/<username>": Act(
        lambda client, name: client.post(reverse("user", args=[_user(name).pk]), {"role": "operator"}),
        lambda caller, name: caller.patch(f"/users/{_user(name).username}", {"role": "operator"}),
    ),
    "POST api/v1/users/<username>/password": Act(
        lambda client, name: client.post(reverse("user_reset_password", args=[_user(name).pk])),
        lambda caller, name: caller.post(f"/users/{_user(name).username}/password", {}),
    ),
    "DELETE api/v1/users/<username>/second-factor": Act(
        lambda client, name: client.post(reverse("user_second_factor_off", args=[_user(name).pk])),
        lambda caller, name: caller.delete(f"/users/{_user(name).username}/second-factor"),
    ),
    "DELETE api/v1/users/<username>/sessions": Act(
        lambda client, name: client.post(reverse("user_end_sessions", args=[_user(name, seen=True).pk])),
        lambda caller, name: caller.delete(f"/users/{_user(name, seen=True).username}/sessions"),
    ),
    "PUT api/v1/system/second-factor": Act(
        lambda client, name: client.post(reverse("second_factor_rule"), {"roles": ["viewer"]}),
        lambda caller, name: caller.ask("PUT", "/system/second-factor", {"roles": ["viewer"]}),
    ),
    "POST api/v1/wire-users": Act(
        lambda client, name: client.post(reverse("wire_user_create"), {"name": f"{name}-new", "user_type": "Normal"}),
        lambda caller, name: caller.post("/wire-users", {"name": f"{name}-new"}),
    ),
    "POST api/v1/wire-imports": Act(
        lambda client, name: client.post(reverse("wire_import"), {"text": _accounts(f"{name}-one"), "step": "apply"}),
        lambda caller, name: caller.post("/wire-imports", {"text": _accounts(f"{name}-two")}),
    ),
    "DELETE api/v1/wire-users/<name>": Act(
        lambda client, name: client.post(reverse("wire_user_delete", args=[name]), {"name": name}),
        lambda caller, name: caller.delete(f"/wire-users/{name}"),
        named=True,
    ),
    "PATCH api/v1/wire-users/<name>/quotas": Act(
        lambda client, name: client.post(reverse("wire_user_quotas", args=[name]), {"requests": "7"}),
        lambda caller, name: caller.patch(f"/wire-users/{name}/quotas", {"requests": 8}),
    ),
    "DELETE api/v1/wire-users/<name>/quotas": Act(
        lambda client, name: client.post(reverse("wire_user_quotas", args=[name]), {}),
        lambda caller, name: caller.delete(f"/wire-users/{name}/quotas"),
    ),
    "POST api/v1/wire-users/<name>/entries": Act(
        lambda client, name: client.post(reverse("wire_user_entry", args=[name]), ENTRY | {"policy": "Custom"}),
        lambda caller, name: caller.post(f"/wire-users/{name}/entries", ENTRY),
    ),
    "DELETE api/v1/wire-users/<name>/entries/<path:resource>": Act(
        lambda client, name: client.post(reverse("wire_user_entry_remove", args=[name]), {"resource": "Topic:old"}),
        lambda caller, name: caller.delete(f"/wire-users/{name}/entries/Topic:old"),
    ),
    "POST api/v1/wire-users/<name>/acts/<act>": Act(
        lambda client, name: client.post(reverse("wire_user_act", args=[name]), {"act": "rotate"}),
        lambda caller, name: caller.ask("POST", f"/wire-users/{name}/acts/rotate"),
    ),
    "PATCH api/v1/system/config": Act(
        lambda client, name: client.post(
            reverse("system_config_change"), {"step": "apply", "autoCreateTopicEnable": "false"}
        ),
        lambda caller, name: caller.patch("/system/config", {"autoCreateTopicEnable": True}),
    ),
    "POST api/v1/needs/mutes": Act(
        lambda client, name: client.post(
            f"{reverse('need_mute')}?{urlencode({'key': _need(name)})}", {"hours": 4, "reason": "known"}
        ),
        lambda caller, name: caller.post(
            "/needs/mutes", {"key": _need(name), "reason": "known", "until_ms": now_ms() + 60_000}
        ),
    ),
    "DELETE api/v1/needs/mutes/<int:mute_id>": Act(
        lambda client, name: client.post(reverse("need_unmute", args=[_mute(name)])),
        lambda caller, name: caller.delete(f"/needs/mutes/{_mute(name)}"),
    ),
    "POST api/v1/system/retention/clean": Act(
        lambda client, name: client.post(reverse("system_clean"), {"what": "log"}),
        lambda caller, name: caller.ask("POST", "/system/retention/clean?what=log"),
    ),
    "POST api/v1/topics": Act(
        lambda client, name: client.post(reverse("topic_create"), TOPIC | {"name": name + "-new"}),
        lambda caller, name: caller.post("/topics", {"name": name + "-new"}),
    ),
    "PATCH api/v1/topics/<topic>": Act(
        lambda client, name: client.post(reverse("topic_edit", args=[name]), TOPIC | {"order": "on"}),
        lambda caller, name: caller.patch(f"/topics/{name}", {"order": True}),
    ),
    "DELETE api/v1/topics/<topic>": Act(
        lambda client, name: client.post(reverse("topic_delete", args=[name]), {"name": name}),
        lambda caller, name: caller.delete(f"/topics/{name}"),
        named=True,
    ),
    "POST api/v1/topics/<topic>/purge": Act(
        lambda client, name: client.post(reverse("topic_purge", args=[name]), {"name": name}),
        lambda caller, name: caller.post(f"/topics/{name}/purge", {}),
        named=True,
    ),
    "PUT api/v1/topics/<topic>/schema": Act(
        lambda client, name: client.post(
            reverse("topic_schema", args=[name]), {"kind": "avro", "schema": SimpleUploadedFile("a.avsc", b'"int"')}
        ),
        lambda caller, name: caller.put(f"/topics/{name}/schema", {"kind": "avro", "schema": {"data": '"int"'}}),
    ),
    "DELETE api/v1/topics/<topic>/schema": Act(
        lambda client, name: client.post(reverse("topic_schema", args=[_with_schema(name)]), {"step": "remove"}),
        lambda caller, name: caller.delete(f"/topics/{_with_schema(name)}/schema"),
    ),
    "POST api/v1/topics/<topic>/messages": Act(
        lambda client, name: client.post(reverse("send_message"), {"topic": name, "body": "x"}),
        lambda caller, name: caller.post(f"/topics/{name}/messages", {"body": {"data": "x"}}),
    ),
    "POST api/v1/topics/<topic>/copies": Act(
        lambda client, name: client.post(reverse("message_copy"), {"topic": name, "to": "TBW102"}),
        lambda caller, name: caller.post(f"/topics/{name}/copies?dry_run=true", {"to": "TBW102"}),
    ),
    "POST api/v1/topics/<topic>/exports": Act(
        lambda client, name: client.post(reverse("message_export"), {"topic": name, "format": "ndjson", "whole": "on"}),
        lambda caller, name: caller.post(f"/topics/{name}/exports", {"bodies": True}),
    ),
    "POST api/v1/topics/<topic>/imports": Act(
        lambda client, name: client.post(
            reverse("message_import"), {"topic": name, "file": SimpleUploadedFile("messages.ndjson", b"{}")}
        ),
        lambda caller, name: caller.post(f"/topics/{name}/imports?dry_run=true", {}),
    ),
    "POST api/v1/groups": Act(
        lambda client, name: client.post(reverse("group_create"), GROUP | {"name": name + "-new"}),
        lambda caller, name: caller.post("/groups", {"name": name + "-new"}),
    ),
    "PATCH api/v1/groups/<group>": Act(
        lambda client, name: client.post(reverse("group_edit", args=[name]), GROUP),
        lambda caller, name: caller.patch(f"/groups/{name}", {"retry_max_times": 7}),
    ),
    "DELETE api/v1/groups/<group>": Act(
        lambda client, name: client.post(reverse("group_delete", args=[name]), {"name": name}),
        lambda caller, name: caller.delete(f"/groups/{name}"),
        named=True,
    ),
    "POST api/v1/clean-ups": Act(
        lambda client, name: client.post(reverse("clean_up"), {"kind": "groups", "q": name}),
        lambda caller, name: caller.post("/clean-ups", {"kind": "groups", "q": name}),
    ),
    "POST api/v1/groups/<group>/pause": Act(
        lambda client, name: client.post(reverse("group_pause", args=[name]), {"step": "apply", "what": "pause"}),
        lambda caller, name: caller.ask("POST", f"/groups/{name}/pause"),
    ),
    "POST api/v1/groups/<group>/resume": Act(
        lambda client, name: client.post(reverse("group_pause", args=[name]), {"step": "apply", "what": "resume"}),
        lambda caller, name: caller.ask("POST", f"/groups/{name}/resume"),
    ),
    "POST api/v1/groups/<group>/clone": Act(
        lambda client, name: client.post(
            reverse("group_clone", args=[name]), {"step": "apply", "target": name + "-copy", "settings": "on"}
        ),
        lambda caller, name: caller.post(
            f"/groups/{name}/clone", {"target": name + "-copy", "settings": True, "offsets": False}
        ),
    ),
    "POST api/v1/groups/<group>/clients/<path:client_id>/running-info": Act(
        lambda client, name: client.post(reverse("client_ask", args=[_member(name)]), {"group": name}),
        lambda caller, name: caller.ask("POST", f"/groups/{name}/clients/{_member(name)}/running-info"),
    ),
    "POST api/v1/groups/<group>/offset-resets": Act(
        lambda client, name: client.post(reverse("group_reset", args=[name]), RESET | {"topic": name}),
        lambda caller, name: caller.post(
            f"/groups/{name}/offset-resets", {"topics": [name], "queues": [0], "to": "earliest"}
        ),
    ),
    "POST api/v1/groups/<group>/offset-resets/<int:reset_id>/undo": Act(
        lambda client, name: client.post(reverse("group_reset_undo", args=[name, _reset(name)]), {"step": "apply"}),
        lambda caller, name: caller.ask("POST", f"/groups/{name}/offset-resets/{_reset(name)}/undo"),
    ),
    "POST api/v1/groups/<group>/replays": Act(
        lambda client, name: client.post(reverse("replay_create", args=[name]), REPLAY),
        lambda caller, name: caller.post(f"/groups/{name}/replays", {}),
    ),
    "POST api/v1/alert-rules": Act(
        lambda client, name: client.post(reverse("alert_rule_create"), RULE | {"name": f"{name}-new"}),
        lambda caller, name: caller.post("/alert-rules", ALERT_RULE | {"name": f"{name}-new"}),
    ),
    "PUT api/v1/alert-rules/<int:rule_id>": Act(
        lambda client, name: client.post(reverse("alert_rule", args=[_rule(name)]), RULE | {"name": name}),
        lambda caller, name: caller.put(f"/alert-rules/{_rule(name)}", ALERT_RULE | {"name": name}),
    ),
    "DELETE api/v1/alert-rules/<int:rule_id>": Act(
        lambda client, name: client.post(reverse("alert_rule_delete", args=[_rule(name)])),
        lambda caller, name: caller.delete(f"/alert-rules/{_rule(name)}"),
    ),
    "POST api/v1/alert-channels": Act(
        lambda client, name: client.post(reverse("alert_channel_create"), CHANNEL | {"name": f"{name}-new"}),
        lambda caller, name: caller.post("/alert-channels", CHANNEL | {"name": f"{name}-new"}),
    ),
    "PUT api/v1/alert-channels/<int:channel_id>": Act(
        lambda client, name: client.post(reverse("alert_channel", args=[_channel(name)]), CHANNEL | {"name": name}),
        lambda caller, name: caller.put(f"/alert-channels/{_channel(name)}", CHANNEL | {"name": name}),
    ),
    "DELETE api/v1/alert-channels/<int:channel_id>": Act(
        lambda client, name: client.post(reverse("alert_channel_delete", args=[_channel(name)])),
        lambda caller, name: caller.delete(f"/alert-channels/{_channel(name)}"),
    ),
    "POST api/v1/alert-channels/<int:channel_id>/tests": Act(
        lambda client, name: client.post(reverse("alert_channel_test", args=[_channel(name)])),
        lambda caller, name: caller.ask("POST", f"/alert-channels/{_channel(name)}/tests"),
    ),
    "POST api/v1/alert-silences": Act(
        lambda client, name: client.post(reverse("alert_silence_create"), SILENCE),
        lambda caller, name: caller.post("/alert-silences", SILENCE),
    ),
    "DELETE api/v1/alert-silences/<int:silence_id>": Act(
        lambda client, name: client.post(reverse("alert_silence_end", args=[_silence()])),
        lambda caller, name: caller.delete(f"/alert-silences/{_silence()}"),
    ),
    "POST api/v1/audit/checks": Act(
        lambda client, name: client.post(reverse("audit_check")),
        lambda caller, name: caller.ask("POST", "/audit/checks"),
    ),
    "POST api/v1/jobs/<job>/cancel": Act(
        lambda client, name: client.post(reverse("job_cancel", args=[_running_job()])),
        lambda caller, name: caller.ask("POST", f"/jobs/{_running_job()}/cancel"),
    ),
    "POST api/v1/groups/<group>/dead-letters/archives": Act(
        lambda client, name: client.post(reverse("archive_create", args=[name]), {"format": "csv"}),
        lambda caller, name: caller.post(f"/groups/{name}/dead-letters/archives", {"format": "csv"}),
    ),
    "POST api/v1/groups/<group>/retries/acts": Act(
        lambda client, name: client.post(
            reverse("group_retries_act", args=[name]), {"what": "deliver_now", "step": "apply"}
        ),
        lambda caller, name: caller.post(f"/groups/{name}/retries/acts", {"action": "deliver_now"}),
    ),
    "POST api/v1/replays/<job>/<act>": Act(
        lambda client, name: client.post(reverse("replay_act", args=[_slow_replay(name)]), {"what": "pause"}),
        lambda caller, name: caller.ask("POST", f"/replays/{_slow_replay(name)}/pause"),
    ),
    "POST api/v1/messages/<path:ref>/deliveries": Act(
        lambda client, name: _with_member(
            name,
            lambda: client.post(
                reverse("message_run", args=[_first_of(name)]),
                {"member": json.dumps([f"of-{name}", "c"]), "step": "apply"},
            ),
        ),
        lambda caller, name: _with_member(
            name, lambda: caller.post(f"/messages/{name}/0/0/deliveries", {"group": f"of-{name}"})
        ),
    ),
    "POST api/v1/system/definitions": Act(
        lambda client, name: client.post(reverse("definitions"), {"text": "rocketbox: 1", "step": "apply"}),
        lambda caller, name: caller.post("/system/definitions", {"text": "rocketbox: 1"}),
    ),
    "POST api/v1/system/backups": Act(
        lambda client, name: client.post(reverse("backup_create")),
        lambda caller, name: caller.ask("POST", "/system/backups"),
    ),
    "PUT api/v1/system/backups/schedule": Act(
        lambda client, name: client.post(reverse("backups"), {"every_hours": 24, "keep": 3}),
        lambda caller, name: caller.ask("PUT", "/system/backups/schedule", {"every_hours": 12, "keep": 3}),
    ),
    "POST api/v1/system/backups/<name>/checks": Act(
        lambda client, name: client.post(reverse("backup_check", args=[_backup()])),
        lambda caller, name: caller.ask("POST", f"/system/backups/{_backup()}/checks"),
    ),
    "POST api/v1/reports/runs": Act(
        lambda client, name: client.post(reverse("report_run_create"), {"day": "today"}),
        lambda caller, name: caller.post("/reports/runs", {"day": "today"}),
    ),
    "POST api/v1/reports/runs/<run>/cancel": Act(
        lambda client, name: client.post(reverse("report_run_cancel", args=[_report_run()])),
        lambda caller, name: caller.ask("POST", f"/reports/runs/{_report_run()}/cancel"),
    ),
    "PATCH api/v1/reports/settings": Act(
        lambda client, name: client.post(reverse("report_settings_change"), REPORTS | {"keep_days": 7}),
        lambda caller, name: caller.patch("/reports/settings", {"keep_days": 9}),
    ),
    "POST api/v1/delayed/acts": Act(
        lambda client, name: client.post(reverse("delayed_act"), {"what": "drop", "topic": name, "step": "apply"}),
        lambda caller, name: caller.post("/delayed/acts", {"action": "drop", "filter": {"topic": name}}),
    ),
    "POST api/v1/transactions/checks": Act(
        lambda client, name: client.post(reverse("transaction_check"), {"topic": name, "step": "apply"}),
        lambda caller, name: caller.post("/transactions/checks", {"topic": name}),
    ),
    "POST api/v1/transactions/decisions": Act(
        lambda client, name: client.post(
            reverse("transaction_decide"), {"what": "commit", "reason": "x", "pick": f"{_half(name)}-", "step": "apply"}
        ),
        lambda caller, name: caller.post(
            "/transactions/decisions",
            {"action": "commit", "reason": "x", "places": [{"half_offset": _half(name)}]},
        ),
    ),
    "POST api/v1/transactions/resumes": Act(
        lambda client, name: client.post(
            reverse("transaction_resume", args=[_discarded(name)]), {"reason": "x", "step": "apply"}
        ),
        lambda caller, name: caller.post("/transactions/resumes", {"ref": _discarded(name), "reason": "x"}),
    ),
    "GET api/v1/messages/<path:ref>/body": Act(
        lambda client, name: client.get(reverse("message_content", args=[_ref(client, name)])),
        lambda caller, name: caller.get(f"/messages/{_ref(caller.client, name)}/body"),
    ),
    "GET api/v1/messages/<path:ref>/record": Act(
        lambda client, name: client.get(reverse("message_raw", args=[_ref(client, name)])),
        lambda caller, name: caller.get(f"/messages/{_ref(caller.client, name)}/record"),
    ),
}


@pytest.fixture(autouse=True)
def _users_of_the_wire(running: RunningEngine, tmp_path: Path) -> Iterator[None]:
    with wire_users(running.window, tmp_path / "wire-users"):
        yield


@pytest.fixture(autouse=True)
def _reports() -> Iterator[None]:
    """A report runner that is not started, so that runs stay waiting."""
    shutil.rmtree(records.directory(), ignore_errors=True)
    acts.use(ReportRunner())
    yield
    acts.use(None)


def _report_run() -> str:
    """Create the only waiting run; return its id."""
    shutil.rmtree(records.directory(), ignore_errors=True)
    made = new_record("2026-01-01", "the-admin", "user")
    return records.begin(made).id


def _need(name: str) -> str:
    """Return the key of a problem that needs attention: the name's dead letters."""
    return f"dead_letters:dead_letters:{name}"


def _mute(name: str) -> int:
    """Mute the problem of this name; return the id of the mute."""
    rows = [{"id": 7, "key": _need(name), "sentence": "x", "reason": "known", "by": "somebody", "at_ms": now_ms(),
             "until_ms": now_ms() + 60_000}]  # fmt: skip
    Setting.objects.update_or_create(key="muted-needs", defaults={"value": {"mutes": rows, "last_id": 7}})
    return 7


def _rule(name: str) -> int:
    return int(AlertRule.objects.create(name=name, figure="lag_messages", above=1).pk)


def _channel(name: str) -> int:
    return int(AlertChannel.objects.create(name=name, kind="webhook", address="http://127.0.0.1:1/").pk)


def _silence() -> int:
    until_ms = now_ms() + 3_600_000
    return int(AlertSilence.objects.create(until_ms=until_ms, reason="deploy", by="x", created_at_ms=now_ms()).pk)


_members: list[Member] = []


@pytest.fixture(autouse=True)
def _members_leave() -> Iterator[None]:
    yield
    while _members:
        _members.pop().close()


def _member(name: str) -> str:
    """Connect a member of the group that answers requests; return its client id."""
    _members.append(Member(runtime.window().system().broker_address, f"member-of-{name}", name, name))
    return f"member-of-{name}"


def _reset(name: str) -> int:
    """Make a reset that can be undone; return its id."""
    window = runtime.window()
    done = window.offset_commands.reset(name, name, window.offset_target("latest"))
    assert done.id is not None
    return done.id


def _running_job() -> str:
    """Create a running job; return its id. Its cancellation writes one audit line, and its end another one later."""
    job = jobs.Job(jobs.new_id(), "audit-check", "the-admin", "user", 0, {})
    for other in jobs.board().jobs():
        jobs.board().end(other, "done")
    jobs.board().add(job)
    assert jobs.board().take_next() is job
    return job.id


def _slow_replay(name: str) -> str:
    """Start a replay that runs long enough to be controlled; return its job id."""
    plan = runtime.window().replay_commands.start(name, rate=1)
    assert plan.job is not None
    return plan.job.id


def _backup() -> str:
    """Create a backup file of any content; return its name."""
    path = backups.made_directory() / "rocketbox-20260102-030405.tar"
    path.write_bytes(b"x")
    return path.name


def _half(name: str) -> int:
    """Send the half message of an open transaction; return its queue offset."""
    return int(runtime.window().sender.send(name, b"x", half_of="PG", queue_id=0).queue_offset)


def _discarded(name: str) -> str:
    """Set a transaction aside; return the offset id of its copy."""
    found = runtime.running()
    assert found is not None
    return set_aside(found.engine, name)


def _ref(client: Client, topic: str) -> str:
    return str(client.get(f"/api/v1/topics/{topic}/messages").json()["items"][0]["offset_id"])


@pytest.fixture
def name(running: RunningEngine) -> Callable[[], str]:
    """Make a topic and a group of the same new name, with messages, for each of two halves."""

    def make() -> str:
        made = next(NAMES)
        running.window.topic_commands.create(made, read_queues=4, write_queues=4)
        make_group(running, made)
        put_dead_letters(running, made, 5)
        running.window.users.create(made)
        running.window.users.put_entry(made, "Topic:old", ["Sub"])
        return made

    return make


@pytest.fixture
def person(client_as) -> Client:
    """An administrator with all rights, who has just entered the password."""
    return client_as("admin", "may_read_bodies", "may_export")


def test_whatever_changes_something_is_tried_below():
    assert {key for key in PAGE_OF if not key.startswith("GET ")} <= set(ACTS)


@pytest.mark.parametrize("operation", ACTS)
def test_both_halves_ask_for_a_recent_password_or_neither_does(person, running, name, operation):
    act = ACTS[operation]
    first, second = name(), name()
    for one in (first, second):
        running.put(one, b"x")
    age_login(person)
    page = act.page(person, first)
    page_asks = page.status_code == 302 and page.headers["Location"].startswith(reverse("confirm_password"))
    answer = act.api(Caller(person), second)
    api_asks = answer.status_code == 403
    if api_asks:
        problem_of(answer, 403, "confirm_password")
    assert page_asks == api_asks, (page.status_code, answer.content)


def test_what_only_says_what_a_clean_up_would_delete_asks_for_no_password(person, running):
    age_login(person)
    assert answer_of(Caller(person).post("/clean-ups?dry_run=true", {"kind": "groups", "q": "none-such"}))["count"] == 0


@pytest.mark.parametrize("operation", ACTS)
def test_both_halves_leave_the_same_line_in_the_audit_log(person, running, name, operation):
    act = ACTS[operation]
    first, second = name(), name()
    if "DELETE" not in operation:
        running.put(first, b"x")
        running.put(second, b"x")
    said = []
    for run in (lambda: act.page(person, first), lambda: act.api(Caller(person), second)):
        AuditEntry.objects.all().delete()
        for waiting in jobs.board().jobs():  # of the other half
            jobs.board().end(waiting, "done")
        shutil.rmtree(records.directory(), ignore_errors=True)
        response = run()
        assert response.status_code in (200, 201, 202, 204, 302), response.content
        said.append([(one.action, one.actor, one.actor_kind, one.result) for one in AuditEntry.objects.all()])
    assert said[0] == said[1]
    assert len(said[0]) == 1


FAILING = {
    "POST api/v1/messages/<path:ref>/deliveries": "asking.consume_directly",
    "POST api/v1/replication/set/switch": "member.switch",
    "POST api/v1/topics": "topic_commands.create",
    "PATCH api/v1/topics/<topic>": "topic_commands.edit",
    "POST api/v1/groups": "group_commands.create",
    "PATCH api/v1/groups/<group>": "group_commands.edit",
    "POST api/v1/clean-ups": "clean_ups.clean",
    "POST api/v1/wire-users": "users.create",
    "POST api/v1/wire-imports": "users.import_accounts",
    "PATCH api/v1/wire-users/<name>/quotas": "users.set_quotas",
    "DELETE api/v1/wire-users/<name>/quotas": "users.set_quotas",
    "POST api/v1/wire-users/<name>/entries": "users.put_entry",
    "DELETE api/v1/wire-users/<name>/entries/<path:resource>": "users.remove_entry",
    "POST api/v1/wire-users/<name>/acts/<act>": "users.act",
    "PATCH api/v1/system/config": "option_commands.change",
    "POST api/v1/system/retention/clean": "retention.clean",
    "POST api/v1/topics/<topic>/messages": "sender.send",
    "POST api/v1/groups/<group>/replays": "replay_commands.start",
    "POST api/v1/groups/<group>/retries/acts": "waiting_commands.run",
    "POST api/v1/delayed/acts": "waiting_commands.run",
    "POST api/v1/transactions/checks": "transaction_commands.act",
    "POST api/v1/transactions/decisions": "transaction_commands.act",
    "POST api/v1/transactions/resumes": "transaction_commands.resume",
    "POST api/v1/groups/<group>/pause": "group_commands.edit",
    "POST api/v1/groups/<group>/resume": "group_commands.edit",
    "POST api/v1/groups/<group>/clone": "group_commands.create",
    "POST api/v1/groups/<group>/clients/<path:client_id>/running-info": "asking.running_info",
    "POST api/v1/groups/<group>/offset-resets": "offset_commands.reset",
    "POST api/v1/groups/<group>/offset-resets/<int:reset_id>/undo": "offset_commands.undo",
}


@pytest.mark.parametrize("operation", FAILING)
def test_both_halves_write_down_what_did_not_come_to_its_end(person, running, name, operation, monkeypatch):
    def fail(*arguments: Any, **options: Any) -> None:
        raise Unavailable("The disk did not answer.")

    act = ACTS[operation]
    first, second = name(), name()
    subject, method = FAILING[operation].split(".")
    failing = MadeSet if subject == "member" else type(getattr(running.window, subject))
    monkeypatch.setattr(failing, method, fail)
    for run in (lambda: act.page(person, first), lambda: act.api(Caller(person), second)):
        AuditEntry.objects.all().delete()
        run()
        assert [one.result for one in AuditEntry.objects.all()] == ["failed"]


@pytest.mark.parametrize("operation", ACTS)
def test_a_page_asks_for_the_name_where_it_is_said_and_nowhere_else(person, name, operation):
    act = ACTS[operation]
    assert act.named == ((operation, "typed name") in DIFFERENT)
    if act.named:
        made = name()
        address = reverse(PAGE_OF[operation], args=[made])
        assert person.post(address, {"name": "another"}).status_code == 422
        assert not AuditEntry.objects.exists()


def test_only_who_may_export_takes_more_of_a_body_than_its_page_shows(by_token, running, topic):
    running.put(topic, b"x" * 70_000)
    reader = by_token("viewer", "may_read_bodies")
    assert answer_of(reader.get(f"/messages/{topic}/0/0/body"))["truncated"]
    problem_of(reader.get(f"/messages/{topic}/0/0/body?max_bytes=65537"), 403, "forbidden")
    exporter = by_token("viewer", "may_read_bodies", "may_export")
    assert not answer_of(exporter.get(f"/messages/{topic}/0/0/body?max_bytes=70000"))["truncated"]


# --- tokens end with what they rest on


def test_a_token_of_a_session_whose_password_was_given_long_ago_is_not_made(client_as):
    client = client_as("admin")
    age_login(client)
    problem_of(Caller(client).post("/tokens", {"name": "stolen"}), 403, "confirm_password")
    assert not ApiToken.objects.exists()
