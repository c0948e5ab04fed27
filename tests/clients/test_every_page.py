"""Every page and every GET of the API while official clients hold pulls, locks and connections; see full_house.py.

The tables below name each address of the server. A new page or operation fails here until it is in them; an address
that takes a POST only need not be named.
"""

from __future__ import annotations

import csv
import html
import inspect
import io
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from django.urls import Resolver404, get_resolver, resolve

from appliance.api.api import openapi, operations
from spark_reports.reports.document import REPORTS
from tests.clients.full_house import (
    EXPRESSION,
    LONG_NAME,
    MEMBERS,
    PRODUCERS,
    SETTLE_LIMIT_S,
    TOPICS,
    USER,
    WAITING,
    FullHouse,
    full_house,
)
from tests.console.test_access import PAGES as ADDRESSES
from tests.console.test_access import address_of, every_pattern
from tests.support import report_days
from tests.support.directories import shared_directory
from tests.support.waiting import wait_for

pytestmark = pytest.mark.own

LANGUAGES = {"en": "en", "zh-hans": "zh-hans,zh;q=0.9"}

#: The name of an address -> what is asked of it. {small}, {large} and {dead} stand for messages' offset ids,
#: {replay} for a replay, {reset} for a reset of offsets, {job} for a job, {client} for a client.
PAGES: dict[str, list[str]] = {
    "overview": ["/"],
    "needs": ["/needs/"],
    "needs_panel": ["/needs/panel/"],
    "need_mute": ["/needs/mute/?key=dead_letters:dead_letters:shipping"],
    "broker_history": ["/history/", "/history/?span=1h", "/history/?from=1", "/history/?span=13mo"],
    "topic_history": ["/topics/orders/history/"],
    "group_history": ["/groups/billing/history/?span=7d"],
    "topics": ["/topics/", "/topics/?show=all", "/topics/?show=retry", "/topics/?show=dlq", "/topics/?q=no-such"],
    "topic": ["/topics/orders/", "/topics/sequence/", "/topics/never-used/", "/topics/%25RETRY%25billing/"],
    "topic_create": ["/create/topic/"],
    "topic_edit": ["/topics/orders/edit/"],
    "topic_delete": ["/topics/orders/delete/", "/topics/never-used/delete/"],
    "topic_purge": ["/topics/orders/purge/", "/topics/orders/purge/?before=10:00", "/topics/never-used/purge/"],
    "topic_schema": ["/topics/orders/schema/", "/topics/never-used/schema/"],
    "groups": ["/groups/", "/groups/?system=on", "/groups/?online=yes", "/groups/?q=no-such"],
    "group": [
        *(f"/groups/{group}/{tab}" for group in MEMBERS for tab in ("", "?tab=clients", "?tab=subscriptions")),
        "/groups/late/", "/groups/late/?tab=settings", "/groups/billing/?sort=-lag_time&q=orders",
        "/groups/billing/?sort=idle",
    ],
    "group_now": ["/groups/billing/now/", "/groups/late/now/?tab=clients"],
    "group_diagnosis": [*(f"/groups/{group}/diagnosis/" for group in MEMBERS), "/groups/late/diagnosis/"],
    "group_pause": ["/groups/billing/pause/"],
    "group_clone": ["/groups/billing/clone/"],
    "group_create": ["/create/group/"],
    "group_edit": ["/groups/billing/edit/"],
    "group_delete": ["/groups/billing/delete/", "/groups/late/delete/"],
    "clean_up": ["/clean-up/", "/clean-up/?kind=topics&idle_hours=0", "/clean-up/?kind=offsets"],
    "group_reset": ["/groups/billing/reset/", "/groups/billing/reset/?to=latest&step=preview", "/groups/late/reset/"],
    "group_resets": ["/groups/billing/resets/", "/groups/late/resets/"],
    "group_reset_done": ["/groups/late/resets/{reset}/"],
    "group_reset_progress": ["/groups/late/resets/{reset}/progress/"],
    "group_reset_undo": ["/groups/late/resets/{reset}/undo/"],
    "dead_letter_groups": ["/dead-letters/", "/dead-letters/?sort=group", "/dead-letters/?q=no-such"],
    "dead_letters": ["/dead-letters/shipping/", "/dead-letters/shipping/?replayed=no&retries=17&origin=no-such",
                     "/dead-letters/shipping/?no_origin=yes&key=no-such&from=1&to=2",
                     "/dead-letters/shipping/?bodies=on"],
    "archive_create": ["/dead-letters/shipping/archive/", "/dead-letters/shipping/archive/?replayed=no&from=1"],
    "group_retries": [*(f"/groups/{group}/retries/" for group in MEMBERS), "/groups/late/retries/",
                      "/groups/late/retries/?level=18"],
    "group_retries_act": ["/groups/billing/retries/act/?what=drop",
                          "/groups/billing/retries/act/?what=deliver_now&level=3"],
    "replay_create": ["/dead-letters/shipping/replay/", "/dead-letters/shipping/replay/?replayed=no&from_ms=1",
                      "/dead-letters/shipping/replay/?pick=0-0"],
    "replay": ["/replays/{replay}/", "/replays/{replay}/?result=failed"],
    "replay_progress": ["/replays/{replay}/progress/"],
    "backups": ["/system/backups/"],
    "support_bundle": ["/system/bundle/", "/system/bundle/?show=log.txt"],
    "support_bundle_file": ["/system/bundle/file/"],
    "definitions": ["/system/definitions/"],
    "definitions_file": ["/system/definitions/file/"],
    "delayed": ["/delayed/", "/delayed/?span=7d&show=retries", "/delayed/?q=no-such", "/delayed/?level=0&topic=no"],
    "transactions": ["/transactions/", "/transactions/?show=discarded", "/transactions/?show=resolved&by=check",
                     "/transactions/?group=no-such"],
    "delayed_act": ["/delayed/act/?what=drop", "/delayed/act/?what=deliver_now&topic=no-such"],
    "transaction_check": ["/transactions/check/"],
    "transaction_resume": ["/transactions/{small}/resume/"],
    "reports": ["/reports/"],
    "report": [f"/reports/{report_days.DAY}/{report}/" for report in REPORTS],
    "report_runs": ["/reports/runs/"],
    "report_run": [f"/reports/runs/{report_days.RUN}/", f"/reports/runs/{report_days.FAILED_RUN}/"],
    "report_run_progress": [f"/reports/runs/{report_days.RUN}/progress/"],
    "report_settings": ["/reports/settings/"],
    "report_settings_change": ["/reports/settings/change/"],
    "alerts": ["/alerts/", "/alerts/?page=2"],
    "alert": ["/alerts/1/"],
    "alert_rules": ["/alerts/rules/"],
    "alert_rule": ["/alerts/rules/1/"],
    "alert_rule_create": ["/alerts/rules/new/", "/alerts/rules/new/?figure=lag_messages&pattern=wall"],
    "alert_rule_delete": ["/alerts/rules/1/delete/"],
    "alert_channels": ["/alerts/channels/"],
    "alert_channel": ["/alerts/channels/1/"],
    "alert_channel_create": ["/alerts/channels/new/"],
    "alert_channel_delete": ["/alerts/channels/1/delete/"],
    "alert_silence_create": ["/alerts/silences/new/", "/alerts/silences/new/?rule=1&pattern=wall"],
    "clients": ["/clients/", "/clients/?role=consumer", "/clients/?role=producer", "/clients/?group=wall",
                "/clients/?q=no-such"],
    "client": ["/clients/{client}/"],
    "messages": ["/messages/", "/messages/?topic=orders", "/messages/?topic=orders&order=oldest",
                 "/messages/?topic=orders&queue=1", "/messages/?topic=never-used"],
    "message": ["/messages/{small}/", "/messages/{large}/", "/messages/{dead}/"],
    "message_content": ["/messages/{small}/content/", "/messages/{large}/content/?as=hex", "/messages/{dead}/content/"],
    "message_raw": ["/messages/{large}/raw/"],
    "message_download": ["/messages/{large}/download/"],
    "send_message": ["/messages/send/", "/messages/send/?topic=orders", "/messages/send/?from={large}"],
    "message_run": ["/messages/{small}/run/", "/messages/{dead}/run/"],
    "connect": ["/connect/", "/connect/?topic=orders&language=go", "/connect/?user=shop&tls=no"],
    "connect_try": ["/connect/try/", "/connect/try/?client=python&topic=orders&group=billing"],
    "message_tail": ["/messages/tail/", "/messages/tail/?topic=orders&tags=a"],
    "message_export": ["/messages/export/", "/messages/export/?topic=orders&filter=tag+%3D+%27a%27"],
    "message_copy": ["/messages/copy/", "/messages/copy/?topic=orders&filter=tag+%3D+%27a%27"],
    "message_import": ["/messages/import/", "/messages/import/?topic=orders"],
    "search": ["/search/", "/search/?q=second", "/search/?q=no-such-key", "/search/?q=text-1&topic=orders&bodies=on"],
    "replication": ["/replication/"],
    "replication_now": ["/replication/now/"],
    "system": ["/system/"],
    "system_checks": ["/system/checks/"],
    "system_config": ["/system/config/", "/system/config/?q=flush"],
    "system_config_change": ["/system/config/change/"],
    "system_logs": ["/system/log/", "/system/log/?level=WARNING", "/system/log/?q=joined"],
    "jobs": ["/jobs/", "/jobs/?kind=audit-check", "/jobs/?state=failed"],
    "job": ["/jobs/{job}/"],
    "job_progress": ["/jobs/{job}/progress/"],
    "audit": ["/system/audit/", "/system/audit/?q=no-such"],
    "users": ["/system/users/", "/system/users/?q=no-such&role=viewer&state=disabled&sort=-last_sign_in"],
    "user": ["/system/users/1/"],
    "user_create": ["/system/users/new/"],
    "wire_users": ["/system/wire-users/", "/system/wire-users/?q=no-such"],
    "wire_user": ["/system/wire-users/shop/",
                  "/system/wire-users/shop/?resource=Topic:orders&action=Pub&address=10.0.0.1"],
    "wire_user_compare": ["/system/wire-users/shop/compare/"],
    "wire_access": ["/system/wire-access/", "/system/wire-access/?resource=Topic:orders&sort=-type"],
    "wire_refusals": ["/system/wire-refusals/", "/system/wire-refusals/?q=no-such&sort=count"],
    "wire_user_create": ["/create/wire-user/"],
    "wire_import": ["/create/wire-users/"],
    "tokens": ["/system/tokens/"],
    "token_create": ["/system/tokens/new/"],
    "account": ["/account/"],
    "second_factor": ["/account/second-factor/"],
    # Codes and secrets that are shown only once.
    "second_factor_codes": ["/account/codes/no-such/"],
    "user_secret": ["/system/users/1/made/no-such/"],
    "wire_user_secret": ["/system/wire-users/shop/made/no-such/"],
    "confirm_password": ["/confirm/"],
    "api_docs": ["/api/v1/docs"],
    "openapi": ["/api/v1/openapi.json"],
    "healthz": ["/healthz"],
    "readyz": ["/readyz"],
    "metrics": ["/metrics"],
    "nsaddr": ["/rocketmq/nsaddr"],
    "nsaddr_unit": ["/rocketmq/nsaddr-unit?nofix=1"],
    "static_file": ["/static/console.css"],
}  # fmt: skip

