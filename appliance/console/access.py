"""The access table: the rule of each view and of each operation of the API. A view without a rule is refused.

To add a page, give its URL a name and add one line here; the middleware (`middleware.Access`) does the rest.

    "topic_create": OPERATOR,                       the role, or a higher one
    "message": VIEWER.with_grants("may_read_bodies"),  and a right that no role includes
    "GET api/v1/topics/<topic>": VIEWER,            an operation of the API: method and route, as `resolve().route`

A view that changes something and also shows the form for it has one name, with the rule of the change. Templates use
`{% if can.topic_create %}`, code uses `allows(user, "topic_create")`. Destructive views are also decorated with
`recent_login.recent_login_required`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

GRANTS = ("may_read_bodies", "may_export")
RANKS = {"": 0, "viewer": 1, "operator": 2, "admin": 3}


@dataclass(frozen=True, slots=True)
class Rule:
    """The role and grants that a caller needs. role: "" admits all callers.

    door: "setup" for pages that exist only while the set-up wizard is open; "local" for pages that callers on this
    machine may read without signing in; else "".
    """

    role: str
    grants: tuple[str, ...] = ()
    door: str = ""

    def with_grants(self, *names: str) -> Rule:
        """Return this rule with these grants added."""
        assert set(names) <= set(GRANTS), names
        return replace(self, grants=(*self.grants, *names))

    def admits(self, user: Any) -> bool:
        """True if a user, a token's bearer or `identity.AnonymousUser` has the role and the grants."""
        return RANKS[user.role] >= RANKS[self.role] and all(getattr(user, grant) for grant in self.grants)


EVERYONE = Rule("")
VIEWER = Rule("viewer")
OPERATOR = Rule("operator")
ADMIN = Rule("admin")
# No role needed: whoever has the link may set up.
SETUP = Rule("", door="setup")
SETUP_ADMIN = Rule("admin", door="setup")
LOCAL_OR_VIEWER = Rule("viewer", door="local")

