"""Definitions as YAML: the same text each time, no secret in it, and in again with a difference that is seen first."""

from __future__ import annotations

import threading
import time

import pytest
import yaml

from appliance.console.alerts.models import AlertChannel, AlertRule
from appliance.console.models import AuditEntry, User
from appliance.console.system.definitions import parse, take_at_start
from appliance.engine.errors import InvalidInput, StartError
from tests.console.conftest import age_login

NO_BASE64 = b'{"kind": "avro", "data": "A", "message": "", "name": "", "set_at_ms": 1, "by": ""}'
SECRET = "hunter2-in-a-place-where-it-must-not-show"


def content(response, status: int = 200) -> str:
    assert response.status_code == status, response.content
    return str(response.content.decode())


@pytest.fixture
def admin(client_as, broker):
    return client_as("admin")


def text_of(admin) -> str:
    return content(admin.get("/system/definitions/file/"))


def test_all_of_it_comes_out_and_in_again_without_a_difference(admin, broker, topic):
    broker.group_commands.create(topic, retry_max_times=3)
    AlertRule.objects.create(name="lag of 'all' #1", figure=_figure(), above=5)
    first = text_of(admin)
    assert first == text_of(admin), "the same text each time"
    found = yaml.safe_load(first)
    assert found["topics"][topic]["read_queues"] == 4
    assert found["groups"][topic]["retry_max_times"] == 3
    assert found["users"]["the-admin"]["role"] == "admin"
    assert found["alert_rules"]["lag of 'all' #1"]["above"] == 5
    names = list(found["topics"])
    assert names == sorted(names)
    page = content(admin.post("/system/definitions/", {"text": first, "step": "preview"}))
    assert 'value="apply"' not in page, "there is nothing to do"
    assert "chip bad" not in page, "nothing is refused"


def test_schemas_come_out_and_in_again_with_their_topics(admin, broker, topic):
    avro = b'{"type": "record", "name": "Order", "fields": [' + b" " * 5000 + b'{"name": "id", "type": "long"}]}'
    proto = b'syntax = "proto3";\npackage shop; message Order { string id = 1; } message Line {}\n'
    proto += "// \U0001f600 \xfc \x7f\\\r\n".encode()
    broken = "rocketbox: 1\nschemas:\n  new-topic: {kind: avro, schema: ['{']}\n"
    given = {topic: ("avro", avro, ""), f"{topic}-p": ("protobuf", proto, "shop.Order")}
    broker.topic_commands.create(f"{topic}-p")
    for name, (kind, data, message) in given.items():
        broker.schemas.put(name, kind=kind, data=data, message=message)
    text = text_of(admin)
    assert text == text_of(admin)
    page = content(admin.post("/system/definitions/", {"text": text, "step": "preview"}))
    assert 'value="apply"' not in page, "there is nothing to do"
    for name in given:
        broker.topic_commands.delete(name, force=True)
    assert 'value="apply"' in content(admin.post("/system/definitions/", {"text": text, "step": "preview"}))
    admin.post("/system/definitions/", {"text": text, "step": "apply"})
    for name, (kind, data, message) in given.items():
        found = broker.schemas.get(name)
        assert (found.kind, found.data, found.message) == (kind, data, message)
    assert AuditEntry.objects.filter(action="topic.schema", target=f"{topic}-p").count() == 1
    assert "it is not JSON" in content(admin.post("/system/definitions/", {"text": broken, "step": "preview"}))


def test_a_schema_without_room_is_left_out_and_named(admin, broker, topic, monkeypatch):
    monkeypatch.setattr("appliance.console.system.definitions._SCHEMA_CHARS", 20)
    broker.schemas.put(topic, kind="avro", data=b'{"type": "string"}')
    text = text_of(admin)
    assert f"the schema of {topic}" in text
    assert topic not in parse(text)["schemas"]


def test_a_file_of_schemas_that_cannot_be_read_is_named_and_all_else_comes_out(admin, broker, topic, monkeypatch):
    schemas = broker.schemas
    schemas.put(topic, kind="avro", data=b'{"type": "string"}')
    file = schemas._path
    good = file.read_bytes()
    here = threading.get_ident()
    try:
        for damaged in (b'{"schemas": {"T": 1}}', b'{"schemas": {"%b": %b}}' % (topic.encode(), NO_BASE64)):
            file.write_bytes(damaged)
            monkeypatch.setattr(schemas, "_kept", None)
            reads = []

            def read(path, *most, seen=reads, here=here):
                if threading.get_ident() == here:  # the topic of an earlier test may be forgotten just now
                    seen.append(path)
                return path.read_bytes()

            monkeypatch.setattr(schemas._disk, "read", read)
            text = text_of(admin)
            found = yaml.safe_load(text)
            assert found["topics"][topic]["read_queues"] == 4
            assert len(found["topics"]) > 2
            assert 0 < len(reads) < 3, "not once for each topic"
            assert found["schemas"] == {}
            [remark] = [line for line in text.splitlines() if "left out" in line]
            assert "cannot be read" in remark
            assert (str(file) in remark) is (NO_BASE64 not in damaged)
    finally:
        file.write_bytes(good)
        monkeypatch.setattr(schemas, "_kept", None)