#: Pages that show nothing to a signed-in user, and their answer instead.
NO_PAGES: dict[str, tuple[str, int]] = {
    # Users who have signed in need not do so again.
    "login": ("/login/", 302),
    # No password was given before.
    "login_code": ("/login/code/", 302),
    # No provider is set up.
    "login_oidc": ("/login/oidc/", 404),
    "login_oidc_back": ("/login/oidc/back/", 404),
    # A link that was never made.
    "set_password": ("/password/no-such/", 404),
    # This broker is in no set.
    "set_switch": ("/replication/switch/", 409),
    "set_adopt": ("/replication/adopt/", 409),
    "quarantine": ("/replication/quarantine/no-such/", 404),
    # There is no token of that number.
    "token_created": ("/system/tokens/1/made/no-such/", 404),
    # A file, of which a test of its own reads all.
    "replay_results_file": ("/replays/no-such/results/", 404),
    # No job of the walk has a file.
    "job_file": ("/jobs/no-such/files/no-such/", 404),
    "backup_download": ("/system/backups/no-such/download/", 404),
    # They tell of an act, or ask which things it is about.
    "delayed_done": ("/delayed/done/", 302),
    "group_retries_done": ("/groups/billing/retries/done/", 302),
    "transaction_done": ("/transactions/done/", 302),
    "transaction_decide": ("/transactions/decide/?what=commit", 302),
    # The last Super user stays.
    "wire_user_delete": ("/system/wire-users/shop/delete/", 302),
    # The set-up is done.
    "setup": ("/setup/secret/", 404),
    "setup_administrator": ("/setup/secret/administrator/", 404),
    "setup_address": ("/setup/address/", 404),
    "setup_message": ("/setup/message/", 404),
    "setup_message_count": ("/setup/message/count/", 404),
}

