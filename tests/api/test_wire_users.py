"""Users of the wire by the API: their life, what a token may do with them, and their secrets, which never come back."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from appliance.commands.remote.run import VERBS
from appliance.console.models import AuditEntry
from appliance.console.users.wire_user_views import BUTTONS
from appliance.engine.access.acts import USER_ACTS
from appliance.engine.access.book import LONGEST_SECRET, Book
from appliance.engine.access.quotas import NAMES, Quotas
from appliance.engine.window.access import users as window_wire_users
from appliance.request_bodies import TAKES
from tests.support.server import ROOT
from tests.support.wire_users import wire_users

from .conftest import answer_of, problem_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def book(running, tmp_path):
    with wire_users(running.window, tmp_path / "wire-users") as found:
        yield found


@pytest.fixture
def root(by_token):
    """A token that may do everything."""
    return by_token("admin", "may_read_bodies", "may_export")


def test_a_user_from_the_first_secret_to_the_end(root, book: Book):
    preview = answer_of(root.post("/wire-users?dry_run=true", {"name": "shop"}))
    assert (preview["applied"], preview["secret"]) == (False, None)
    made = root.post("/wire-users", {"name": "shop"})
    first = answer_of(made, 201)["secret"]
    assert made.headers["Location"] == "/api/v1/wire-users/shop"
    assert book.get("shop").account.secrets == (first,)
    problem_of(root.post("/wire-users", {"name": "shop"}), 409, "conflict")
    shown = answer_of(root.get("/wire-users/shop"))
    assert [(row["quota"], row["own"], row["counts"]) for row in shown.pop("quotas")] == [
        (name, None, 0) for name in NAMES
    ]
    assert shown == {
        "name": "shop", "user_type": "Normal", "enabled": True, "secrets": 1, "entries": [], "last": None,
        "limited": None, "requires_tls": False, "in_clear": False,
    }  # fmt: skip
    rotated = answer_of(root.ask("POST", "/wire-users/shop/acts/rotate"))
    assert rotated["secret"] not in (None, first)
    assert [(one["field"], one["before"], one["after"]) for one in rotated["differences"]] == [("secrets", "1", "2")]
    assert answer_of(root.ask("POST", "/wire-users/shop/acts/end-old-secret"))["secret"] is None
    for act, requires_tls in (("require-tls", True), ("allow-clear", False)):
        answer_of(root.ask("POST", f"/wire-users/shop/acts/{act}"))
        assert answer_of(root.get("/wire-users/shop"))["requires_tls"] == requires_tls
    assert book.get("shop").account.secrets == (rotated["secret"],)
    entry = {"resource": "Topic:orders/eu*", "actions": ["pub", "Sub"], "sources": ["10.0.0.0/8"]}
    answer_of(root.post("/wire-users/shop/entries", entry))
    [row] = answer_of(root.get("/wire-users/shop/entries"))["items"]
    assert row == {"policy": "Custom", "resource": "Topic:orders/eu*", "actions": ["Pub", "Sub"],
                   "sources": ["10.0.0.0/8"], "decision": "Allow"}  # fmt: skip
    assert answer_of(root.get("/wire-users/shop/comparison")) == {"rows": [], "complete": True}
    asked = "/wire-users/shop/decision?action=Pub&resource=Topic:orders%2Feu-1&address="
    assert answer_of(root.get(asked + "10.0.0.1"))["allowed"]
    refused = answer_of(root.get(asked + "192.0.2.1"))
    assert (refused["allowed"], [one["why"] for one in refused["entries"]]) == (False, ["other_address"])
    answer_of(root.delete("/wire-users/shop/entries/Topic:orders%2Feu*"))
    problem_of(root.delete("/wire-users/shop/entries/Topic:orders%2Feu*"), 404, "not_found")
    assert answer_of(root.get("/wire-users?q=SHO"))["total"] == 1
    answer_of(root.delete("/wire-users/shop"))
    problem_of(root.get("/wire-users/shop"), 404, "wire_user_not_found")
    assert [one.action for one in AuditEntry.objects.order_by("id")] == [
        "wire-user.set", "wire-user.set", "wire-user.set", "wire-user.set", "wire-user.set", "wire-user.set",
        "wire-acl.set", "wire-acl.delete", "wire-user.delete",
    ]  # fmt: skip


def test_a_secret_of_ones_own_is_taken_and_is_in_no_answer(root, book: Book):
    own, next_one = "my own Zq13 secret", "my next Zq14 secret"
    for wrong in ("short", "12345678", "x" * 257, "", "a\nline of it"):
        problem = problem_of(root.post("/wire-users", {"name": "shop", "secret": wrong}), 422, "invalid_input")
        assert not wrong or wrong not in str(problem)
    made = answer_of(root.post("/wire-users", {"name": "shop", "secret": own}), 201)
    problem_of(root.ask("POST", "/wire-users/shop/acts/disable", {"secret": next_one}), 422, "invalid_input")
    problem_of(root.ask("POST", "/wire-users/shop/acts/rotate", {"secret": own}), 422, "invalid_input")
    rotated = answer_of(root.ask("POST", "/wire-users/shop/acts/rotate", {"secret": next_one}))
    assert (made["secret"], rotated["secret"]) == (None, None)
    assert book.get("shop").account.secrets == (next_one, own)
    assert "Zq1" not in str((made, rotated))


def test_the_longest_secret_fits_where_one_is_taken():
    longest = len(json.dumps({"name": "n" * 64, "user_type": "Normal", "secret": "\U00020000" * LONGEST_SECRET}))
    for operation in ("wire-users", "wire-users/<name>/acts/<act>"):
        assert longest <= TAKES[f"POST api/v1/{operation}"]


def test_a_page_of_many_users_costs_its_own_rows_only(root, book: Book, monkeypatch):
    for number in range(30):
        book.create(f"user-{number:02}", "a secret of 20 characters", is_super=number == 7, is_enabled=number != 9)
    made = []
    whole = window_wire_users.WireUser
    monkeypatch.setattr(window_wire_users, "WireUser", lambda **given: made.append(given["name"]) or whole(**given))
    for sort, first in (("name", "user-00"), ("-name", "user-29"), ("-type", "user-07"), ("state", "user-09")):
        made.clear()
        page = answer_of(root.get(f"/wire-users?limit=2&sort={sort}"))
        assert (page["total"], page["items"][0]["name"], len(made)) == (30, first, 2)


def test_each_change_has_its_sides_in_the_audit_log(root, book: Book):
    answer_of(root.post("/wire-users", {"name": "shop"}), 201)
    answer_of(root.ask("POST", "/wire-users/shop/acts/disable"))
    line = AuditEntry.objects.latest("id")
    assert (line.target, line.before, line.after) == ("shop", {"userStatus": "enable"}, {"userStatus": "disable"})
    answer_of(root.post("/wire-users/shop/entries", {"resource": "Group:g", "actions": ["Sub"], "decision": "Deny"}))
    line = AuditEntry.objects.latest("id")
    assert (line.before, line.after) == ({}, {"Group:g": "Deny Sub"})
    answer_of(root.delete("/wire-users/shop"))
    line = AuditEntry.objects.latest("id")
    assert line.before == {"userType": "Normal", "userStatus": "disable", "secrets": "1", "Group:g": "Deny Sub"}


def test_quotas_are_changed_one_by_one_and_audited(root, book: Book):
    answer_of(root.post("/wire-users", {"name": "shop"}), 201)
    preview = root.patch("/wire-users/shop/quotas?dry_run=true", {"requests": 5})
    assert not answer_of(preview)["applied"]
    assert book.get("shop").account.quotas == Quotas()
    answer_of(root.patch("/wire-users/shop/quotas", {"requests": 5, "connections": 0}))
    changed = answer_of(root.patch("/wire-users/shop/quotas", {"send_bytes": 10**6, "connections": None}))
    assert {(one["field"], one["before"], one["after"]) for one in changed["differences"]} == {
        ("quota send_bytes", None, "1000000"), ("quota connections", "0", None)
    }  # fmt: skip
    assert book.get("shop").account.quotas == Quotas(send_bytes=10**6, requests=5)
    line = AuditEntry.objects.latest("id")
    assert (line.action, line.before, line.after) == (
        "wire-user.set", {"quota connections": "0"}, {"quota send_bytes": "1000000"}
    )  # fmt: skip
    for wrong in (-1, 10**11 + 1, 1 << 70, 1.5, "7", True, [1]):
        problem_of(root.patch("/wire-users/shop/quotas", {"pull_bytes": wrong}), 422, "invalid_input")
    problem_of(root.patch("/wire-users/shop/quotas", {"speed": 1}), 422, "invalid_input")
    problem_of(root.patch("/wire-users/nobody/quotas", {"requests": 1}), 404, "wire_user_not_found")
    late = root.patch("/wire-users/shop/quotas", {"requests": 6}, if_match=preview.headers["ETag"])
    problem_of(late, 412, "revision_mismatch")
    answer_of(root.delete("/wire-users/shop/quotas"))
    assert book.get("shop").account.quotas == Quotas()


def test_the_act_that_was_previewed_is_done_unless_the_user_changed_meanwhile(root, book: Book):
    answer_of(root.post("/wire-users", {"name": "shop"}), 201)
    preview = root.ask("POST", "/wire-users/shop/acts/disable?dry_run=true")
    answer_of(root.ask("POST", "/wire-users/shop/acts/disable", if_match=preview.headers["ETag"]))
    late = root.ask("POST", "/wire-users/shop/acts/rotate", if_match=preview.headers["ETag"])
    problem_of(late, 412, "revision_mismatch")
    preview = root.delete("/wire-users/shop?dry_run=true")
    book.update("shop", secret="another secret over the wire")
    problem_of(root.delete("/wire-users/shop", if_match=preview.headers["ETag"]), 412, "revision_mismatch")
    preview = root.delete("/wire-users/shop?dry_run=true")
    answer_of(root.delete("/wire-users/shop", if_match=preview.headers["ETag"]))


def test_a_token_that_may_not_read_bodies_gives_nobody_the_right_to_consume_them(admin, root, book: Book):
    answer_of(root.post("/wire-users", {"name": "shop"}), 201)
    answer_of(admin.get("/wire-users/shop"))
    for answer in (
        admin.post("/wire-users", {"name": "other", "user_type": "Super"}),
        admin.post("/wire-users/shop/entries", {"resource": "*", "actions": ["All"]}),
        admin.delete("/wire-users/shop/entries/Topic:a"),
        admin.ask("POST", "/wire-users/shop/acts/rotate"),
        admin.ask("POST", "/wire-users/shop/acts/make-super"),
        admin.ask("POST", "/wire-users/shop/acts/enable"),
    ):
        problem_of(answer, 403, "exceeds_caller")
    answer_of(admin.ask("POST", "/wire-users/shop/acts/disable"))
    answer_of(admin.delete("/wire-users/shop"))
    answer_of(admin.post("/wire-users", {"name": "third"}), 201)


def test_a_caller_with_a_pattern_sees_no_users_of_the_wire(by_token, book: Book):
    some = by_token("admin", "may_read_bodies", topic_pattern="orders-*")
    for address in ("/wire-users", "/wire-users/shop", "/wire-users/shop/entries"):
        problem_of(some.get(address), 403, "outside_pattern")
    problem_of(some.post("/wire-users", {"name": "shop"}), 403, "outside_pattern")
    assert not list(book)


def test_mistakes_are_told_by_field(root, book: Book):
    answer_of(root.post("/wire-users", {"name": "shop"}), 201)
    for address, body, field in (
        ("/wire-users", {"name": "a b"}, "name"),
        ("/wire-users", {"name": "a", "user_type": "Superb"}, "user_type"),
        ("/wire-users/shop/entries", {"resource": "orders", "actions": ["Pub"]}, "resource"),
        ("/wire-users/shop/entries", {"resource": "Topic:a", "actions": ["Publish"]}, "actions"),
        ("/wire-users/shop/entries", {"resource": "Topic:a", "actions": ["Pub"], "sources": ["here"]}, "sources"),
    ):
        [error] = problem_of(root.post(address, body), 422, "invalid_input")["errors"]
        assert error["field"] == field
    problem_of(root.ask("POST", "/wire-users/shop/acts/bless"), 422, "invalid_input")
    problem_of(root.get("/wire-users/shop/decision?action=Pub&resource=a"), 422, "invalid_input")
    problem_of(root.get("/wire-users/nobody/comparison"), 404, "wire_user_not_found")


def test_without_access_control_there_are_none(root):
    for answer in (root.get("/wire-users"), root.get("/wire-users/shop"), root.post("/wire-users", {"name": "shop"})):
        assert "accessControl is off" in problem_of(answer, 409, "conflict")["detail"]


def test_each_act_has_a_button_and_a_command():
    assert BUTTONS.keys() == USER_ACTS.keys()
    asked = {verb.asks.rpartition("/")[2] for verb in VERBS if "/acts/" in verb.asks and "/wire-users/" in verb.asks}
    assert asked == USER_ACTS.keys()


def test_the_api_loads_nothing_of_access_control():
    """While it is off the package is not imported (D26)."""
    code = (
        "import os, sys, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'appliance.settings'; django.setup();"
        "import appliance.api.api, appliance.console.urls;"
        "print([name for name in sys.modules if name.startswith('appliance.engine.access')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr
