"""Answers of every operation to tokens that are restricted to some names."""

from __future__ import annotations

import pytest

from appliance.api.api import operations
from appliance.console.models import Setting, now_ms

from .conftest import Caller, answer_of, problem_of
from .test_access import address_of

pytestmark = pytest.mark.django_db
OPERATIONS = [(one.method, one.route) for one in operations()]

#: Operations that serve such a caller: only with its own names, or with nothing that names other topics or groups.
OPEN = {
    # about themselves
    "GET api/v1/me", "GET api/v1/me/sessions", "DELETE api/v1/me/sessions/<int:number>",
    "GET api/v1/tokens", "POST api/v1/tokens", "DELETE api/v1/tokens/<int:token_id>",
    # lists without the others, and figures of the whole broker
    "GET api/v1/topics", "GET api/v1/groups", "GET api/v1/dead-letters", "GET api/v1/dead-letters/expiring",
    "GET api/v1/replays", "GET api/v1/delayed", "GET api/v1/needs", "GET api/v1/needs/mutes", "GET api/v1/jobs",
    "GET api/v1/transactions/open", "GET api/v1/transactions/discarded", "GET api/v1/transactions/resolved",
    "GET api/v1/broker", "GET api/v1/metrics", "GET api/v1/metrics/series", "GET api/v1/search",
    "GET api/v1/replication", "GET api/v1/replication/set",
    "GET api/v1/system", "GET api/v1/system/checks", "GET api/v1/system/config", "GET api/v1/system/retention",
    # the names it is about are known only when it is found
    "GET api/v1/clients/<path:client_id>", "GET api/v1/jobs/<job>", "POST api/v1/jobs/<job>/cancel",
    "GET api/v1/jobs/<job>/files/<name>", "GET api/v1/replays/<job>", "GET api/v1/replays/<job>/results",
    "POST api/v1/replays/<job>/<act>", "GET api/v1/messages/<path:ref>", "GET api/v1/messages/<path:ref>/body",
    "GET api/v1/messages/<path:ref>/record", "POST api/v1/messages/<path:ref>/deliveries",
    "DELETE api/v1/needs/mutes/<int:mute_id>",
}  # fmt: skip
CHANNEL = {"name": "ours", "kind": "webhook", "address": "https://receiver.example/hook"}
#: Valid bodies for operations that would refuse an empty one first.
BODIES = {
    "POST api/v1/alert-channels": CHANNEL,
    "PUT api/v1/alert-channels/<int:channel_id>": CHANNEL,
    "POST api/v1/alert-rules": {"name": "ours", "figure": "lag_messages", "above": 1},
    "PUT api/v1/alert-rules/<int:rule_id>": {"name": "ours", "figure": "lag_messages", "above": 1},
    "POST api/v1/alert-silences": {"hours": 1, "reason": "known"},
    "POST api/v1/clean-ups": {"kind": "groups"},
    "POST api/v1/delayed/acts": {"action": "drop", "filter": {"topic": "no-such-topic"}},
    "POST api/v1/groups": {"name": "no-such-group"},
    "POST api/v1/groups/<group>/clone": {"target": "no-such-group"},
    "POST api/v1/groups/<group>/dead-letters/archives": {},
    "POST api/v1/groups/<group>/offset-resets": {"to": "latest"},
    "POST api/v1/groups/<group>/replays": {"target": "group"},
    "POST api/v1/groups/<group>/retries/acts": {"action": "drop", "level": 3},
    "POST api/v1/replication/quarantine/<name>/sends": {},
    "POST api/v1/replication/set/switch": {},
    "POST api/v1/replication/set/adopt": {"uuid": "x", "confirm": "x"},
    "POST api/v1/reports/runs": {"day": "today"},
    "POST api/v1/system/backups": {},
    "POST api/v1/system/definitions": {"text": "rocketbox: 1"},
    "POST api/v1/wire-imports": {"text": "accounts: [{accessKey: imported, secretKey: a secret of it}]"},
    "POST api/v1/topics": {"name": "no-such-topic"},
    "POST api/v1/topics/<topic>/copies": {"to": "no-such-topic"},
    "POST api/v1/topics/<topic>/exports": {},
    "POST api/v1/topics/<topic>/imports": {},
    "POST api/v1/topics/<topic>/messages": {"body": {"encoding": "text", "data": "x"}},
    "POST api/v1/transactions/checks": {"topic": "no-such-topic"},
    "POST api/v1/transactions/decisions": {"action": "commit", "reason": "x", "places": [{"half_offset": 0}]},
    "POST api/v1/transactions/resumes": {"ref": "0" * 32, "reason": "x"},
    "POST api/v1/users": {"username": "eve"},
    "POST api/v1/users/<username>/password": {},
    "POST api/v1/wire-users": {"name": "eve"},
    "POST api/v1/wire-users/<name>/entries": {"resource": "Topic:ours-a", "actions": ["Pub"]},
    "PATCH api/v1/groups/<group>": {"retry_max_times": 1},
    "PATCH api/v1/reports/settings": {"on": True},
    "PATCH api/v1/system/config": {"autoCreateTopicEnable": False},
    "PATCH api/v1/topics/<topic>": {"read_queues": 1},
    "PATCH api/v1/users/<username>": {"role": "viewer"},
    "PATCH api/v1/wire-users/<name>/quotas": {"requests": 1},
    "PUT api/v1/system/backups/schedule": {"every_hours": 0, "keep": 1},
    "PUT api/v1/system/second-factor": {"roles": []},
    "PUT api/v1/topics/<topic>/schema": {"kind": "registry"},
}