#: Parts of pages, which those ask for themselves.
FRAGMENTS = {
    "group_now",
    "group_reset_progress",
    "job_progress",
    "needs_panel",
    "replication_now",
    "replay_progress",
    "report_run_progress",
}

#: A stream has a test of its own below.
STREAMS = {"overview_live"}

# Those listed nowhere here change something, and take a POST only.
NO_PAGES |= {name: (address_of(route), 405) for name, route in ADDRESSES if name not in {*PAGES, *NO_PAGES, *STREAMS}}

#: Pages that are tables, as files -> their first column.
DOWNLOADS = {
    "clients": ("/clients/?format=csv", "client_id"),
    "broker_history": ("/history/?format=csv", "from_ms"),
    "topic_history": ("/topics/orders/history/?format=csv", "from_ms"),
    "group_history": ("/groups/billing/history/?format=csv", "from_ms"),
    "topics": ("/topics/?show=all&format=csv", "topic"),
    "groups": ("/groups/?format=csv", "group"),
    "dead_letter_groups": ("/dead-letters/?format=csv", "group"),
    "group": ("/groups/billing/?format=csv", "topic"),
    "group_resets": ("/groups/late/resets/?format=csv", "id"),
    "group_reset_done": ("/groups/late/resets/{reset}/?format=csv", "topic"),
    "dead_letters": ("/dead-letters/shipping/?format=csv", "dead_since"),
    "group_retries": ("/groups/late/retries/?format=csv", "due"),
    "users": ("/system/users/?format=csv", "name"),
    "wire_users": ("/system/wire-users/?format=csv", "name"),
    "wire_access": ("/system/wire-access/?resource=Topic:orders&format=csv", "user"),
    "wire_refusals": ("/system/wire-refusals/?format=csv", "user"),
    "audit": ("/system/audit/?format=csv", "id"),
    "jobs": ("/jobs/?format=csv", "job"),
    "messages": ("/messages/?topic=orders&format=csv", "topic"),
    "report": (f"/reports/{report_days.DAY}/digest/?format=csv&table=groups", "group"),
    "report_runs": ("/reports/runs/?format=csv", "id"),
}

