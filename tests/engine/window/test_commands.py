"""Topics and groups are made, changed and deleted: previewed, blocked, durable, known to the name server."""

import pytest

from appliance.engine.admin_settings import GROUP_SETTINGS, TOPIC_SETTINGS, Setting
from appliance.engine.errors import Blocked, Conflict, InvalidInput, NotFound, Unavailable
from appliance.engine.window.changes import check_value
from tests.support.waiting import wait_for

GET_ROUTE = 105


def fields(change):
    return {difference.field: (difference.before, difference.after) for difference in change.differences}


def codes(sentences):
    return [sentence.code for sentence in sentences]


def test_a_topic_is_made_and_clients_find_it(running):
    change = running.window.topic_commands.create("Orders", kind="FIFO", read_queues=3, write_queues=2)
    assert change.applied
    assert list(change.registered.values()) == [True]
    settings = running.window.topics.settings("Orders")
    assert (settings.kind, settings.read_queues, settings.write_queues) == ("FIFO", 3, 2)
    assert settings.revision == change.revision
    assert running.engine.namesrv.routes.route("Orders") is not None


def test_it_is_there_after_a_restart(running):
    running.window.topic_commands.create("Orders", kind="FIFO")
    running.window.group_commands.create("CG", retry_max_times=3)
    running.restart()
    assert running.window.topics.settings("Orders").kind == "FIFO"
    assert running.window.groups.detail("CG").settings.retry_max_times == 3


def test_it_is_in_the_journal_when_the_command_returns(running):
    """Or already in the file into which the journal goes every few seconds."""
    running.window.topic_commands.create("Orders")
    places = (running.data_dir / "rocketbox" / "config.journal", running.data_dir / "store" / "config" / "topics.json")
    assert any(b'"Orders"' in place.read_bytes() for place in places if place.exists())


def test_a_preview_changes_nothing(running):
    preview = running.window.topic_commands.create("Orders", dry_run=True)
    assert not preview.applied
    assert fields(preview)["read_queues"] == (None, "8")
    with pytest.raises(NotFound):
        running.window.topics.detail("Orders")
    running.window.topic_commands.create("Orders")
    assert fields(running.window.topic_commands.edit("Orders", order=True, dry_run=True)) == {
        "order": ("false", "true")
    }
    assert not running.window.topics.settings("Orders").order
    running.window.topic_commands.delete("Orders", dry_run=True)
    assert running.window.topics.detail("Orders").row.messages == 0


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("name", {"name": "not legal"}),
        ("name", {"name": ""}),
        ("name", {"name": "x" * 128}),
        ("name", {"name": "../x"}),
        ("name", {"name": "TBW102"}),
        ("name", {"name": "rmq_sys_x"}),
        ("name", {"name": "%RETRY%CG"}),
        ("name", {"name": "%DLQ%CG"}),
        ("kind", {"kind": "MIXED"}),
        ("kind", {"kind": "fifo"}),
        ("read_queues", {"read_queues": -1}),
        ("write_queues", {"write_queues": 65_537}),
        ("read_queues", {"read_queues": True}),
    ],
)
def test_what_makes_no_topic(running, field, options):
    with pytest.raises(InvalidInput) as refused:
        running.window.topic_commands.create(**({"name": "Orders"} | options))
    assert refused.value.field == field


def test_a_topic_is_made_once(running):
    running.window.topic_commands.create("Orders")
    with pytest.raises(Conflict):
        running.window.topic_commands.create("Orders")


def test_consequences_are_said(running):
    def said(**options):
        return codes(running.window.topic_commands.create("Orders", dry_run=True, **options).warnings)

    assert said() == []
    assert said(kind="DELAY") == []
    assert said(kind="TRANSACTION") == []
    assert said(kind="FIFO") == ["order_one_queue"]
    assert said(readable=False, writable=False) == ["unreadable", "unwritable"]


