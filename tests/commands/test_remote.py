"""`rocketbox topic list` and similar commands: the real program against a real server, and each line of the command
table against the API's description."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from appliance import server_proof
from appliance.api.api import openapi
from appliance.commands.remote import client, show
from appliance.commands.remote.run import VERBS, help_text, options_of, parse
from appliance.commands.remote.shapes import SHAPES
from appliance.commands.remote.show_report import report
from appliance.console.acts.row import Call
from appliance.console.users.wire_user_views import BUTTONS
from appliance.engine.errors import StartError
from appliance.engine.window.replicas.snapshots import MemberView
from appliance.main import REMOTE
from tests.support.directories import shared_directory
from tests.support.engine import Peer, send_fields
from tests.support.server import ROOT, Server
from tests.support.waiting import wait_for

NOUNS = {verb.noun for verb in VERBS}
ADMIN = {"ADMIN_USER": "root", "ADMIN_PASSWORD": "Vogel-Nest-42-Kran"}


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    directory = shared_directory(request, "remote")
    with Server(directory / "data", "--http-port", "0", roles="broker,namesrv,console", environment=ADMIN) as running:
        yield running


@pytest.fixture(scope="module")
def secret(server: Server) -> str:
    """A token. Without one each command would make one, which takes longer than the command itself."""
    return str(
        asked(server, "token", "create", "tests", "--role", "admin", "--may-read-bodies", "--may-export", **HERE)[
            "secret"
        ]
    )


@pytest.fixture(autouse=True)
def _with_token(request: pytest.FixtureRequest) -> None:
    if "server" in request.fixturenames:
        SHARED["ROCKETBOX_TOKEN"] = request.getfixturevalue("secret")


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the zone to UTC: commands print and read times in the machine's zone."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


#: Environment variables of every command.
SHARED: dict[str, str] = {}
#: Runs a command on the server's machine, without a token.
HERE = {"ROCKETBOX_TOKEN": "", "here": "yes"}


def rocketbox(
    server: Server, *words: str, given: str = "", here: str = "", **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a command with the server's address and a token; here: with the data directory instead."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ROCKETBOX_")}
    clean |= {"ROCKETBOX_URL": f"http://{server.ready['http']}"} | SHARED
    clean |= ({"ROCKETBOX_DATA_DIR": str(server.data_dir)} if here else {}) | environ
    return subprocess.run(
        [sys.executable, "-m", "appliance.main", *words],
        cwd=ROOT, env={name: value for name, value in clean.items() if value}, input=given, capture_output=True,
        text=True, timeout=60,
    )  # fmt: skip


def told(server: Server, *words: str, **options: str) -> str:
    done = rocketbox(server, *words, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def asked(server: Server, *words: str, **options: str) -> dict:
    return json.loads(told(server, *words, "--json", **options))


def refused(server: Server, status: int, *words: str, **options: str) -> str:
    done = rocketbox(server, *words, **options)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    assert done.stderr.startswith("rocketbox: ")
    return done.stderr


# --- topics and groups


def test_a_topic_from_its_creation_to_its_end(server, tmp_path):
    preview = told(server, "topic", "create", "life", "--read-queues", "4", "--write-queues=4", "--dry-run")
    assert "read_queues: - -> 4" in preview
    assert "nothing has been changed yet" in preview
    assert "There is no topic life" in refused(server, 3, "topic", "show", "life")
    assert "life: done" in told(server, "topic", "create", "life", "--read-queues", "4", "--write-queues", "4")
    assert asked(server, "topic", "show", "life")["read_queues"] == 4
    assert "already exists" in refused(server, 5, "topic", "create", "life")
    assert "order: false -> true" in told(server, "topic", "edit", "life", "--order")
    assert "order: true -> false" in told(server, "topic", "edit", "life", "--no-order")
    listed = told(server, "topic", "list", "--q", "life")
    assert re.search(r"^name +kind +read_queues", listed)
    assert re.search(r"^life +NORMAL +4 +4", listed, re.MULTILINE)
    (tmp_path / "int.avsc").write_text('"int"')
    given = ("--kind", "avro", "--file", str(tmp_path / "int.avsc"))
    assert "name: - -> int" in told(server, "topic", "schema", "set", "life", *given)
    assert asked(server, "topic", "schema", "show", "life")["name"] == "int"
    assert "life: done" in told(server, "topic", "schema", "remove", "life")
    refused(server, 3, "topic", "schema", "show", "life")
    assert "add --yes" in refused(server, 2, "topic", "delete", "life")
    assert asked(server, "topic", "show", "life")
    assert "life: done" in told(server, "topic", "delete", "life", "--yes")
    refused(server, 3, "topic", "show", "life")


def test_what_is_in_the_way_is_said_and_forced(server):
    uneven = ("topic", "create", "uneven", "--read-queues", "4", "--write-queues", "8")
    said = refused(server, 5, *uneven)
    assert "--force does it all the same." in said
    refused(server, 3, "topic", "show", "uneven")
    told(server, *uneven, "--force")
    assert asked(server, "topic", "show", "uneven")["write_queues"] == 8


def test_what_nobody_uses_is_shown_and_deleted(server):
    told(server, "group", "create", "never-used")
    told(server, "topic", "create", "never-used")
    for noun in ("group", "topic"):
        wanted = (noun, "clean", "--idle-hours", "0", "--q", "never-used")
        assert "never-used" in told(server, *wanted, "--dry-run")
        assert "add --yes" in refused(server, 2, *wanted)
        assert asked(server, noun, "show", "never-used")
        assert asked(server, *wanted, "--yes")["count"] == 1
        refused(server, 3, noun, "show", "never-used")
    assert asked(server, "group", "clean-offsets", "--yes")["count"] == 0


def test_a_group_and_its_offsets(server):
    told(server, "topic", "create", "offsets", "--read-queues", "1", "--write-queues", "1")
    told(server, "group", "create", "readers", "--retry-max-times", "3")
    assert asked(server, "group", "list", "--q", "readers")["items"][0]["name"] == "readers"
    for number in range(5):
        told(server, "message", "send", "offsets", "--text", str(number))
    peer = Peer(server.broker)
    fields = {"consumerGroup": "readers", "topic": "offsets", "queueId": 0, "commitOffset": 5}
    peer.ask(15, fields)
    peer.close()
    preview = asked(server, "group", "reset", "readers", "--to", "earliest", "--topic", "offsets", "--dry-run")
    assert (preview["applied"], preview["replays"]) == (False, 5)
    assert asked(server, "group", "progress", "readers")["items"][0]["committed"] == 5
    made = asked(server, "group", "reset", "readers", "--to", "earliest", "--topic", "offsets", "--yes")
    assert made["applied"]
    assert asked(server, "group", "resets", "readers")["items"][0]["id"] == made["id"]
    assert asked(server, "group", "undo", "readers", str(made["id"]), "--yes")["applied"]
    assert "earliest" in refused(server, 6, "group", "reset", "readers", "--to", "somewhere", "--yes")
    both = refused(server, 6, "group", "reset", "readers", "--to", "latest", "--at", "yesterday 18:00", "--dry-run")
    assert "at_ms is not used when offsets move to latest." in both
    told(server, "message", "send", "offsets", "--text", "nobody is there")
    diagnosis = told(server, "group", "diagnosis", "readers")
    assert diagnosis.startswith("act: No consumer is connected, and")
    assert "\n  what to do: Start a consumer of the group; it goes on from the committed offsets.\n" in diagnosis
    [unknown] = [line for line in diagnosis.splitlines() if line.endswith(". No consumer of the group is connected.")]
    assert unknown.startswith("not known: nobody pulls, "), "what is not known for one reason is one line"
    told(server, "group", "create", "well")
    assert "Nothing wrong was found." in told(server, "group", "diagnosis", "well")


# --- messages


def test_messages_are_sent_found_and_shown(server):
    told(server, "topic", "create", "letters", "--read-queues", "1", "--write-queues", "1")
    sent = asked(server, "message", "send", "letters", "--text", "héllo", "--tags", "A", "--key", "k1", "--key", "k2",
                 "--property", "colour=red=1")  # fmt: skip
    told(server, "message", "send", "letters", given="from standard input")
    rows = asked(server, "message", "list", "letters", "--limit", "1")
    assert (len(rows["items"]), bool(rows["next_cursor"])) == (1, True)
    assert len(asked(server, "message", "list", "letters", "--limit", "1", "--all")["items"]) == 2
    assert asked(server, "message", "list", "letters", "--from", "2999-01-01T00:00:00Z")["items"] == []
    assert asked(server, "message", "search", "k2")["items"][0]["message"]["unique_id"] == sent["unique_id"]
    assert asked(server, "message", "search", "k2", "--copies")["items"][0]["state"] == "stored"
    heads, row = told(server, "message", "search", "k2").splitlines()
    assert heads.split() == [
        "stored", "for_topic", "state", "failed_tries", "dead_letter_of", "tags", "keys", "unique_id", "message",
    ]  # fmt: skip
    assert re.fullmatch(rf"\S+ \S+ +letters +stored +0 +- +A +k1, k2 +{sent['unique_id']} +letters/0/0", row)
    shown = asked(server, "message", "show", "letters/0/0")
    assert shown["properties"]["colour"] == "red=1"
    assert "letters" in told(server, "message", "show", sent["offset_id"])
    assert asked(server, "message", "body", "letters/0/0")["data"] == "héllo"


def test_a_file_of_any_bytes_is_a_body(server, tmp_path):
    told(server, "topic", "create", "bytes")
    (tmp_path / "body").write_bytes(bytes(range(256)))
    told(server, "message", "send", "bytes", "--file", str(tmp_path / "body"))
    [row] = asked(server, "message", "list", "bytes")["items"]
    assert row["body_bytes"] == 256
    assert "cannot be read" in refused(server, 2, "message", "send", "bytes", "--file", "/no/such")


def test_dead_letters_are_replayed_and_waited_for(server):
    told(server, "topic", "create", "Orders")
    told(server, "group", "create", "unlucky")
    peer = Peer(server.broker)
    for number in range(3):
        answer = peer.ask(310, send_fields("Orders", 0, f"UNIQ_KEY\x01{number:032X}\x02"), b"x")
        fields = {
            "offset": int(answer.ext_fields["msgId"][-16:], 16), "group": "unlucky", "delayLevel": -1,
            "originMsgId": "x", "originTopic": "Orders", "unitMode": "false", "maxReconsumeTimes": 16,
        }  # fmt: skip
        assert peer.ask(36, fields).code == 0
    peer.close()
    assert asked(server, "dlq", "list")["items"][0]["count"] == 3
    assert len(asked(server, "dlq", "show", "unlucky")["items"]) == 3
    assert asked(server, "dlq", "replay", "unlucky", "--dry-run")["total"] == 3
    ended = asked(server, "dlq", "replay", "unlucky", "--rate", "1000", "--yes", "--wait")
    assert (ended["state"], ended["replayed"]) == ("done", 3)
    assert asked(server, "dlq", "replays")["items"][0]["id"] == ended["id"]


def test_a_delayed_message_is_dropped(server):
    told(server, "topic", "create", "later", "--kind", "DELAY")
    told(server, "message", "send", "later", "--text", "x", "--delay-level", "18")
    [row] = asked(server, "delayed", "list", "--topic", "later")["items"]
    place = f"{row['level']}/{row['queue_offset']}"
    told(server, "delayed", "cancel", place, "--dry-run")
    assert len(asked(server, "delayed", "list", "--topic", "later")["items"]) == 1
    told(server, "delayed", "cancel", place, "--yes")
    assert asked(server, "delayed", "list", "--topic", "later")["items"] == []
    assert "is no place" in refused(server, 2, "delayed", "cancel", "soon", "--yes")


def test_an_open_transaction_is_rolled_back(server):
    told(server, "topic", "create", "deals")
    told(server, "message", "send", "deals", "--text", "x", "--half-of", "dealers")
    rows = wait_for(lambda: asked(server, "transaction", "list", "--topic", "deals")["items"], "it is open", every=0.2)
    half = str(rows[0]["half_offset"])
    assert "reason" in refused(server, 6, "transaction", "rollback", half, "--yes")
    told(server, "transaction", "rollback", half, "--reason", "nobody decides", "--yes")
    assert asked(server, "transaction", "list", "--topic", "deals")["items"] == []


# --- settings, tokens, jobs


def test_an_option_is_set_and_unset(server):
    assert "fileReservedTime: 72 -> 80" in told(server, "config", "set", "fileReservedTime", "80", "--dry-run")
    told(server, "config", "set", "fileReservedTime", "80")
    options = {one["name"]: one for one in asked(server, "config", "show")["options"]}
    assert (options["fileReservedTime"]["value"], options["fileReservedTime"]["changed_here"]) == ("80", True)
    told(server, "config", "unset", "fileReservedTime")
    assert "fileReservedTimes" in refused(server, 3, "config", "set", "fileReservedTimes", "80")


def test_definitions_go_out_and_in(server, tmp_path):
    text = rocketbox(server, "config", "definitions", "export").stdout
    assert text.startswith("# RocketBox")
    path = tmp_path / "definitions.yaml"
    path.write_text("rocketbox: 1\ntopics: {defined: {read_queues: 3, write_queues: 3}}\n")
    would = json.loads(rocketbox(server, "config", "definitions", "import", str(path), "--dry-run", "--json").stdout)
    assert [one["act"] for one in would["items"]] == ["create"]
    done = json.loads(rocketbox(server, "config", "definitions", "import", str(path), "--json").stdout)
    assert [one["act"] for one in done["items"]] == ["done"]
    assert "defined:" in rocketbox(server, "config", "definitions", "export").stdout


def test_a_token_that_stays_is_made_used_and_disabled(server):
    made = asked(server, "token", "create", "ci", "--role", "operator", **HERE)  # and the address in a variable
    token = {"ROCKETBOX_TOKEN": made["secret"]}
    assert asked(server, "topic", "list", **token)
    assert "role admin" in refused(server, 4, "topic", "delete", "x", "--yes", **token)
    refused(server, 4, "topic", "list", ROCKETBOX_TOKEN="rbx_wrong")
    told(server, "token", "disable", str(made["id"]))
    refused(server, 4, "topic", "list", **token)


def test_a_user_is_made_changed_and_disabled(server):
    made = asked(server, "user", "create", "ann", "--role", "operator", "--topic-pattern", "orders-*")
    assert made["user"]["username"] == "ann" if "user" in made else made["username"] == "ann"
    told(server, "user", "edit", "ann", "--role", "viewer", "--may-export")
    shown = asked(server, "user", "show", "ann")
    assert (shown["role"], shown["may_export"], shown["topic_pattern"]) == ("viewer", True, "orders-*")
    told(server, "user", "disable", "ann")
    assert [row["active"] for row in asked(server, "user", "list", "--q", "ann")["items"]] == [False]
    told(server, "user", "enable", "ann")
    refused(server, 3, "user", "show", "nobody")


def test_messages_are_exported_fetched_and_imported(server, tmp_path):
    told(server, "topic", "create", "source")
    told(server, "topic", "create", "copy")
    for number in range(3):
        told(server, "message", "send", "source", "--text", f"body {number}")
    job = asked(server, "message", "export", "source", "--bodies", "--wait")
    assert (job["state"], job["kind"]) == ("done", "message-export")
    [file] = job["files"]
    text = told(server, "job", "fetch", job["id"], file["name"])
    assert len(text.splitlines()) == 3
    (tmp_path / "messages.ndjson").write_text(text)
    ended = asked(server, "message", "import", "copy", "--file", str(tmp_path / "messages.ndjson"), "--wait")
    assert ended["state"] == "done"
    assert len(asked(server, "message", "list", "copy")["items"]) == 3
    assert asked(server, "job", "list", "--kind", "message-export")["items"][0]["id"] == job["id"]
    assert asked(server, "job", "wait", job["id"])["state"] == "done"


def test_a_token_in_a_file(server, tmp_path):
    secret = asked(server, "token", "create", "in-a-file", **HERE)["secret"]
    (tmp_path / "token").write_text(secret + "\n")
    assert asked(server, "topic", "list", ROCKETBOX_TOKEN_FILE=str(tmp_path / "token"), ROCKETBOX_TOKEN="")
    assert asked(server, "topic", "list", "--token-file", str(tmp_path / "token"), ROCKETBOX_TOKEN="rbx_wrong")
    assert "cannot be read" in refused(server, 2, "topic", "list", "--token-file", "/no/such")


def test_the_token_of_a_command_is_gone_afterwards_and_the_audit_log_has_the_act_alone(server):
    told(server, "topic", "list", **HERE)
    told(server, "topic", "create", "from-here", **HERE)
    database = sqlite3.connect(server.data_dir / "rocketbox/console.sqlite3")
    left = database.execute("SELECT count(*) FROM console_apitoken WHERE name LIKE 'command line%'").fetchone()
    said = database.execute(
        "SELECT action, target FROM console_auditentry WHERE actor LIKE '%command line%' ORDER BY id"
    ).fetchall()
    database.close()
    assert left == (0,)
    assert ("topic.create", "from-here") in said
    assert not [one for one in said if one[0] == "token.create" and one[1].startswith("command line")]


def test_a_token_of_this_machine_is_not_sent_to_another(server):
    said = refused(server, 2, "topic", "list", ROCKETBOX_URL="http://192.0.2.1:8080", **HERE)
    assert "Give a token" in said
    data = ["--data-dir", str(server.data_dir)]
    said = refused(server, 2, "topic", "list", *data, ROCKETBOX_URL="http://192.0.2.1:8080", ROCKETBOX_TOKEN="")
    assert "Give a token" in said


def test_a_token_of_a_command_reaches_only_who_can_write_the_database(server, tmp_path):
    assert "no console database" in refused(
        server, 2, "topic", "list", "--data-dir", str(tmp_path / "elsewhere"), **HERE
    )


def test_a_job_is_listed_and_waited_for(server):
    assert asked(server, "job", "list", "--state", "failed")["items"] == []
    assert "There is no job" in refused(server, 3, "job", "wait", "20200101-000000-00000000")


# --- wrong command lines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("topic", "lst"), "do you mean list?"),
        (("topic", "show"), "It goes: rocketbox topic show NAME"),
        (("report", "run", "2026-11-29"), "It goes: rocketbox report run [--day]; see"),
        (("topic", "create", "x", "--read-queue", "4"), "do you mean --read-queues?"),
        (("topic", "create", "x", "--read-queues", "four"), "--read-queues needs a whole number, not four."),
        (("topic", "create", "x", "--read-queues"), "--read-queues needs a value."),
        (("topic", "list", "--force"), "--force means nothing to rocketbox topic list."),
        (("topic", "show", "x", "--dry-run"), "--dry-run means nothing"),
        (("topic", "create", "x", "--order=perhaps"), "--order takes no value: it is --order or --no-order."),
        (("message", "send", "x", "--property", "colour"), "--property needs KEY=VALUE"),
        (("topic", "list", "--url", "ftp://x"), "is no address"),
    ],
)
def test_a_wrong_command_line_is_said_in_one_sentence(server, words, said):
    assert said in refused(server, 2, *words)


def test_the_problem_is_json_where_json_was_asked_for(server):
    done = rocketbox(server, "topic", "show", "no-such", "--json")
    assert (done.returncode, done.stdout) == (3, "")
    assert json.loads(done.stderr)["code"] == "topic_not_found"


def test_nobody_answers(server):
    assert "no server answers" in refused(
        server, 7, "topic", "list", "--url", "http://127.0.0.1:1", ROCKETBOX_TOKEN="x"
    )


@pytest.mark.parametrize("words", [("ha", "switch"), ("ha", "adopt", "U", "--confirm", "S")])
def test_who_shall_lead_is_not_chosen_without_a_console_and_that_is_said(tmp_path, words):
    code = "import sys; from appliance.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--data-dir", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode != 0
    assert "Start the member with the console role and an administrator" in done.stderr
    assert "Traceback" not in done.stderr


def test_start_up_imports_no_django_when_there_is_a_token(server):
    code = (
        "import sys; from appliance.main import main; main(['topic', 'list', '--token', 'x', '--url', "
        "'http://127.0.0.1:1']); "
        "print(sorted({'django', 'ninja', 'pydantic', 'requests', 'gunicorn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stderr


# --- the table


def test_the_command_knows_every_noun():
    assert set(REMOTE) == NOUNS


@pytest.mark.parametrize("verb", VERBS, ids=[verb.name for verb in VERBS])
def test_a_line_of_the_table_says_what_the_api_says(verb):
    described = openapi()
    method, path = verb.asks.split()
    wanted = re.sub("{.*?}", "{}", f"/api/v1{path}")
    found = [
        (place, ways[method.lower()]) for place, ways in described["paths"].items()
        if method.lower() in ways and re.fullmatch(_pattern(place), wanted.replace("{}", "x"))
    ]  # fmt: skip
    assert found, verb.asks
    _, operation = found[0]
    names = {one["name"] for one in operation["parameters"] if one["in"] == "query"}
    query = {name for part, name, _ in options_of(verb).values() if part == "query"}
    said = {name.partition(".")[0] for part, name, _ in options_of(verb).values() if part == "body"}
    if method == "GET":
        query |= {pair.partition("=")[0] for pair in verb.fixed.split()}
    assert query <= names
    assert verb.dry_run == ("dry_run" in names)
    assert verb.force == ("force" in names)
    assert (verb.lists or verb.follows) == ("cursor" in names)
    if verb.shape in ("option", "json"):
        return
    _columns_are_of_the_answer(described, verb, operation)
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    refs = [one["$ref"] for one in (content, *content.get("anyOf", ())) if "$ref" in one]  # a body may be optional
    shape = described["components"]["schemas"].get(refs[0].rpartition("/")[2], {}) if refs else {}
    fields = set(shape.get("properties", {}))
    said |= {pair.partition("=")[0] for pair in verb.fixed.split() if method != "GET"}
    fields -= {"password"}  # every user of the machine can see a command line
    said |= {"message": {"body"}, "waiting": {"places"}, "half": {"places"}}.get(verb.shape, set())
    assert said <= fields
    if verb.noun == "user" and method == "PATCH":
        said |= {"active"}  # disable and enable
    if (method == "PATCH" and verb.body) or verb.name.endswith("create NAME"):
        assert said == fields, "an option is missing"


def _columns_are_of_the_answer(described: dict, verb: Call, operation: dict) -> None:
    """Assert that a command's columns are fields of the objects in the answer, or in a list within it."""
    shapes = described["components"]["schemas"]
    rows = []
    for status, answer in operation["responses"].items():
        schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
        fields = shapes.get(schema.get("$ref", "").rpartition("/")[2], {}).get("properties", {})
        if str(status).startswith("2"):
            rows += [one for whole in (*fields.values(), schema) for one in (whole.get("anyOf") or [whole])]
    items = [item for one in rows for whole in [one.get("items", {})] for item in whole.get("anyOf") or [whole]]
    names = [one.get("$ref", "").rpartition("/")[2] for one in items]
    lists = [set(shapes[name]["properties"]) for name in names if name]
    columns = {name.partition(".")[0].removesuffix("?") for name in verb.columns.split()}
    assert not columns or any(columns <= one for one in lists), columns


#: Operations without a command in the table -> the reason.
WITHOUT_A_VERB = {
    "GET /me": "of a session", "GET /me/sessions": "of a session", "DELETE /me/sessions/{number}": "of a session",
    "POST /users/{username}/password": "`user reset-password`, on the server's machine",
    "POST /audit/checks": "`audit check`, which needs no server",
}  # fmt: skip


#: Operations for several acts -> the acts, each of which has a command of its own.
OF_ACTS = {
    "POST /replays/{job}/{act}": ("pause", "resume", "cancel"),
    "POST /wire-users/{name}/acts/{act}": tuple(BUTTONS),
}


def test_each_operation_has_a_command():
    asked = {re.sub("{.*?}", "{}", verb.asks) for verb in VERBS}
    there = {
        f"{method.upper()} {place.removeprefix('/api/v1')}"
        for place, ways in openapi()["paths"].items()
        for method in ways.keys() & {"get", "post", "put", "patch", "delete"}
    }
    assert there >= WITHOUT_A_VERB.keys()
    for one, acts in OF_ACTS.items():
        assert {re.sub("{.*?}", "{}", one.replace("{act}", act)) for act in acts} <= asked
    missing = {one for one in there if re.sub("{.*?}", "{}", one) not in asked} - OF_ACTS.keys()
    assert missing == WITHOUT_A_VERB.keys()


def _pattern(place: str) -> str:
    return re.sub(r"\\{.*?\\}", "[^/]+", re.escape(place))


def test_help_names_every_verb_and_option():
    for noun in NOUNS:
        text = help_text(noun, ())
        for verb in VERBS:
            if verb.noun == noun:
                assert f"rocketbox {verb.words}\n" in text
                assert all(option in text for option in options_of(verb))


def test_a_command_takes_the_port_that_the_server_was_given(server):
    """README says so; only --url did it."""
    port = server.ready["http"].rpartition(":")[2]
    place = ["--data-dir", str(server.data_dir), "--bind", "127.0.0.1", "--http-port", port]
    done = rocketbox(server, "topic", "list", *place, ROCKETBOX_URL="", ROCKETBOX_TOKEN="")
    assert (done.returncode, done.stderr) == (0, "")


def test_help_of_one_command_says_what_its_options_take():
    text = help_text("group", ["reset", "billing", "--help"])
    assert text.startswith("usage: rocketbox group reset NAME [options]\n")
    assert "\n  --to earliest|latest|time|offset|shift|skip\n" in text
    assert "\n  --at TIME\n" in text
    assert "rocketbox group pause" not in text


def _words_of(schema, name, found):
    """Add what a property of this name may be, anywhere in a schema."""
    if isinstance(schema, list):
        for one in schema:
            _words_of(one, name, found)
    elif isinstance(schema, dict):
        own = schema.get("properties", {}).get(name, {})
        for one in (own, own.get("items", {}), *own.get("anyOf", ())):
            found |= {*one.get("enum", ()), *([one["const"]] if "const" in one else ())}
        for one in schema.values():
            _words_of(one, name, found)