#: Route of each GET of the API -> what is asked below /api/v1. Parameters that are one of several words are tried with
#: each of them besides.
OPERATIONS: dict[str, list[str]] = {
    "me": ["/me"],
    "me/sessions": ["/me/sessions"],
    "users": ["/users", "/users?limit=1", "/users?q=no-such&role=viewer&state=disabled&sort=-name"],
    "wire-users": ["/wire-users", "/wire-users?limit=1&sort=-name"],
    "wire-access": ["/wire-access?resource=Topic:orders", "/wire-access?resource=Group:g&limit=1&sort=type"],
    "wire-refusals": ["/wire-refusals", "/wire-refusals?limit=1&sort=user"],
    "wire-users/<name>": ["/wire-users/shop"],
    "wire-users/<name>/entries": ["/wire-users/shop/entries"],
    "wire-users/<name>/comparison": ["/wire-users/shop/comparison"],
    "wire-users/<name>/decision": ["/wire-users/shop/decision?resource=Topic:orders&action=Pub"],
    "users/<username>": [f"/users/{USER}"],
    "users/<username>/sessions": [f"/users/{USER}/sessions"],
    "system/second-factor": ["/system/second-factor"],
    "tokens": ["/tokens"],
    "audit": ["/audit", "/audit?limit=1"],
    "jobs": ["/jobs", "/jobs?limit=1", "/jobs?kind=audit-check"],
    "jobs/<job>": ["/jobs/{job}"],
    # That of no file is a test of its own.
    "jobs/<job>/files/<name>": [],
    "replication": ["/replication"],
    # That of a member of a set is a test of its own.
    "replication/set": [],
    # Nothing was ever cut here.
    "replication/quarantine/<name>": [],
    "system": ["/system"],
    "system/checks": ["/system/checks"],
    "system/log": ["/system/log", "/system/log?level=WARNING&limit=5", "/system/log?q=no-such"],
    "system/config": ["/system/config"],
    "system/retention": ["/system/retention"],
    "broker": ["/broker"],
    "needs": ["/needs"],
    "needs/mutes": ["/needs/mutes"],
    "metrics": ["/metrics"],
    "metrics/series": ["/metrics/series?metric=in", "/metrics/series?metric=out&group=billing",
                       "/metrics/series?metric=in&topic=orders", "/metrics/series?metric=lag&from=1&points=10",
                       "/metrics/series?metric=group_lag&group=billing&step=60",
                       "/metrics/series?metric=topic_in_rate&topic=orders&seconds=600"],
    "connect": ["/connect", "/connect?topic=orders&user=shop&language=go"],
    "connect/trial": ["/connect/trial?client=python", "/connect/trial?client=go&topic=orders&user=shop"],
    "topics": ["/topics", "/topics?limit=1", "/topics?system=true"],
    "topics/<topic>": ["/topics/orders"],
    "topics/<topic>/stats": ["/topics/orders/stats"],
    # No topic of the house has one.
    "topics/<topic>/schema": [],
    "topics/<topic>/queues": ["/topics/orders/queues"],
    "topics/<topic>/route": ["/topics/orders/route"],
    "topics/<topic>/groups": ["/topics/orders/groups", "/topics/notices/groups"],
    "topics/<topic>/producers": ["/topics/orders/producers", "/topics/sequence/producers"],
    "topics/<topic>/messages": ["/topics/orders/messages", "/topics/never-used/messages",
                                "/topics/orders/messages?filter=body+CONTAINS+%27a%27"],
    "topics/<topic>/tail": ["/topics/orders/tail", "/topics/orders/tail?tags=a&one_in=2&limit=1"],
    "groups": ["/groups", "/groups?limit=1", "/groups?system=true", "/groups?online=true", "/groups?online=false"],
    "groups/<group>": [*(f"/groups/{group}" for group in MEMBERS), "/groups/late"],
    "groups/<group>/queues": [*(f"/groups/{group}/queues" for group in MEMBERS), "/groups/late/queues?limit=1"],
    "groups/<group>/pace": [*(f"/groups/{group}/pace" for group in MEMBERS), "/groups/late/pace"],
    "groups/<group>/diagnosis": [*(f"/groups/{group}/diagnosis" for group in MEMBERS), "/groups/late/diagnosis"],
    "clients/<path:client_id>": ["/clients/{client}"],
    "groups/<group>/offset-resets": ["/groups/billing/offset-resets", "/groups/late/offset-resets"],
    "groups/<group>/offset-resets/<int:reset_id>": ["/groups/late/offset-resets/{reset}"],
    "dead-letters": ["/dead-letters", "/dead-letters?limit=1"],
    "dead-letters/expiring": ["/dead-letters/expiring", "/dead-letters/expiring?hours=100"],
    "groups/<group>/dead-letters": ["/groups/shipping/dead-letters",
                                    "/groups/shipping/dead-letters?replayed=no&retries=17"],
    "groups/<group>/dead-letters/summary": ["/groups/shipping/dead-letters/summary"],
    "groups/<group>/retries": ["/groups/billing/retries", "/groups/shipping/retries"],
    "replays": ["/replays", "/replays?group=shipping"],
    "replays/<job>": ["/replays/{replay}"],
    "replays/<job>/results": ["/replays/{replay}/results"],
    "system/backups": ["/system/backups"],
    "system/bundle": ["/system/bundle"],
    "system/bundle/file": [],
    "system/backups/<name>/file": [],
    "system/definitions/file": [],
    "delayed": ["/delayed", "/delayed?q=no-such", "/delayed?limit=1&level=0"],
    "delayed/histogram": ["/delayed/histogram", "/delayed/histogram?bucket_ms=3600000&buckets=24"],
    "transactions": ["/transactions"],
    "transactions/open": ["/transactions/open", "/transactions/open?group=no-such"],
    "transactions/discarded": ["/transactions/discarded"],
    "transactions/resolved": ["/transactions/resolved", "/transactions/resolved?limit=1"],
    "groups/<group>/clients": [*(f"/groups/{group}/clients" for group in MEMBERS), "/groups/late/clients"],
    "groups/<group>/progress": [*(f"/groups/{group}/progress" for group in MEMBERS), "/groups/late/progress"],
    "reports": ["/reports"],
    "reports/days/<day>/<report>": [f"/reports/days/{report_days.DAY}/{report}" for report in REPORTS],
    # Files have a test of their own in tests/api/test_reports.py.
    "reports/days/<day>/<report>/plots/<plot>": [],
    "reports/days/<day>/<report>/tables/<table>": [],
    "reports/runs": ["/reports/runs", "/reports/runs?limit=1"],
    "reports/runs/<run>": [f"/reports/runs/{report_days.RUN}", f"/reports/runs/{report_days.FAILED_RUN}"],
    "reports/runs/<run>/log": [f"/reports/runs/{report_days.FAILED_RUN}/log"],
    "reports/settings": ["/reports/settings"],
    "alerts": ["/alerts", "/alerts?on=true", "/alerts?limit=1&on=false"],
    "alerts/<int:alert_id>": ["/alerts/1"],
    "alert-rules": ["/alert-rules"],
    "alert-rules/<int:rule_id>": ["/alert-rules/1"],
    "alert-channels": ["/alert-channels"],
    "alert-channels/<int:channel_id>": ["/alert-channels/1"],
    "alert-silences": ["/alert-silences"],
    "clients": ["/clients", "/clients?limit=1", "/clients?group=wall"],
    "search": ["/search?q=second&body_chars=20", "/search?q={small}", "/search?q=orders/0/0"],
    "messages/<path:ref>": ["/messages/{small}", "/messages/orders/0/0"],
    "messages/<path:ref>/body": ["/messages/{small}/body", "/messages/{large}/body"],
    "messages/<path:ref>/record": ["/messages/{small}/record"],
}  # fmt: skip