ACCESS: dict[str, Rule] = {
    # For programs, and the files of pages.
    "healthz": EVERYONE,
    "readyz": EVERYONE,
    "metrics": LOCAL_OR_VIEWER,
    "static_file": EVERYONE,
    # Sign-in, the user's own account, and set-up.
    "login": EVERYONE,
    "login_code": EVERYONE,
    "login_oidc": EVERYONE,
    "login_oidc_back": EVERYONE,
    "set_password": EVERYONE,
    "logout": EVERYONE,
    "set_language": EVERYONE,
    "confirm_password": VIEWER,
    "account": VIEWER,
    "set_time_zone": VIEWER,
    "second_factor": VIEWER,
    "second_factor_off": VIEWER,
    "second_factor_codes": VIEWER,
    "session_end": VIEWER,
    "setup": SETUP,
    "setup_administrator": SETUP,
    "setup_address": SETUP_ADMIN,
    "setup_message": SETUP_ADMIN,
    "setup_message_count": SETUP_ADMIN,
    # Pages.
    "overview": VIEWER,
    # Pages about the engine, and acts on it.
    "overview_live": VIEWER,
    "needs": VIEWER,
    "needs_panel": VIEWER,
    "need_mute": OPERATOR,
    "need_unmute": OPERATOR,
    "broker_history": VIEWER,
    "topic_history": VIEWER,
    "group_history": VIEWER,
    "topics": VIEWER,
    "topic": VIEWER,
    "topic_create": OPERATOR,
    "topic_edit": ADMIN,
    "topic_delete": ADMIN,
    "groups": VIEWER,
    "group": VIEWER,
    "group_create": OPERATOR,
    "group_edit": ADMIN,
    "group_delete": ADMIN,
    "clean_up": ADMIN,
    "reports": VIEWER,
    "report": VIEWER,
    "report_runs": VIEWER,
    "report_run": VIEWER,
    "report_run_progress": VIEWER,
    "report_run_create": OPERATOR,
    "report_run_cancel": OPERATOR,
    "report_settings": VIEWER,
    "report_settings_change": ADMIN,
    "alerts": VIEWER,
    "alert": VIEWER,
    "alert_rules": VIEWER,
    "alert_rule_create": OPERATOR,
    "alert_rule": OPERATOR,
    "alert_rule_delete": OPERATOR,
    "alert_channels": ADMIN,
    "alert_channel_create": ADMIN,
    "alert_channel": ADMIN,
    "alert_channel_test": ADMIN,
    "alert_channel_delete": ADMIN,
    "alert_silence_create": OPERATOR,
    "alert_silence_end": OPERATOR,
    "group_now": VIEWER,
    "group_diagnosis": VIEWER,
    "group_pause": OPERATOR,
    "group_clone": OPERATOR,
    "group_reset": OPERATOR,
    "group_resets": VIEWER,
    "group_reset_done": VIEWER,
    "group_reset_progress": VIEWER,
    "group_reset_undo": OPERATOR,
    "group_retries": VIEWER,
    "group_retries_act": OPERATOR,
    "group_retries_done": OPERATOR,
    "dead_letter_groups": VIEWER,
    "dead_letters": VIEWER,
    "archive_create": VIEWER.with_grants("may_read_bodies", "may_export"),
    "replay_create": OPERATOR,
    "replay": VIEWER,
    "replay_progress": VIEWER,
    "replay_results_file": VIEWER,
    "replay_act": OPERATOR,
    "delayed": VIEWER,
    "delayed_act": OPERATOR,
    "delayed_done": OPERATOR,
    "transactions": VIEWER,
    "transaction_check": OPERATOR,
    "transaction_decide": ADMIN,
    "transaction_done": OPERATOR,
    "transaction_resume": OPERATOR,
    "connect": VIEWER,
    "clients": VIEWER,
    "client": VIEWER,
    "client_ask": OPERATOR,
    "search": VIEWER,
    "messages": VIEWER,
    "message_tail": VIEWER,
    "message": VIEWER,
    "message_content": VIEWER.with_grants("may_read_bodies"),
    "message_raw": VIEWER.with_grants("may_read_bodies"),
    "message_download": VIEWER.with_grants("may_read_bodies", "may_export"),
    "message_run": OPERATOR,
    "send_message": OPERATOR,
    # An export with bodies needs the two grants as well; the view and the kind of job check them.
    "message_export": VIEWER,
    "message_import": OPERATOR,
    "replication": VIEWER,
    "replication_now": VIEWER,
    "set_switch": ADMIN,
    "set_adopt": ADMIN,
    "quarantine": VIEWER,
    "quarantine_send": OPERATOR,
    "system": VIEWER,
    "system_checks": VIEWER,
    "system_config": VIEWER,
    "system_config_change": ADMIN,
    "system_clean": ADMIN,
    "system_logs": OPERATOR,
    "support_bundle": ADMIN,
    "support_bundle_file": ADMIN,
    "definitions": ADMIN,
    "definitions_file": ADMIN,
    "backups": ADMIN,
    "backup_create": ADMIN,
    "backup_check": ADMIN,
    "backup_download": ADMIN.with_grants("may_read_bodies", "may_export"),
    "audit": ADMIN,
    "audit_check": ADMIN,
    # The kind of a job decides who may see it and who may cancel it.
    "jobs": VIEWER,
    "job": VIEWER,
    "job_progress": VIEWER,
    "job_cancel": VIEWER,
    "job_file": VIEWER,
    "tokens": VIEWER,
    "token_create": VIEWER,
    "token_created": VIEWER,
    "token_revoke": VIEWER,
    "users": ADMIN,
    "user_create": ADMIN,
    "user": ADMIN,
    "user_reset_password": ADMIN,
    "user_set_active": ADMIN,
    "user_secret": ADMIN,
    "user_second_factor_off": ADMIN,
    "user_end_sessions": ADMIN,
    "second_factor_rule": ADMIN,
    "wire_users": ADMIN,
    "wire_access": ADMIN,
    "wire_refusals": ADMIN,
    "wire_user_create": ADMIN,
    "wire_user": ADMIN,
    "wire_user_act": ADMIN,
    "wire_user_entry": ADMIN,
    "wire_user_entry_remove": ADMIN,
    "wire_user_delete": ADMIN,
    "wire_user_secret": ADMIN,
    # The API: operations, and its description.
    "openapi": VIEWER,
    "api_docs": VIEWER,
    "GET api/v1/me": VIEWER,
    "GET api/v1/tokens": VIEWER,
    "POST api/v1/tokens": VIEWER,
    "DELETE api/v1/tokens/<int:token_id>": VIEWER,
    "GET api/v1/me/sessions": VIEWER,
    "DELETE api/v1/me/sessions/<int:number>": VIEWER,
    "GET api/v1/users": ADMIN,
    "POST api/v1/users": ADMIN,
    "GET api/v1/users/<username>": ADMIN,
    "PATCH api/v1/users/<username>": ADMIN,
    "POST api/v1/users/<username>/password": ADMIN,
    "DELETE api/v1/users/<username>/second-factor": ADMIN,
    "GET api/v1/users/<username>/sessions": ADMIN,
    "DELETE api/v1/users/<username>/sessions": ADMIN,
    "GET api/v1/system/second-factor": ADMIN,
    "PUT api/v1/system/second-factor": ADMIN,
    "GET api/v1/wire-users": ADMIN,
    "GET api/v1/wire-access": ADMIN,
    "GET api/v1/wire-refusals": ADMIN,
    "POST api/v1/wire-users": ADMIN,
    "GET api/v1/wire-users/<name>": ADMIN,
    "DELETE api/v1/wire-users/<name>": ADMIN,
    "GET api/v1/wire-users/<name>/decision": ADMIN,
    "GET api/v1/wire-users/<name>/entries": ADMIN,
    "POST api/v1/wire-users/<name>/entries": ADMIN,
    "DELETE api/v1/wire-users/<name>/entries/<path:resource>": ADMIN,
    "POST api/v1/wire-users/<name>/acts/<act>": ADMIN,
    "GET api/v1/audit": ADMIN,
    "POST api/v1/audit/checks": ADMIN,
    "GET api/v1/jobs": VIEWER,
    "GET api/v1/jobs/<job>": VIEWER,
    "POST api/v1/jobs/<job>/cancel": VIEWER,
    "GET api/v1/jobs/<job>/files/<name>": VIEWER,
    "GET api/v1/replication": VIEWER,
    "GET api/v1/replication/quarantine/<name>": VIEWER,
    "POST api/v1/replication/quarantine/<name>/sends": OPERATOR,
    "GET api/v1/replication/set": VIEWER,
    "POST api/v1/replication/set/switch": ADMIN,
    "POST api/v1/replication/set/adopt": ADMIN,
    "GET api/v1/system": VIEWER,
    "GET api/v1/system/checks": VIEWER,
    "GET api/v1/system/config": VIEWER,
    "PATCH api/v1/system/config": ADMIN,
    "GET api/v1/system/retention": VIEWER,
    "GET api/v1/system/bundle": ADMIN,
    "GET api/v1/system/bundle/file": ADMIN,
    "GET api/v1/system/definitions/file": ADMIN,
    "POST api/v1/system/definitions": ADMIN,
    "GET api/v1/system/backups": ADMIN,
    "POST api/v1/system/backups": ADMIN,
    "PUT api/v1/system/backups/schedule": ADMIN,
    "POST api/v1/system/backups/<name>/checks": ADMIN,
    "GET api/v1/system/backups/<name>/file": ADMIN.with_grants("may_read_bodies", "may_export"),
    "POST api/v1/system/retention/clean": ADMIN,
    "GET api/v1/broker": VIEWER,
    "GET api/v1/needs": VIEWER,
    "GET api/v1/needs/mutes": VIEWER,
    "POST api/v1/needs/mutes": OPERATOR,
    "DELETE api/v1/needs/mutes/<int:mute_id>": OPERATOR,
    "GET api/v1/metrics": VIEWER,
    "GET api/v1/metrics/series": VIEWER,
    "GET api/v1/topics": VIEWER,
    "POST api/v1/topics": OPERATOR,
    "GET api/v1/topics/<topic>": VIEWER,
    "PATCH api/v1/topics/<topic>": ADMIN,
    "DELETE api/v1/topics/<topic>": ADMIN,
    "GET api/v1/topics/<topic>/stats": VIEWER,
    "GET api/v1/topics/<topic>/queues": VIEWER,
    "GET api/v1/topics/<topic>/route": VIEWER,
    "GET api/v1/topics/<topic>/groups": VIEWER,
    "GET api/v1/topics/<topic>/producers": VIEWER,
    "GET api/v1/topics/<topic>/messages": VIEWER,
    "POST api/v1/topics/<topic>/messages": OPERATOR,
    "POST api/v1/topics/<topic>/exports": VIEWER,
    "POST api/v1/topics/<topic>/imports": OPERATOR,
    "GET api/v1/groups": VIEWER,
    "GET api/v1/reports": VIEWER,
    "GET api/v1/reports/days/<day>/<report>": VIEWER,
    "GET api/v1/reports/days/<day>/<report>/plots/<plot>": VIEWER,
    "GET api/v1/reports/days/<day>/<report>/tables/<table>": VIEWER,
    "GET api/v1/reports/runs": VIEWER,
    "POST api/v1/reports/runs": OPERATOR,
    "GET api/v1/reports/runs/<run>": VIEWER,
    "GET api/v1/reports/runs/<run>/log": VIEWER,
    "POST api/v1/reports/runs/<run>/cancel": OPERATOR,
    "GET api/v1/reports/settings": VIEWER,
    "PATCH api/v1/reports/settings": ADMIN,
    "GET api/v1/alerts": VIEWER,
    "GET api/v1/alerts/<int:alert_id>": VIEWER,
    "GET api/v1/alert-rules": VIEWER,
    "POST api/v1/alert-rules": OPERATOR,
    "GET api/v1/alert-rules/<int:rule_id>": OPERATOR,
    "PUT api/v1/alert-rules/<int:rule_id>": OPERATOR,
    "DELETE api/v1/alert-rules/<int:rule_id>": OPERATOR,
    "GET api/v1/alert-channels": ADMIN,
    "POST api/v1/alert-channels": ADMIN,
    "GET api/v1/alert-channels/<int:channel_id>": ADMIN,
    "PUT api/v1/alert-channels/<int:channel_id>": ADMIN,
    "DELETE api/v1/alert-channels/<int:channel_id>": ADMIN,
    "POST api/v1/alert-channels/<int:channel_id>/tests": ADMIN,
    "GET api/v1/alert-silences": VIEWER,
    "POST api/v1/alert-silences": OPERATOR,
    "DELETE api/v1/alert-silences/<int:silence_id>": OPERATOR,
    "POST api/v1/groups": OPERATOR,
    "GET api/v1/groups/<group>": VIEWER,
    "PATCH api/v1/groups/<group>": ADMIN,
    "DELETE api/v1/groups/<group>": ADMIN,
    "POST api/v1/clean-ups": ADMIN,
    "GET api/v1/groups/<group>/clients": VIEWER,
    "GET api/v1/groups/<group>/progress": VIEWER,
    "POST api/v1/groups/<group>/pause": OPERATOR,
    "POST api/v1/groups/<group>/resume": OPERATOR,
    "POST api/v1/groups/<group>/clone": OPERATOR,
    "GET api/v1/groups/<group>/queues": VIEWER,
    "GET api/v1/groups/<group>/pace": VIEWER,
    "GET api/v1/groups/<group>/diagnosis": VIEWER,
    "POST api/v1/groups/<group>/offset-resets": OPERATOR,
    "GET api/v1/groups/<group>/offset-resets": VIEWER,
    "GET api/v1/groups/<group>/offset-resets/<int:reset_id>": VIEWER,
    "POST api/v1/groups/<group>/offset-resets/<int:reset_id>/undo": OPERATOR,
    "GET api/v1/groups/<group>/retries": VIEWER,
    "POST api/v1/groups/<group>/retries/acts": OPERATOR,
    "GET api/v1/dead-letters": VIEWER,
    "GET api/v1/dead-letters/expiring": VIEWER,
    "GET api/v1/groups/<group>/dead-letters/summary": VIEWER,
    "GET api/v1/groups/<group>/dead-letters": VIEWER,
    "POST api/v1/groups/<group>/dead-letters/archives": VIEWER.with_grants("may_read_bodies", "may_export"),
    "POST api/v1/groups/<group>/replays": OPERATOR,
    "GET api/v1/replays": VIEWER,
    "GET api/v1/replays/<job>": VIEWER,
    "GET api/v1/replays/<job>/results": VIEWER,
    "POST api/v1/replays/<job>/<act>": OPERATOR,
    "GET api/v1/delayed": VIEWER,
    "GET api/v1/delayed/histogram": VIEWER,
    "POST api/v1/delayed/acts": OPERATOR,
    "GET api/v1/transactions": VIEWER,
    "GET api/v1/transactions/open": VIEWER,
    "GET api/v1/transactions/discarded": VIEWER,
    "GET api/v1/transactions/resolved": VIEWER,
    "POST api/v1/transactions/checks": OPERATOR,
    "POST api/v1/transactions/decisions": ADMIN,
    "POST api/v1/transactions/resumes": OPERATOR,
    "GET api/v1/clients": VIEWER,
    "GET api/v1/clients/<path:client_id>": VIEWER,
    "POST api/v1/groups/<group>/clients/<path:client_id>/running-info": OPERATOR,
    "GET api/v1/search": VIEWER,
    "GET api/v1/messages/<path:ref>": VIEWER,
    "POST api/v1/messages/<path:ref>/deliveries": OPERATOR,
    "GET api/v1/messages/<path:ref>/body": VIEWER.with_grants("may_read_bodies"),
    "GET api/v1/messages/<path:ref>/record": VIEWER.with_grants("may_read_bodies"),
    # Clients and brokers without credentials ask where the name servers are; see `api.nsaddr`.
    "nsaddr": EVERYONE,
    "nsaddr_unit": EVERYONE,
}

#: Views that do not work on a slave: its pages have no links to them, and the engine refuses their acts.
MASTERS_WORK = frozenset(
    (
        *("topic_create", "topic_edit", "topic_delete"),
        *("group_create", "group_edit", "group_delete", "group_pause", "group_clone", "group_reset"),
        *("clean_up", "group_reset_undo", "group_retries_act", "replay_create", "replay_act", "delayed_act"),
        *("transaction_check", "transaction_decide", "transaction_resume", "send_message", "message_import"),
    )
)


def rule_for(name: str, method: str = "", route: str = "") -> Rule | None:
    """Return the rule of a view, or of one operation of the API; None if it has none, and so is refused to all."""
    return ACCESS.get(f"{method} {route}") or ACCESS.get(name)


def methods_of(route: str) -> list[str]:
    """Return the methods of the API's operations at a route; empty for a page."""
    return [method for method, _, other in (key.partition(" ") for key in ACCESS) if other == route]


def allows(user: Any, name: str) -> bool:
    """True if the user may open this view; for menus and buttons."""
    rule = ACCESS.get(name)
    return rule is not None and rule.admits(user)