def test_help_says_what_the_exit_status_of_what_is_begun_means():
    assert "Without it, 0 only says that it has begun." in help_text("report", ["run", "--help"])
    assert "--wait" not in help_text("job", ["wait", "--help"])


@pytest.mark.parametrize(
    ("words", "on"),
    [(("--on",), True), (("--on", "true"), True), (("--on", "no"), False), (("--on=false",), False),
     (("--no-on",), False), (("--on", "off"), False)],
)  # fmt: skip
def test_a_switch_may_have_its_value_as_a_word(words, on):
    assert parse("report", ["settings", "set", *words, "--at", "02:30"]).body == {"on": on, "at": "02:30"}
    with pytest.raises(StartError, match="--on takes no value: it is --on or --no-on"):
        parse("report", ["settings", "set", "--no-on", "true"])


def test_a_time_that_is_none_is_refused_in_words(server):
    said = refused(server, 6, "report", "settings", "set", "--at", "2")
    assert "at: must be a time of the day as HH:MM, as 02:00" in said
    assert "[" not in said
    said = refused(server, 6, "report", "run", "--day", "now")
    assert "day: must be today, yesterday, or a day as YYYY-MM-DD" in said


def test_words_in_the_help_are_those_that_the_api_takes():
    document = openapi()
    schemas = json.loads(json.dumps(document["components"]["schemas"]))
    seen = 0
    for verb in VERBS:
        for _, wire, kind in options_of(verb).values():
            if "|" in kind:
                found = set()
                _words_of(schemas, wire.rpartition(".")[2], found)
                assert set(kind.split("|")) <= found, f"{verb.name} {wire}"
                seen += 1
    assert seen


