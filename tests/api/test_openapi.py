"""The API's description: complete, true to the table of access, the same when served and printed, and shown on its
page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.api.api import openapi, operations
from appliance.api.problems import PROBLEMS
from appliance.console.users.access import ACCESS

from .conftest import answer_of, problem_of

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).parents[2]


def test_every_operation_says_what_it_needs_and_what_it_does():
    for one in operations():
        described = openapi()["paths"][one.path][one.method.lower()]
        rule = ACCESS[f"{one.method} {one.route}"]
        assert described["x-access"].split(", ") == [rule.role, *rule.grants]
        assert described["description"].endswith(".")
        assert {"4XX", "503"} < set(described["responses"])
    names = [way["operationId"] for ways in openapi()["paths"].values() for way in ways.values()]
    assert len(names) == len(set(names)) == len(operations())


def test_every_problem_that_the_code_names_is_in_the_table():
    named = set()
    for path in (ROOT / "appliance/api").rglob("*.py"):
        named |= set(re.findall(r'(?:Refused\(|problem\(request, |code = )\s*"(\w+)"', path.read_text()))
    for path in (ROOT / "appliance/console").rglob("errors.py"):
        named |= set(re.findall(r'_answer\(request, \d+, "(\w+)"', path.read_text()))
    assert len(named) > 10
    assert named <= set(PROBLEMS)


def test_it_is_served_to_those_who_may_come_in(viewer, client_as):
    response = viewer.get("/openapi.json")
    assert answer_of(response)["paths"] == json.loads(json.dumps(openapi()["paths"]))
    problem_of(type(viewer)(client_as("")).get("/openapi.json"), 401, "unauthorized")


def test_the_command_prints_it_and_makes_no_file(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "appliance.main", "openapi"],
        cwd=empty, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(json.dumps(openapi()))
    assert list(empty.iterdir()) == []


def test_the_page_has_every_operation_and_nothing_from_elsewhere(client_as):
    page = client_as("viewer").get("/api/v1/docs")
    assert page.status_code == 200
    text = page.content.decode()
    for one in operations():
        assert f"{one.method} {one.path}" in text
    for code in PROBLEMS:
        assert f"<code>{code}</code>" in text
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', text)
    assert "<script>" not in text


def test_the_kept_description_is_the_present_one():
    """A change of the API shows in the diff of docs/openapi.json: `rocketbox openapi > docs/openapi.json`."""
    kept = json.loads((ROOT / "docs/openapi.json").read_text(encoding="utf-8"))
    assert kept == json.loads(json.dumps(openapi()))


def test_the_page_has_a_command_defaults_and_answers_for_each_operation(client_as):
    page = client_as("viewer").get("/api/v1/docs").content.decode()
    assert page.count("<pre class") == len(operations())
    assert "curl -H &quot;Authorization: Bearer $TOKEN&quot; &quot;http://testserver/api/v1/topics/$TOPIC&quot;" in page
    create = page.split("POST /api/v1/topics</code>")[1].split("</details>")[0]
    assert "-X POST" in create
    assert "-d &#x27;{&quot;name&quot;: ...}&#x27;" in create
    assert "<td><code>8</code></td>" in create, "the default of read_queues"
    assert "<b>201</b> Change" in create
    assert "<code>differences</code>" in create


def test_the_guide_lists_every_problem_with_its_status():
    guide = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)` \| (\d{3}) \|", guide, re.MULTILINE)
    assert listed == [(code, str(status)) for code, (status, _) in PROBLEMS.items()]


def test_a_stranger_who_opens_the_page_is_shown_the_door(client_as):
    response = client_as("").get("/api/v1/docs")
    assert (response.status_code, response.headers["Location"]) == (302, "/login/?next=%2Fapi%2Fv1%2Fdocs")


def test_pages_do_without_the_api_in_memory():
    """Links of pages are reversed without importing ninja and pydantic."""
    done = subprocess.run(
        [sys.executable, "-c", (
            "import os, sys; os.environ['DJANGO_SETTINGS_MODULE'] = 'appliance.settings'\n"
            "import django; django.setup()\n"
            "from django.urls import reverse\n"
            "assert reverse('login') and reverse('api_docs') and reverse('nsaddr')\n"
            "assert 'pydantic' not in sys.modules, 'imported too early'\n"
            "assert reverse('api:me') == '/api/v1/me'\n"
        )],
        cwd=ROOT, capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