def _figure() -> str:
    from appliance.console.alerts.figures import FIGURES

    return next(iter(FIGURES))


def test_no_secret_is_in_it(admin, broker):
    person = User(username="vera", totp_secret="JBSWY3DPEHPK3PXP")
    person.set_password(SECRET)
    person.save()
    AlertChannel.objects.create(name="chat", kind="webhook", address=f"https://x/{SECRET}", secret=SECRET)
    text = text_of(admin)
    assert "vera" in text
    for secret in (SECRET, "JBSWY3DPEHPK3PXP", person.password):
        assert secret not in text


def test_what_would_change_is_shown_and_then_done(admin, broker, topic):
    text = f"""
rocketbox: 1
topics:
  {topic}: {{read_queues: 6, write_queues: 4}}
  {topic}-new: {{kind: FIFO}}
groups:
  {topic}-group: {{retry_max_times: 5}}
users:
  wendy: {{role: operator, may_export: true}}
  the-viewer: {{role: operator}}
alert_rules:
  far behind: {{figure: {_figure()}, above: 7}}
"""
    page = content(admin.post("/system/definitions/", {"text": text, "step": "preview"}))
    assert "would be made" in page
    assert "4 →" in page
    assert not AuditEntry.objects.exists()
    assert broker.topics.settings(topic).read_queues == 4
    page = content(admin.post("/system/definitions/", {"text": text, "step": "apply"}))
    assert "What was done" in page
    assert broker.topics.settings(topic).read_queues == 6
    assert broker.topics.settings(f"{topic}-new").kind == "FIFO"
    assert broker.groups.detail(f"{topic}-group").settings.retry_max_times == 5
    wendy = User.objects.get(username="wendy")
    assert (wendy.role, wendy.may_export, wendy.has_usable_password()) == ("operator", True, False)
    assert User.objects.get(username="the-viewer").role == "operator"
    assert AlertRule.objects.get(name="far behind").above == 7
    acts = [one.action for one in AuditEntry.objects.order_by("id")]
    assert acts[-1] == "definitions.import"
    assert {"topic.create", "topic.edit", "group.create", "user.create", "user.change", "alert_rule.create"} <= set(
        acts
    )
    assert AuditEntry.objects.latest("id").after == {"done": 6, "failed": 0, "refused": 0, "same": 0}
    again = content(admin.post("/system/definitions/", {"text": text, "step": "preview"}))
    assert 'value="apply"' not in again


def test_what_cannot_be_is_refused_and_the_rest_is_done(admin, broker, topic):
    text = f"""
rocketbox: 1
topics:
  "no blanks here": {{}}
  {topic}: {{read_queues: many}}
  {topic}-fine: {{}}
groups:
  {topic}: {{no_such_setting: 1}}
users:
  the-admin: {{role: viewer}}
  eve: {{role: emperor}}
alert_rules:
  odd: {{figure: no-such, above: 1}}
  silent: {{figure: {_figure()}, above: 1, channels: [nobody]}}
"""
    page = content(admin.post("/system/definitions/", {"text": text, "step": "preview"}))
    assert page.count('class="chip bad"') == 6
    content(admin.post("/system/definitions/", {"text": text, "step": "apply"}))
    assert broker.topics.settings(f"{topic}-fine")
    assert User.objects.get(username="the-admin").role == "admin", "the last administrator stays one"
    assert not User.objects.filter(username="eve").exists()
    entry = AuditEntry.objects.latest("id")
    assert (entry.result, entry.after["failed"], entry.after["refused"]) == ("failed", 1, 6)


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "[]", "rocketbox: 2", "topics: {}", "rocketbox: 1\nplanets: {}", "rocketbox: 1\ntopics: [a]",
        "rocketbox: 1\ntopics: {a: 1}", "rocketbox: 1\ntopics: {a: {b: {c: 1}}}",
        "rocketbox: 1\ntopics: {a: {}, a: {}}",
        "rocketbox: 1\ntopics: !!python/object/apply:os.system ['touch /tmp/taken']",
        "rocketbox: 1\ntopics: &a {x: {}}\ngroups: *a", "rocketbox: 1\ntopics:\n\t- x", "rocketbox: 1\n1: 2",
        "rocketbox: 1\ntopics: {? [a] : {}}", "[" * 5000, "rocketbox: 1\ntopics: {a: {kind: \x00}}",
    ],
)  # fmt: skip
def test_what_is_no_definition_is_said_in_the_form(admin, text):
    answer = admin.post("/system/definitions/", {"text": text, "step": "preview"})
    assert answer.status_code == 422, answer.content.decode()
    assert not AuditEntry.objects.exists()