#: Names in braces above.
REFS = ("small", "large", "dead", "replay", "reset", "client", "job")


@pytest.fixture(scope="module")
def house(request: pytest.FixtureRequest) -> Iterator[FullHouse]:
    """Started once: the clients are at work through all of this file."""
    with full_house(shared_directory(request, "full-house")) as found:
        report_days.put(found.server.data_dir, groups=("billing", "shipping"))
        report_days.put_runs(found.server.data_dir)
        yield found


@pytest.fixture(autouse=True)
def nothing_goes_wrong(request: pytest.FixtureRequest) -> Iterator[None]:
    """No traceback and no error in the server's log, and no template that uses an attribute that does not exist."""
    if "house" not in request.fixturenames:
        yield
        return
    log = request.getfixturevalue("house").server.log_path
    begin = log.stat().st_size
    yield
    said = log.read_bytes()[begin:].decode().splitlines()
    wrong = [line for line in said if re.search(r" (ERROR|CRITICAL) |Traceback|^\w+Error", line)]
    assert not wrong, "\n".join(wrong[:20])


def names_of_addresses() -> set[str]:
    return {
        name for name, route in every_pattern() if not route.startswith("api/v1/") or name in ("openapi", "api_docs")
    }


def gets() -> dict[str, str]:
    """Route of each GET of the API -> its path in the description."""
    return {one.route.removeprefix("api/v1/"): one.path for one in operations() if one.method == "GET"}