@pytest.fixture
def kept(by_token) -> Caller:
    return by_token("admin", "may_read_bodies", "may_export", topic_pattern="ours-*", group_pattern="ours-*")


@pytest.mark.parametrize(
    ("method", "route"), [one for one in OPERATIONS if " ".join(one) not in OPEN], ids=lambda value: str(value)
)
def test_whatever_is_not_listed_is_refused_to_who_is_kept_to_some_names(kept, method, route):
    """A new operation refuses such callers until it checks names, or is listed here with its reason."""
    address = address_of(route)
    if route.endswith("retention/clean"):
        address += "?what=log"
    if route.endswith("wire-access"):
        address += "?resource=Topic:ours-a"
    if route.endswith("decision"):
        address += "?action=Pub&resource=Topic:ours-a"
    if route.endswith("needs/mutes"):
        body = {"key": "figure:system:disk", "reason": "x", "until_ms": now_ms() + 60_000}
        problem_of(kept.ask(method, address, body), 404, "need_not_found")
        return
    problem_of(kept.ask(method, address, BODIES.get(f"{method} {route}")), 403, "outside_pattern")


def test_a_mute_about_the_whole_broker_is_not_theirs(kept, admin):
    rows = [
        {"id": number, "key": key, "sentence": "x", "reason": "known", "by": "somebody", "at_ms": now_ms(),
         "until_ms": now_ms() + 60_000}
        for number, key in ((1, "system_checks:system:disk"), (2, "group:group:theirs"), (3, "group:group:ours-1"))
    ]  # fmt: skip
    Setting.objects.update_or_create(key="muted-needs", defaults={"value": {"mutes": rows, "last_id": 3}})
    problem_of(kept.delete("/needs/mutes/1"), 403, "outside_pattern")
    problem_of(kept.delete("/needs/mutes/2"), 403, "outside_pattern")
    assert answer_of(kept.delete("/needs/mutes/3"))["id"] == 3
    assert answer_of(admin.delete("/needs/mutes/1"))["id"] == 1


def test_the_figures_of_every_group_are_not_theirs(kept, by_token):
    headers = {"authorization": f"Bearer {kept.secret}"}
    assert kept.client.get("/metrics", headers=headers, REMOTE_ADDR="192.0.2.7").status_code == 403
    every = by_token("viewer")
    headers = {"authorization": f"Bearer {every.secret}"}
    assert every.client.get("/metrics", headers=headers, REMOTE_ADDR="192.0.2.7").status_code == 200