def test_who_may(admin, client_as):
    assert client_as("operator").get("/system/definitions/file/").status_code == 403
    age_login(admin)
    assert admin.post("/system/definitions/", {"text": "rocketbox: 1"}).headers["Location"].startswith("/confirm/")


@pytest.mark.parametrize(
    "value",
    [
        "!!bool foo", "!!timestamp foo", '!!int ""', "!!int _", '!!float ""', "2001-99-99", "!!python/name:os.system",
        '"\\ud800"', '["\\udc00"]', "[" * 3000, "1" + ":1" * 5000, "0x" + "f" * 100_000,
    ],
)  # fmt: skip
def test_what_breaks_other_readers_of_yaml_is_one_sentence(db, value):
    begin = time.thread_time()
    with pytest.raises(InvalidInput):
        parse(f"rocketbox: 1\ntopics: {{a: {{read_queues: {value}}}}}")
    assert time.thread_time() - begin < 5


# --- at the start


def test_a_start_makes_what_a_file_defines_and_changes_what_differs(broker, topic, db, tmp_path, caplog):
    file = tmp_path / "all.yaml"
    file.write_text(
        f"""
rocketbox: 1
topics:
  {topic}: {{read_queues: 6, write_queues: 4}}
  {topic}-new: {{kind: FIFO}}
  "bad name": {{}}
groups:
  {topic}-group: {{retry_max_times: 5}}
users:
  wendy: {{role: admin}}
alert_rules:
  at the start: {{figure: {_figure()}, above: 7}}
  to nobody: {{figure: {_figure()}, above: 7, channels: [no-such]}}
"""
    )
    caplog.set_level("INFO")
    take_at_start(file)
    assert broker.topics.settings(topic).read_queues == 6
    assert broker.topics.settings(f"{topic}-new").kind == "FIFO"
    assert broker.groups.detail(f"{topic}-group").settings.retry_max_times == 5
    assert AlertRule.objects.get(name="at the start").above == 7
    assert not AlertRule.objects.filter(name="to nobody").exists()
    assert not User.objects.filter(username="wendy").exists(), "nobody could give her a password"
    logged = caplog.text
    assert "done=4 same=0 refused=2 failed=0" in logged
    assert "topics bad name: " in logged
    assert "There is no channel no-such" in logged
    assert "users are not made at the start: 1" in logged
    by = set(AuditEntry.objects.filter(actor="definitions").values_list("actor_kind", "action"))
    assert by >= {("start", "topic.create"), ("start", "alert_rule.create"), ("start", "definitions.import")}
    entries = AuditEntry.objects.count()
    caplog.clear()
    take_at_start(file)
    assert "done=0 same=4 refused=2 failed=0" in caplog.text
    assert AuditEntry.objects.count() == entries, "a start that changes nothing is no act"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read: No such file"),
        (b"\xff\xfe", "are not UTF-8"),
        (b"topics: {}", "Definitions begin with"),
        (b"rocketbox: 1\nqueues: {}", "no section"),
        (b"rocketbox: 1\n#" + b"x" * (1 << 20), "longer than it may be"),
    ],
)
def test_a_file_that_holds_no_definitions_ends_the_start_in_a_sentence(broker, tmp_path, content, why):
    file = tmp_path / "all.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(StartError, match=why):
        take_at_start(file)


def test_an_import_makes_no_more_rules_than_there_may_be(admin, broker, monkeypatch):
    monkeypatch.setattr("appliance.console.alerts.forms.MOST_RULES", 2)
    rules = "".join(f"  rule {number}: {{figure: {_figure()}, above: 7}}\n" for number in range(4))
    page = content(
        admin.post("/system/definitions/", {"text": f"rocketbox: 1\nalert_rules:\n{rules}", "step": "apply"})
    )
    assert AlertRule.objects.count() == 2
    assert page.count("There are 2 already, and more are not possible.") == 2


def test_a_user_keeps_a_name_that_is_not_given_any_more(admin, broker):
    User.objects.create(username="__", role="viewer")
    text = "rocketbox: 1\nusers:\n  __: {role: operator}\n"
    content(admin.post("/system/definitions/", {"text": text, "step": "apply"}))
    assert User.objects.get(username="__").role == "operator"