def test_only_what_is_given_changes(running):
    running.window.topic_commands.create("Orders", kind="FIFO", read_queues=5, write_queues=4)
    assert fields(running.window.topic_commands.edit("Orders", write_queues=0)) == {"write_queues": ("4", "0")}
    assert fields(running.window.topic_commands.edit("Orders", writable=False)) == {"writable": ("true", "false")}
    assert fields(running.window.topic_commands.edit("Orders", kind="UNSPECIFIED")) == {"kind": ("FIFO", "UNSPECIFIED")}
    settings = running.window.topics.settings("Orders")
    assert (settings.read_queues, settings.write_queues, settings.readable, settings.writable) == (5, 0, True, False)
    assert settings.attributes == {}
    unchanged = running.window.topic_commands.edit("Orders")
    assert (unchanged.differences, unchanged.revision) == ((), settings.revision)


def test_an_edit_of_what_was_changed_meanwhile_is_refused(running):
    running.window.topic_commands.create("Orders")
    revision = running.window.topics.settings("Orders").revision
    running.window.topic_commands.edit("Orders", revision=revision, write_queues=3)
    with pytest.raises(Conflict):
        running.window.topic_commands.edit("Orders", revision=revision, write_queues=5)
    with pytest.raises(Conflict):
        running.window.topic_commands.delete("Orders", revision=revision)
    assert running.window.topics.settings("Orders").write_queues == 3


def test_queues_with_messages_are_not_taken_away_by_accident(running):
    running.put("Orders", b"x", queue=3)
    with pytest.raises(Blocked) as blocked:
        running.window.topic_commands.edit("Orders", read_queues=2)
    assert str(blocked.value.blockers[0]) == "Queues 2 to 3 can no longer be read, and 1 message is in them."
    assert fields(blocked.value.change) == {"read_queues": ("4", "2")}
    assert running.window.topics.settings("Orders").read_queues == 4
    running.window.topic_commands.edit("Orders", read_queues=2, force=True)
    assert running.window.topics.settings("Orders").read_queues == 2


def test_a_topic_goes_with_its_queues_offsets_and_route(running):
    running.put("Orders", b"x")
    running.engine.broker.groups.find("CG")
    running.commit("CG", "Orders", 0, 1)
    change = running.window.topic_commands.delete("Orders")
    assert codes(change.warnings) == ["topic_has_messages"]
    with pytest.raises(NotFound):
        running.window.topics.detail("Orders")
    assert running.engine.broker.offsets.get("CG", "Orders", 0) == -1
    assert running.engine.broker.store.find_queue("Orders", 0) is None
    wait_for(lambda: running.engine.namesrv.routes.route("Orders") is None, "the name server forgets it")
    running.put("Orders", b"new")
    assert [row.queue_offset for row in running.window.messages.page("Orders").rows] == [1]
    assert running.window.messages.body_bytes("Orders/0/1") == b"new"


def test_a_topic_in_use_is_not_deleted_by_accident(running):
    running.put("Orders", b"x", b"y")
    running.join("c-1", "CG")
    running.commit("CG", "Orders", 0, 1)
    with pytest.raises(Blocked) as blocked:
        running.window.topic_commands.delete("Orders")
    assert [str(sentence) for sentence in blocked.value.blockers] == [
        "CG has not read 1 message of Orders.",
        "CG has 1 connected client.",
    ]
    assert running.window.topic_commands.delete("Orders", force=True).applied


def test_topics_of_the_system_stay_as_they_are(running):
    for act in (running.window.topic_commands.edit, running.window.topic_commands.delete):
        with pytest.raises(InvalidInput):
            act("SELF_TEST_TOPIC")
        with pytest.raises(NotFound):
            act("Nope")