def test_a_command_line_is_read():
    command = parse("message", ["send", "t", "--key=a", "--key", "b", "--at", "2026-11-21T13:34:32Z", "--queue", "3"])
    assert command.body == {"keys": ["a", "b"], "deliver_at_ms": 1795268072000, "queue_id": 3}
    assert parse("topic", ["show", "--", "--odd"]).path == "/topics/--odd"
    assert parse("topic", ["show", "a/b %"]).path == "/topics/a%2Fb%20%25"
    with pytest.raises(StartError):
        parse("topic", ["show", "a", "b"])


def test_a_time_is_said_in_the_zone_of_the_machine(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        at = parse("group", ["reset", "g", "--to", "time", "--at", "2026-11-21 21:34:32"]).body["at_ms"]
        ago = parse("message", ["list", "t", "--from", "1 h ago"]).query["from"]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert at == 1795268072000
    assert ago <= time.time_ns() // 1_000_000 - 3_600_000
    with pytest.raises(StartError, match=r"--from needs a time like .*, 10:00, .* not 'soon'"):
        parse("message", ["list", "t", "--from", "soon"])


def test_what_others_chose_cannot_move_the_terminal():
    assert "\x1b" not in "\n".join(show.table([{"name": "\x1b[2J"}], ["name"]))
    assert "\x1b" not in "\n".join(show.facts({"a": {"b": "\x1b[2J"}, "c": ["\x1b"], "d": [{"e": "\x1b"}]}))


def test_figures_are_shown_as_people_read_them():
    said = show.facts(
        {"at_ms": 0, "lag": 3, "lag_ms": 925_407, "until_ms": 1_795_268_072_000, "asked": "time 1795268072000",
         "log_bytes": 1_500_000, "in_rate": 2.5, "in_bytes_rate": 2048.0, "disk_used_percent": 85.44, "body_bytes": 12,
         "uptime_ms": 93_784_000, "step_ms": 30, "states": {"": 8}, "told_ms": None}
    )  # fmt: skip
    assert said == [
        "at: 1970-01-01 00:00:00Z", "lag: 3", "lag_time: 15 min 25 s", "until: 2026-11-21 13:34:32Z",
        "asked: time 2026-11-21 13:34:32Z", "log_bytes: 1.4 MiB", "in_rate: 2.5/s", "in_bytes_rate: 2.0 KiB/s",
        "disk_used_percent: 85.4 %", "body_bytes: 12 B", "uptime: 1 d 2 h", "step: 30 ms", "told: -",
    ]  # fmt: skip
    why = {"code": "some", "text": "2 queues are not counted."}
    partial = [{"lag": 3, "lag_why": why}, {"lag": 12, "lag_why": None}]
    assert show.table(partial, ["lag"]) == ["lag", "≥ 3", " 12"]
    assert show.table([{"lag": 3, "lag_ms": 61_000, "consumers": 2}], ["lag", "lag_ms", "consumers"]) == [
        "lag   lag_time  groups", "  3  1 min 1 s       2",
    ]  # fmt: skip
    steps = {"lag": 0, "lag_why": None, "lag_ms_why": "new", "error": "", "steps": [{"step": "reading", "ms": 1377}]}
    assert show.facts(steps | {"bytes_read": 631_157, "peak_mib": 76}) == [
        "lag: 0", "lag_time_why: new", "error: -", "steps:", "  step     time", "  reading   1 s",
        "bytes_read: 616.4 KiB", "peak: 76.0 MiB",
    ]  # fmt: skip
    assert show.series({"name": "in", "unit": "/s", "times_at_ms": [0, 1000], "values": [1.5, None]}) == [
        "in (/s)", "1970-01-01 00:00:00Z  1.5", "1970-01-01 00:00:01Z  -",
    ]  # fmt: skip


def test_a_report_is_shown_in_words_and_units():
    answer = {
        "report": "group-health", "day": "2026-11-29", "zone": "UTC", "t0_at_ms": 0, "plots": [{"key": "hours"}],
        "tiles": [
            {"key": "worst_behind_ms", "value": 310_600, "unit": "ms", "before": 60_000, "trend": [None, 310_600],
             "where": [["group", "led\x1bger"], ["time_ms", None]]},
            {"key": "bytes", "value": None, "unit": "bytes", "before": None, "trend": [], "where": []},
            {"key": "retries", "value": 12_345, "unit": "messages", "before": None, "trend": [], "where": []},
        ],
        "tables": [
            {"key": "worst", "left_out": 3, "acts": [],
             "columns": [["group", "group"], ["what", "word"], ["now", "in_unit"], ["unit", "unit"]],
             "rows": [["billing", "fell_behind", 61_000, "ms"], ["shipping", "retries", 7, "messages"]]},
            {"key": "hours", "left_out": 0, "acts": [], "columns": [["hour", "time_ms"], ["share", "permille"]],
             "rows": [[0, None], [0, 123]]},
            {"key": "none", "left_out": 0, "acts": [], "columns": [["day", "day"]], "rows": []},
        ],
        "notes": [
            {"key": "no_day_before", "values": [["day", "2026-11-28"]]},
            {"key": "worst_over_limit", "values": [["count", 61_000], ["group", "billing"]]},
            {"key": "unfinished_day", "values": [["until", 1_795_268_072_000], ["days", 2]]},
        ],
        "figures": {"worst_behind_ms": 310_600},
    }  # fmt: skip
    assert report(answer) == [
        "Group health, Sun 2026-11-29 (UTC), counted up to 1970-01-01",
        "Which consumers fell behind, and when?",
        "Group billing was further behind than its limit for 1 min 1 s.",
        "note: The day was not over when this was made: it goes to 2026-11-21 13:34.",
        "",
        "Furthest behind: 5 min 10 s (led\\x1bger, the day before: 1 min)",
        "Bytes received: not known",
        "Retries: 12,345",
        "",
        "What was worst:",
        "  Group     What          This day",
        "  billing   fell behind  1 min 1 s",
        "  shipping  retries              7",
        "  (and 3 more)",
        "",
        "How far behind in each hour, 95th percentile:",
        "        Hour   Share",
        "  1970-01-01  12.3 %",
        "",
        "none:",
        "  (none)",
        "",
        "As CSV: rocketbox report table 2026-11-29 group-health worst|hours|none",
        "As SVG: rocketbox report plot 2026-11-29 group-health hours",
        "note: There are no facts of the whole of 2026-11-28, the day before: nothing can be compared with it.",
    ]


def test_a_message_says_of_each_group_why_it_has_it_or_not():
    """Its columns ended before that one."""
    why = {"code": "not_reached", "text": "3 messages are ahead of it.", "args": {}}
    group = {"group": "billing", "state": "waiting", "place": "orders/1/7", "committed": 4, "ahead": 3,
             "deliveries": 2, "delivered_at_ms": 0, "delivered_to": "a@b", "why": why}  # fmt: skip
    answer = {
        "topic": "orders", "queue_id": 1, "queue_offset": 7, "offset_id": "AB", "keys": ["order-7"],
        "story": [
            {"at_ms": 0, "what": "stored", "detail": {"place": "orders/1/7", "offset_id": "AB"}},
            {"at_ms": None, "what": "sent_back",
             "detail": {"group": "billing", "due_ms": 1_795_268_072_000, "place": "%RETRY%b/0/1"}},
        ],
        "story_notes": [{"code": "x", "text": "More may have happened.", "args": {}}],
        "groups": [group],
    }  # fmt: skip
    assert show.is_message(answer)
    assert show.message(answer)[4:] == [
        "keys: order-7",
        "story:",
        "  1970-01-01 00:00:00Z  stored",
        "  time not known  sent back  group billing, due 2026-11-21 13:34:32Z, place %RETRY%b/0/1",
        "  More may have happened.",
        "groups:",
        "  billing: waiting. 3 messages are ahead of it.",
        "    given out: 2, last to a@b at 1970-01-01 00:00:00Z",
        "    more: rocketbox group diagnosis billing",
    ]
    assert show.message(answer | {"groups": []})[-1] == "  (none)"


def test_options_lead_into_what_is_nested_and_take_numbers():
    assert parse("dlq", ["archive", "g", "--origin-topic", "t", "--retries", "3"]).body == {
        "filter": {"topic": "t", "retries": 3}
    }
    assert parse("alert", ["silence", "--hours", "0.5", "--reason", "x"]).body["hours"] == 0.5
    with pytest.raises(StartError, match="--hours needs a number, not soon"):
        parse("alert", ["silence", "--hours", "soon"])


def test_names_and_the_last_column_are_whole_and_what_is_cut_shows_it():
    name, text = "n" * 200, "some words " * 20
    assert show.table([{"name": name, "why": text, "sentence": text}], ["name", "why", "sentence"])[1].split("  ") == [
        name, text[:59] + "…", text.rstrip(),
    ]  # fmt: skip
    assert show.table([{"name": "n" * 300, "b": 1}], ["name", "b"])[1].split("  ")[0] == "n" * 254 + "…"


def test_a_long_row_of_numbers_is_its_ends():
    assert show.facts({"lags": [0.5, *range(1, 20)], "few": [1, 2]}) == [
        "lags: 0.5 … 19 (20 values, all of them with --json)", "few: 1, 2",
    ]  # fmt: skip


def test_a_reset_needs_no_word_for_the_target_that_its_option_names():
    for words, to in (
        (["--at", "2026-11-21T13:34:32Z"], "time"), (["--offset", "3"], "offset"), (["--by", "-3"], "shift"),
        (["--to", "skip", "--offset", "3"], "skip"),
    ):  # fmt: skip
        command = parse("group", ["reset", "g", *words])
        assert SHAPES[command.verb.shape](command.arguments, command.body, command.given)["to"] == to
    command = parse("group", ["reset", "g", "--offset", "3", "--by", "2"])
    assert "to" not in SHAPES[command.verb.shape](command.arguments, command.body, command.given)


def test_a_column_may_be_of_what_is_nested():
    rows = [{"message": {"tags": "A", "born_at_ms": 0, "size": 5}, "id": 1}, {"message": None, "id": 2}]
    assert show.table(rows, ("message.born_at_ms", "message.tags", "message.size", "message.size.more", "id.more")) == [
        "born                  tags  size  more  more",
        "1970-01-01 00:00:00Z  A        5     -     -",
        "-                     -        -     -     -",
    ]


def test_a_nested_list_shows_the_columns_that_a_command_names():
    wide = dict.fromkeys("abcdefghijk", 1)
    said = show.facts({"rows": [wide], "others": [{"at_ms": 0, "b": 2}]}, columns=("k", "b"))
    assert [line.split() for line in said] == [
        ["rows:"],
        ["k", "b"],
        ["1", "1"],
        ["others:"],
        ["at", "b"],
        ["1970-01-01", "00:00:00Z", "2"],
    ]


def test_a_column_that_may_be_missing_is_shown_when_it_is_there():
    columns = ("a", "glance?")
    assert [line.split() for line in show.table([{"a": 1}], columns)] == [["a"], ["1"]]
    assert [line.split() for line in show.table([{"a": 1, "glance": "x"}], columns)] == [["a", "glance"], ["1", "x"]]


def test_the_status_of_a_set_says_who_is_behind():
    status = next(verb for verb in VERBS if verb.words == "ha status")
    columns = set(status.columns.split())
    assert {"lag_bytes", "lag_ms", "last_epoch", "log_end"} <= columns <= {one.name for one in fields(MemberView)}


@pytest.mark.parametrize("relays", ["not", "from another port", "from another address"])
def test_no_token_is_sent_to_another_program_on_the_expected_port(server, secret, relays):
    """Not even to a program that lets the real server answer the question."""
    key = (server.data_dir / "rocketbox/secret-key").read_text().strip()
    shown: list[str] = []

    class Impostor(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            shown.append(str(self.headers))
            proof = ""
            if relays != "not":
                real = http.client.HTTPConnection(server.ready["http"], timeout=60)
                real.request("GET", self.path, headers={server_proof.ASK: self.headers[server_proof.ASK]})
                proof = real.getresponse().headers[server_proof.ANSWER]
                assert proof
                real.close()
            self.send_response(200)
            self.send_header(server_proof.ANSWER, proof)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *arguments: object) -> None: ...

    port = int(server.ready["http"].rpartition(":")[2])
    place = ("127.0.0.2", port) if relays == "from another address" else ("127.0.0.1", 0)
    listener = ThreadingHTTPServer(place, Impostor)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        with pytest.raises(client.Unreachable, match="sent no token"):
            client.Server(f"http://{place[0]}:{listener.server_port}", secret, key).ask("GET", "/me")
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
    assert shown
    assert secret not in "".join(shown)
    assert client.Server(f"http://{server.ready['http']}", secret, key).ask("GET", "/me")["username"] == "root"


# --- the first page


def test_the_commands_of_the_first_page_run_one_after_the_other(server, tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8").split("## From a shell")[1]
    path, *lines = text.split("```")[1].strip().splitlines()
    assert path == "PATH=$PWD/.venv/bin:$PATH"
    assert len(lines) > 4
    example = [sys.executable, "examples/python/orders.py", server.namesrv]
    done = subprocess.run(
        example, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    command = tmp_path / "rocketbox"
    command.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m appliance.main "$@"\n')
    command.chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ROCKETBOX_")}
    clean |= SHARED | {"ROCKETBOX_URL": f"http://{server.ready['http']}", "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for line in lines:
        done = subprocess.run(line, shell=True, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, ""), line


def test_the_time_that_the_broker_did_not_run_is_shown_as_a_time():
    answer = {
        "report": "digest",
        "day": "2026-11-29",
        "zone": "UTC",
        "t0_at_ms": 0,
        "tiles": [],
        "tables": [],
        "plots": [],
    }
    lines = report(answer | {"notes": [{"key": "down", "values": [["count", 7_200_000]]}]})
    assert lines[-1] == "The broker did not run for 2 h."


@pytest.mark.parametrize(
    "wrong",
    [
        {"tables": None},
        {"tables": [{"key": "worst"}]},
        {"tables": [{"key": "worst", "columns": [["group"]], "rows": []}]},
        {"tables": [{"key": "worst", "columns": [["group", "group"], ["now", "bytes"]], "rows": [[]]}]},
        {"t0_at_ms": None},
        {"plots": [None]},
    ],
)
def test_an_answer_that_is_no_report_is_said_to_be_none(wrong):
    parts = {"tiles": [], "tables": [], "plots": [], "notes": []}
    answer = {"report": "digest", "day": "2026-11-29", "zone": "UTC", "t0_at_ms": 0} | parts
    assert report(answer)
    with pytest.raises(StartError, match="The answer is not a report: "):
        report(answer | wrong)


@pytest.mark.parametrize(
    ("delivered", "whole", "said"),
    [
        (0, False, "given out: not known;"),
        (0, True, "given out: never;"),
        (2, False, "given out: 2 or more, last to c@d at 1970-01-01 00:00:00Z;"),
    ],
)
def test_deliveries_that_were_not_recorded_are_not_counted_as_none(delivered, whole, said):
    held = {
        "topic": "T", "queue_id": 0, "offset": 3, "unique_id": "u", "offset_id": "o", "stored_at_ms": 0,
        "delivered": delivered, "delivered_whole": whole, "last_client": "c@d", "last_at_ms": 0, "held_by": None,
        "skip": {"to": "offset", "topics": ["T"], "queues": [0], "offset": 4},
    }  # fmt: skip
    finding = {"level": "act", "sentence": {"text": "It stands."}, "message": held}
    assert said in "\n".join(show.diagnosis({"group": "g", "findings": [finding], "looked": []}))


@pytest.mark.parametrize("as_json", [False, True])
def test_a_tail_prints_messages_as_they_are_stored(server, as_json):
    topic = f"tailed-{as_json}"
    told(server, "topic", "create", topic)
    told(server, "message", "send", topic, given="before")
    command = [sys.executable, "-m", "appliance.main", "message", "tail", topic, "--body-chars", "20"]
    environ = {**os.environ, **SHARED, "ROCKETBOX_URL": f"http://{server.ready['http']}", "TZ": "UTC"}
    with subprocess.Popen(
        [*command, *(["--json"] if as_json else [])],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        # Jobs in the background of a shell ignore it, and so do their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        lines: list[str] = []
        reader = threading.Thread(target=lambda: lines.extend(iter(process.stdout.readline, "")))
        reader.start()
        try:
            # It has begun once it shows one of those that are sent again and again.
            def came() -> bool:
                told(server, "message", "send", topic, "--key", "k-1", given="hello there")
                return len(lines) > (0 if as_json else 1)  # one is the heads

            wait_for(came, "a message is shown")
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
            reader.join()
    assert not any("before" in line for line in lines)
    if as_json:
        row = json.loads(lines[0])
        assert (row["keys"], row["glance"]) == (["k-1"], "hello there")
    else:
        assert lines[0].split() == [
            "stored",
            "queue_id",
            "queue_offset",
            "tags",
            "keys",
            "body_bytes",
            "unique_id",
            "glance",
        ]
        assert "k-1" in lines[1]
        assert lines[1].rstrip().endswith("hello there")


def test_the_log_of_the_server_is_shown_with_its_times(server):
    rows = asked(server, "system", "log", "--level", "INFO", "--limit", "3")["items"]
    assert 1 <= len(rows) <= 3
    assert rows == sorted(rows, key=lambda row: row["number"])
    text = told(server, "system", "log", "--limit", "3")
    assert text.splitlines()[0].split() == ["at", "level", "logger", "text"]
    last = rows[-1]["number"]
    assert all(row["number"] > last for row in asked(server, "system", "log", "--after", str(last))["items"])
