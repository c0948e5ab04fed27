"""Administration over the wire in the audit log: taken over once, shown, filtered, in both languages."""

from __future__ import annotations

import sqlite3

import pytest
from django.db import DatabaseError

from appliance import runtime
from appliance.console.audit import log as audit
from appliance.console.audit import wire_entries
from appliance.console.models import AuditEntry, Setting
from appliance.engine.wire_act import WireAct
from appliance.engine.wire_audit import REFUSED_IN_FULL
from tests.console.conftest import pretend_running
from tests.support.engine import Peer, start_engine
from tests.support.server import Server
from tests.support.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC = {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG"}


@pytest.fixture
def engine(tmp_path):
    """An engine of the test's own, whose file of acts is empty."""
    running = start_engine(tmp_path / "engine")
    pretend_running(running)
    yield running
    runtime.set_running(None)
    if running.loop.alive:
        running.stop()


def set_topic(engine, name: str) -> None:
    """Make a topic as mqadmin does, and wait until the entry is in the file."""
    last = engine.wire_audit.last
    peer = Peer(engine.broker_address)
    assert peer.ask(17, {"topic": name} | TOPIC).code == 0
    peer.close()
    wait_for(lambda: engine.wire_audit.last > last, "the act is written down")


def stranger(engine, count: int, action: str = "topic.delete", host: str = "10.0.0.5") -> None:
    """So many refused requests from elsewhere."""
    for number in range(count):
        engine.wire_audit.record(
            WireAct(
                at_ms=1_700_000_000_000, host=host, port=4711, action=action, target=f"<b>T{number}", result="refused"
            )
        )
    wait_for(lambda: not engine.wire_audit._waiting and not engine.wire_audit._unwritten, "the acts are written down")


def test_each_act_becomes_one_entry_with_its_peer(engine):
    set_topic(engine, "T")
    assert wire_entries.take_over() == 1
    assert wire_entries.take_over() == 0
    (entry,) = AuditEntry.objects.all()
    assert (entry.action, entry.target, entry.actor_kind, entry.result) == ("topic.set", "T", "wire", "done")
    assert entry.actor.startswith("remoting client 127.0.0.1:")
    assert entry.address == "127.0.0.1"
    assert (entry.before, entry.after["read_queues"]) == (None, 4)
    assert entry.request_id == f"{engine.wire_audit.series}-1"
    assert audit.check().code == "audit_whole"


def test_what_happened_while_no_console_ran_is_taken_over_later(engine, tmp_path):
    set_topic(engine, "Before")
    runtime.set_running(None)
    engine.stop()
    again = start_engine(tmp_path / "engine")
    pretend_running(again)
    try:
        set_topic(again, "After")
        assert wire_entries.take_over() == 2
        assert list(AuditEntry.objects.order_by("id").values_list("target", flat=True)) == ["Before", "After"]
    finally:
        again.stop()


def test_a_crash_in_the_middle_repeats_nothing_and_loses_nothing(engine, monkeypatch):
    set_topic(engine, "A")
    assert wire_entries.take_over() == 1
    set_topic(engine, "B")

    def crash(series, n):
        raise DatabaseError("the machine stops here")

    with monkeypatch.context() as broken:
        broken.setattr(wire_entries, "_move", crash)
        with pytest.raises(DatabaseError):
            wire_entries.take_over()
    assert AuditEntry.objects.count() == 1
    set_topic(engine, "C")
    assert wire_entries.take_over() == 2
    assert list(AuditEntry.objects.order_by("id").values_list("target", flat=True)) == ["A", "B", "C"]


def test_an_older_copy_of_the_database_takes_over_again_what_it_lacks(engine):
    for name in ("A", "B"):
        set_topic(engine, name)
    wire_entries.take_over()
    AuditEntry.objects.filter(target="B").delete()
    position = Setting.objects.get(key=wire_entries.POSITION)
    Setting.objects.filter(pk=position.pk).update(value={engine.wire_audit.series: 1})
    assert wire_entries.take_over() == 1
    assert AuditEntry.objects.first().target == "B"


def test_two_engines_on_one_database_are_each_taken_over_once(engine, tmp_path):
    other = start_engine(tmp_path / "other")
    try:
        for _ in range(3):
            for one in (engine, other):
                set_topic(one, "T")
                pretend_running(one)
                assert wire_entries.take_over() == 1
        assert AuditEntry.objects.count() == 6
        assert Setting.objects.get(key=wire_entries.POSITION).value == {
            engine.wire_audit.series: 3,
            other.wire_audit.series: 3,
        }
    finally:
        other.stop()


def test_what_a_page_does_is_one_entry_and_not_two(engine, client_as):
    client = client_as("admin")
    form = {
        "name": "FromPage",
        "kind": "NORMAL",
        "read_queues": 4,
        "write_queues": 4,
        "readable": "on",
        "writable": "on",
    }
    assert client.post("/create/topic/", form | {"step": "apply"}).status_code == 302
    set_topic(engine, "FromTool")
    wire_entries.take_over()
    kinds = AuditEntry.objects.filter(action__startswith="topic.").order_by("id").values_list("target", "actor_kind")
    assert list(kinds) == [("FromPage", "user"), ("FromTool", "wire")]


def test_many_acts_come_in_several_answers_and_all_arrive(engine):
    for number in range(450):
        engine.wire_audit.record(
            WireAct(host="127.0.0.1", port=1, action="topic.set", target=f"T{number}", after={"a": 1})
        )
    wait_for(lambda: engine.wire_audit.last == 450, "450 acts")
    assert wire_entries.take_over() == 450
    targets = list(AuditEntry.objects.order_by("id").values_list("target", flat=True))
    assert targets == [f"T{number}" for number in range(450)]


def test_the_page_shows_who_and_the_filter_finds_ways(engine, client_as):
    stranger(engine, 1)
    set_topic(engine, "Mine")
    admin = client_as("admin")
    audit.record("topic.create", "ByHand", by=audit.Actor("somebody", "user"))
    page = admin.get("/system/audit/").content.decode()
    for text in ("remoting client 10.0.0.5:4711", "over the wire", "&lt;b&gt;T0", "refused", "Mine", "ByHand"):
        assert text in page
    assert "<b>T0" not in page
    wire = admin.get("/system/audit/", {"way": "wire"}).content.decode()
    assert "Mine" in wire
    assert "ByHand" not in wire
    assert 'value="wire" selected' in wire
    console = admin.get("/system/audit/", {"way": "console"}).content.decode()
    assert "ByHand" in console
    assert "Mine" not in console
    assert "10.0.0.5" in admin.get("/system/audit/", {"q": "10.0.0.5"}).content.decode()
    rows = admin.get("/system/audit/", {"way": "wire", "format": "csv"}).content.decode().splitlines()
    assert len(rows) == 3
    assert ",wire,10.0.0.5," in rows[-1] or ",wire,10.0.0.5," in rows[-2]


def test_a_flood_is_a_sentence_in_both_languages(engine, client_as):
    stranger(engine, REFUSED_IN_FULL + 1234)
    with engine.wire_audit._lock:
        engine.wire_audit._end_window_locked(now=True)
    stranger(engine, 1, action="group.delete")
    admin = client_as("admin")
    page = admin.get("/system/audit/", {"way": "wire"}).content.decode()
    assert "1\u202f234 more of topic.delete from 10.0.0.5" in page
    assert "Any more in that minute are only counted." in page
    assert "counted_from_here" not in page
    assert AuditEntry.objects.count() == REFUSED_IN_FULL + 2
    chinese = admin.get("/system/audit/", {"way": "wire"}, HTTP_ACCEPT_LANGUAGE="zh-hans").content.decode()
    assert "另有 1\u202f234 次 topic.delete，来自 10.0.0.5" in chinese
    assert "该分钟内其余的只计数。" in chinese
    assert "经由端口" in chinese


def test_the_api_lists_them_and_filters_by_kind(engine, client_as):
    set_topic(engine, "Mine")
    audit.record("topic.create", "ByHand", by=audit.Actor("somebody", "user"))
    admin = client_as("admin")
    items = admin.get("/api/v1/audit?kind=wire").json()["items"]
    assert [(item["target"], item["actor_kind"], item["address"]) for item in items] == [("Mine", "wire", "127.0.0.1")]
    assert len(admin.get("/api/v1/audit").json()["items"]) == 2


def test_without_an_engine_the_log_is_shown_all_the_same(client_as):
    audit.record("topic.create", "ByHand", by=audit.Actor("somebody", "user"))
    admin = client_as("admin")
    runtime.set_running(None)
    assert "ByHand" in admin.get("/system/audit/").content.decode()


def test_an_engine_that_starts_or_a_database_that_is_locked_does_not_end_the_thread(monkeypatch, caplog):
    follower = wire_entries.Follower()
    follower._try(wire_entries.take_over)

    def locked():
        raise DatabaseError("database is locked")

    for _ in range(3):
        follower._try(locked)
        follower._try(lambda: None)  # another act, which says nothing of the database
    assert [record.getMessage() for record in caplog.records] == [
        "audit log: administrative requests are taken over later: database is locked"
    ]


def test_the_real_process_takes_over_by_itself_once_also_after_a_kill(tmp_path):
    def entries() -> list[tuple[str, str]]:
        database = sqlite3.connect(tmp_path / "data/rocketbox/console.sqlite3")
        try:
            rows = database.execute("SELECT target, actor_kind FROM console_auditentry ORDER BY id").fetchall()
        finally:
            database.close()
        return [(target, kind) for target, kind in rows if kind == "wire"]

    def set_topic(server: Server, name: str) -> None:
        peer = Peer(server.broker)
        assert peer.ask(17, {"topic": name} | TOPIC).code == 0
        peer.close()

    server = Server(tmp_path / "data", "--http-port", "0", roles="broker,namesrv,console")
    with server:
        set_topic(server, "A")
        wait_for(lambda: entries() == [("A", "wire")], "the entry of A")
        set_topic(server, "B")
        wait_for(
            lambda: b'"target":"B"' in (tmp_path / "data/rocketbox/wire-audit.jsonl").read_bytes(), "B in the file"
        )
        server.kill()
        server.start()
        set_topic(server, "C")
        wait_for(lambda: len(entries()) == 3, "the entries of B and C")
    assert entries() == [("A", "wire"), ("B", "wire"), ("C", "wire")]
    for name in ("audit-key", "audit-head", "wire-audit.jsonl"):
        assert (tmp_path / "data/rocketbox" / name).stat().st_mode & 0o777 == 0o600