def test_a_group_is_made_changed_and_deleted(running):
    admin = running.window
    assert admin.group_commands.create("CG", retry_max_times=5).applied
    with pytest.raises(Conflict):
        admin.group_commands.create("CG")
    change = admin.group_commands.edit("CG", consume_enable=False)
    assert fields(change) == {"consume_enable": ("true", "false")}
    assert codes(change.warnings) == ["consumption_off"]
    settings = admin.groups.detail("CG").settings
    assert (settings.retry_max_times, settings.consume_enable, settings.revision) == (5, False, change.revision)
    assert admin.group_commands.delete("CG").applied
    with pytest.raises(NotFound):
        admin.groups.detail("CG")


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("name", {"name": "a b"}),
        ("name", {"name": "x" * 121}),
        ("name", {"name": "TOOLS_CONSUMER"}),
        ("retry_queue_nums", {"retry_queue_nums": -1}),
        ("retry_max_times", {"retry_max_times": -2}),
        ("retry_max_times", {"retry_max_times": 10**10}),
    ],
)
def test_what_makes_no_group(running, field, options):
    with pytest.raises(InvalidInput) as refused:
        running.window.group_commands.create(**({"name": "CG"} | options))
    assert refused.value.field == field


def test_a_group_in_use_is_not_deleted_by_accident(running):
    running.put("Orders", b"x", b"y")
    running.put("%RETRY%CG", b"r", j=1)
    running.join("c-1", "CG")
    running.commit("CG", "Orders", 0, 1)
    preview = running.window.group_commands.delete("CG", dry_run=True)
    assert codes(preview.blockers) == ["group_unread", "group_online"]
    assert codes(preview.warnings) == ["offsets_removed", "retries_deleted"]
    with pytest.raises(Blocked):
        running.window.group_commands.delete("CG")
    running.window.group_commands.delete("CG", force=True)
    assert running.engine.broker.offsets.get("CG", "Orders", 0) == -1
    assert not running.engine.broker.store.has_queues("%RETRY%CG")


def test_offsets_may_stay_behind(running):
    running.put("Orders", b"x")
    running.window.group_commands.create("CG")
    running.commit("CG", "Orders", 0, 1)
    assert codes(running.window.group_commands.delete("CG", offsets=False).warnings) == ["offsets_kept"]
    assert running.engine.broker.offsets.get("CG", "Orders", 0) == 1


def test_a_journal_that_cannot_be_written_is_the_callers_error(running, monkeypatch):
    def fail(ticket):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(running.engine.broker.tables.journal, "make_durable", fail)
    with pytest.raises(InvalidInput, match="may be lost again"):
        running.window.topic_commands.create("Orders")


def test_nothing_is_done_after_the_stop(running):
    admin = running.window
    running.engine._pools["admin"].stop()
    with pytest.raises(Unavailable):
        admin.topic_commands.create("Orders")


def test_the_settings_are_listed_and_shown_by_their_names(running):
    running.window.topic_commands.create("Orders", kind="FIFO", reserve_hours=24)
    running.window.group_commands.create("CG", retry_max_times=3)
    shown = running.window.topics.settings("Orders").values
    assert list(shown) == [setting.name for setting in TOPIC_SETTINGS]
    assert (shown["kind"], shown["reserve_hours"], shown["write_queues"]) == ("FIFO", 24, 8)
    shown = running.window.groups.detail("CG").settings.values
    assert list(shown) == [setting.name for setting in GROUP_SETTINGS]
    assert shown["retry_max_times"] == 3


def test_a_setting_that_there_is_not_is_a_mistake_of_the_program(running):
    with pytest.raises(TypeError, match="colour"):
        running.window.topic_commands.create("Orders", colour="red")
    running.window.group_commands.create("CG")
    with pytest.raises(TypeError, match="colour"):
        running.window.group_commands.edit("CG", colour="red")


def test_a_line_of_text_is_refused_with_its_length():
    with pytest.raises(InvalidInput, match="a_line takes a line of at most 20 characters") as refused:
        check_value(Setting("a_line", "", maximum=20), "x" * 21)
    assert refused.value.field == "a_line"