# --- nothing is left out


def test_every_page_is_walked():
    assert names_of_addresses() == {*PAGES, *NO_PAGES, *STREAMS}


def test_every_address_of_the_walk_leads_where_its_name_says():
    ids = dict.fromkeys(REFS, "0" * 32)
    for name, address in (
        *((name, address) for name, addresses in PAGES.items() for address in addresses),
        *((name, address) for name, (address, _) in (NO_PAGES | DOWNLOADS).items()),
    ):
        assert resolve(urlsplit(address.format(**ids)).path).url_name == name


def test_every_get_of_the_api_is_walked():
    assert set(gets()) == set(OPERATIONS)
    ids = dict.fromkeys(REFS, "0" * 32)
    for route, addresses in OPERATIONS.items():
        for address in addresses:
            path = urlsplit(f"/api/v1{address.format(**ids)}").path
            assert resolve(path).route == f"api/v1/{route}", address


def test_every_table_that_can_be_downloaded_is_walked():
    patterns = {pattern.name: pattern.view() for pattern in _console_patterns()}
    assert {name for name, view in patterns.items() if "wants_csv" in _names_in(view, set())} == set(DOWNLOADS)


def _names_in(view: Any, seen: set[str]) -> set[str]:
    """Return the names that a view calls, and that its module's own helpers call for it."""
    function = inspect.unwrap(view)
    names = set(function.__code__.co_names) - seen
    seen |= names
    helpers = (function.__globals__.get(name) for name in names if name.startswith("_"))
    return names.union(*(_names_in(one, seen) for one in helpers if inspect.isfunction(one)))


def _console_patterns() -> list[Any]:
    return list(next(one for one in get_resolver().url_patterns if str(one.pattern) == "").url_patterns)


# --- each is shown


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_shown(house: FullHouse, name: str, language: str):
    for address in PAGES[name]:
        answer = house.visitor.get(address.format(**house.refs), LANGUAGES[language])
        assert answer.status == 200, f"{address}: {answer.status}"
        # A page that waits for a job learns from a header that the job has ended.
        assert answer.body or answer.headers["HX-Refresh"] == "true"
        assert answer.headers["Content-Language"] == language
        if answer.headers["Content-Type"].startswith("text/"):  # a message's body is any bytes
            assert not re.search("This page has no parameter|本页没有名为", answer.text), address
        if answer.headers["Content-Type"].startswith("text/html") and name not in FRAGMENTS:
            assert f'lang="{language}"' in answer.text.lower()
            assert "</html>" in answer.text


@pytest.mark.parametrize("name", NO_PAGES)
def test_what_is_no_page_says_so(house: FullHouse, name: str):
    address, status = NO_PAGES[name]
    assert house.visitor.get(address).status == status


@pytest.mark.parametrize("name", DOWNLOADS)
def test_a_table_is_downloaded(house: FullHouse, name: str):
    address, first = DOWNLOADS[name]
    answer = house.visitor.get(address.format(**house.refs))
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    header, *rows = csv.reader(io.StringIO(answer.text))
    assert header[0] == first
    assert rows
    assert {len(row) for row in rows} == {len(header)}


@pytest.mark.parametrize("route", OPERATIONS)
def test_an_operation_answers(house: FullHouse, route: str):
    described = openapi()["paths"][gets()[route]]["get"]
    addresses = list(OPERATIONS[route])
    for parameter in described["parameters"]:
        for word in parameter["schema"].get("enum", ()):
            first = OPERATIONS[route][0]
            addresses.append(f"{first}{'&' if '?' in first else '?'}{parameter['name']}={word}")
    for address in addresses:
        assert house.visitor.json(address.format(**house.refs)) is not None


class Links(HTMLParser):
    """Collects the addresses that a page links to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src", "data-url") and value and not value.startswith(("#", "data:")):
                self.found.add(value)


def test_every_link_of_every_page_leads_somewhere(house: FullHouse):
    """Sort orders, filters, pagers, messages, groups, topics, files: whatever the pages above offer."""
    origin = f"http://{house.server.ready['http']}"
    wanted = [address.format(**house.refs) for addresses in PAGES.values() for address in addresses]
    seen = set(wanted)
    found: dict[str, str] = {}
    for address in wanted:
        answer = house.visitor.get(address)
        if answer.headers["Content-Type"].startswith("text/html"):
            for link in Links(answer.text).found:
                whole = urljoin(origin + address, link).partition("#")[0]
                assert whole.startswith(origin + "/"), f"{address} leads elsewhere: {link}"
                found.setdefault(whole.removeprefix(origin), address)
    assert len(found) > 100
    expected = dict(NO_PAGES.values())
    wrong = []
    for address, on in found.items():
        if address in seen or _is_stream(address):
            continue
        answer = house.visitor.get(address)
        if urlsplit(address).path == "/search/" and answer.status == 302:  # to the one message that it names
            answer = house.visitor.get(answer.headers["Location"])
        if answer.headers["Content-Type"].startswith("text/") and "This page has no parameter" in answer.text:
            wrong.append(f"{address} on {on}: a parameter is ignored")
        if answer.status != expected.get(urlsplit(address).path, 200):
            wrong.append(f"{address} on {on}: {answer.status}")
    assert not wrong, "\n".join(wrong)


def _is_stream(address: str) -> bool:
    try:
        return resolve(urlsplit(address).path).url_name in STREAMS
    except Resolver404:
        return False


# --- and shows what there is


def test_the_clients_page_names_all_clients_and_the_pulls_they_wait_in(house: FullHouse):
    def wait(wanted: dict[str, int]) -> None:
        what = f"these pulls wait: {wanted}"
        wait_for(lambda: all(house.waiting().get(one, 0) >= wanted[one] for one in wanted), what, SETTLE_LIMIT_S)

    wait(WAITING)
    house.hold_a_pull()
    wait({"auditors": 1})
    rows = house.clients()
    page = house.visitor.get("/clients/").text
    for row in rows:
        assert row["client_id"] in page
        assert row["address"] in page
    assert any(LONG_NAME in row["client_id"] for row in rows)
    assert {row["language"] for row in rows} == {"JAVA", "GO", "CPP"}
    assert {"5.3.3", "4.9.8"} <= {row["version"] for row in rows}
    consumers = [group for row in rows for group in row["consumer_groups"]]
    assert {group: consumers.count(group) for group in consumers} == MEMBERS
    producers = {group for row in rows for group in row["producer_groups"]}
    assert producers - {"shop-cpp"} == set(PRODUCERS), "what Java clients send back with is no user's producer"
    assert {row["client_id"] for row in house.visitor.json("/clients?role=producer")["items"]} == {
        row["client_id"] for row in rows if row["producer_groups"]
    }


def test_the_parked_pulls_of_all_clients_are_those_of_the_broker(house: FullHouse):
    def same() -> bool:
        total = house.metrics()["rocketbox_parked_pulls"]
        rows = house.clients()
        _, *lines = csv.reader(io.StringIO(house.visitor.get("/clients/?format=csv").text))
        return sum(row["parked_pulls"] for row in rows) == total == sum(int(line[-1]) for line in lines) > 0

    wait_for(same, "API, file and metrics say the same: nothing comes, so clients only renew their pulls")


@pytest.mark.parametrize("group", MEMBERS)
def test_a_groups_page_shows_its_members(house: FullHouse, group: str):
    members = house.visitor.json(f"/groups/{group}/clients")["items"]
    assert len(members) == MEMBERS[group]
    page = house.visitor.get(f"/groups/{group}/?tab=clients").text
    for member in members:
        assert member["client_id"] in page
        assert member["address"] in page


def test_the_page_of_an_ordered_group_shows_who_holds_its_queues(house: FullHouse):
    holders = {row["held_by"] for row in house.progress("ledger", "sequence")}
    assert len(holders) == 2
    page = house.visitor.get("/groups/ledger/").text
    for holder in holders:
        assert (
            len(re.findall(rf">{re.escape(holder)}</a>\s*<span class=\"faint\">· holds the lock", page))
            >= TOPICS["sequence"] // 2
        )


def test_members_that_subscribe_differently_are_told_of(house: FullHouse):
    page = house.visitor.get("/groups/quarrel/").text
    assert "Clients of this group subscribe differently to" in page
    assert house.visitor.json("/groups/quarrel")["conflicts"][0]["topic"] == "disputed"


def test_a_group_that_filters_shows_by_what(house: FullHouse):
    [wanted] = [one for one in house.visitor.json("/groups/choosy")["subscriptions"] if one["topic"] == "notices"]
    assert (wanted["expression"], wanted["kind"]) == (EXPRESSION, "SQL92")
    page = house.visitor.get("/groups/choosy/?tab=subscriptions").text
    assert html.escape(EXPRESSION) in page
    assert "<script>alert" not in page


def test_a_group_far_behind_shows_its_lag_and_is_on_the_front_page(house: FullHouse):
    queues = house.progress("late", "orders")
    assert [row["committed"] for row in queues] == [2, 1, 2, 2], "the reset is in force, fetched or not"
    assert all(row["lag"] == row["max_offset"] - row["committed"] > 0 for row in queues)
    lag = sum(row["lag"] for row in queues)
    assert house.visitor.json("/groups/late")["lag"] == lag
    assert f"{lag} messages behind" in house.visitor.get("/groups/late/").text
    assert {"group": "late", "lag": lag} in [
        {"group": row["group"], "lag": row["lag"]} for row in house.visitor.json("/broker")["behind"]
    ]
    front = house.visitor.get("/").text
    assert "/groups/late/" in front
    assert "/groups/shipping/" in front, "it has a message that could not be consumed"


def test_a_topics_page_shows_its_groups_and_its_producers(house: FullHouse):
    page = house.visitor.get("/topics/orders/").text
    for group in ("archive", "billing", "late", "shipping"):
        assert f"/groups/{group}/" in page
    names = {one["client_id"] for one in house.visitor.json("/topics/orders/producers")["items"]}
    assert any(name is not None and name.endswith("@shop") for name in names), names


def test_a_live_feed_yields_frames_whose_figures_fit(house: FullHouse):
    first, second = house.visitor.frames(2)
    assert second["number"] > first["number"]
    assert second["put_total"] == house.sent
    assert second["parked_pulls"] >= sum(WAITING.values())
    assert second["consumer_clients"] == sum(MEMBERS.values())
    assert second["producer_clients"] - len(PRODUCERS) in (0, 1), "the C++ one comes later"
    assert "late" in [row["group"] for row in second["behind"]]


SAMPLE = re.compile(
    r'rocket(?:box|mq)_[a-zA-Z0-9_]+(\{[a-zA-Z0-9_]+="[^"\\]*"(,[a-zA-Z0-9_]+="[^"\\]*")*\})? -?[0-9.e+-]+'
)


def test_metrics_parse_and_fit_what_is_there(house: FullHouse):
    answer = house.visitor.get("/metrics")
    types: dict[str, str] = {}
    for line in answer.text.splitlines():
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert family not in types, "the samples of a family stand together"
            # The exporter's names for the broker's own figures end as they please.
            counts = family.endswith("_total") and not family.startswith("rocketmq_brokeruntime_")
            assert kind == ("counter" if counts else "gauge"), family
            types[family] = kind
        else:
            assert SAMPLE.fullmatch(line), line
            assert re.split("[{ ]", line)[0] == list(types)[-1]
    numbers = house.metrics()
    clients = house.clients()
    assert numbers["rocketbox_messages_put_total"] == house.sent
    # Six members of six groups have read all of it, and a broadcast group's each the whole.
    assert numbers["rocketbox_messages_pulled_total"] >= house.sent
    assert numbers["rocketbox_pulls_found_total"] > 0
    assert numbers["rocketbox_parked_pulls"] >= sum(WAITING.values())
    assert numbers["rocketbox_connections"] >= len({row["address"] for row in clients})
    assert numbers["rocketbox_topics"] == house.visitor.json("/topics?limit=500&system=true")["total"]
    assert numbers["rocketbox_commit_log_writable"] == 1
    assert numbers["rocketbox_commit_log_published_offset"] == numbers["rocketbox_bytes_put_total"]
    assert numbers["rocketbox_namesrv_brokers"] == 1


def test_the_description_of_the_api_is_json_and_has_every_operation(house: FullHouse):
    described = json.loads(house.visitor.get("/api/v1/openapi.json").body)
    assert set(described["paths"]) == {one.path for one in operations()}
