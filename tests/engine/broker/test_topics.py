"""The topic table: Apache's file, which requests may create a topic, and what survives each end of the process."""

import json
import random
import shutil
import threading

import pytest

from appliance.engine.broker import config_table
from appliance.engine.broker.topic_attributes import parse_attributes
from appliance.engine.broker.topic_config import TopicConfig
from appliance.engine.broker.topics import ORDER_FLAG_S, ORDER_FLAGS_AT_ONCE
from appliance.engine.errors import RefusedRequest, StartError
from appliance.engine.protocol.names import MAX_QUEUE_NUMS
from tests.support.golden import GOLDEN
from tests.support.waiting import wait_for


def recorded(version, name="topics.json"):
    return GOLDEN / "config" / version / "mixed" / name


def file_of(desk):
    return json.loads((desk.config_dir / "topics.json").read_bytes())


# --- the file


def test_a_file_of_5_3_3_is_saved_again_byte_for_byte(open_desk, tmp_path):
    (tmp_path / "store/config").mkdir(parents=True)
    shutil.copy(recorded("5.3.3"), tmp_path / "store/config/topics.json")
    desk = open_desk()
    version = desk.topics.data_version
    desk.topics._dirty = True
    desk.topics.persist()
    assert (desk.config_dir / "topics.json").read_bytes() == recorded("5.3.3").read_bytes()
    assert desk.topics.data_version == version == (1795255439215, 10, 0)


def test_a_file_of_4_9_8_is_read_and_gets_the_fields_of_5_3_3(open_desk, tmp_path):
    (tmp_path / "store/config").mkdir(parents=True)
    shutil.copy(recorded("4.9.8"), tmp_path / "store/config/topics.json")
    desk = open_desk()
    desk.topics.persist()
    before, after = json.loads(recorded("4.9.8").read_bytes()), file_of(desk)
    assert after["dataVersion"] == {**before["dataVersion"], "stateVersion": 0}
    for name, config in before["topicConfigTable"].items():
        assert after["topicConfigTable"][name] == {**config, "attributes": {}}
    added = after["topicConfigTable"].keys() - before["topicConfigTable"].keys()
    assert added == {
        "rmq_sys_REVIVE_LOG_DefaultCluster",
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "rmq_sys_wheel_timer",
    }


def test_a_new_broker_has_the_topics_of_5_3_3(desk):
    recorded_table = json.loads(recorded("5.3.3").read_bytes())["topicConfigTable"]
    system = {name: config for name, config in recorded_table.items() if "Store" not in name}
    desk.topics.persist()
    assert file_of(desk)["topicConfigTable"] == system


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "is damaged"),
        (b"[]", "is damaged"),
        (b'{"topicConfigTable":[1]}', "no topicConfigTable"),
        (b'{"topicConfigTable":{"T":{"perm":"six"}}}', "does not hold what it should"),
        (b'{"topicConfigTable":{"T":7}}', "does not hold what it should"),
        (b'{"topicConfigTable":{},"dataVersion":{"counter":"x"}}', "not a number"),
    ],
)
def test_a_file_that_holds_something_else_stops_the_start_in_one_sentence(open_desk, tmp_path, content, reason):
    (tmp_path / "store/config").mkdir(parents=True)
    (tmp_path / "store/config/topics.json").write_bytes(content)
    with pytest.raises(StartError, match=reason):
        open_desk()
    assert (tmp_path / "store/config/topics.json").read_bytes() == content


def test_names_that_are_no_topics_are_left_out(open_desk, tmp_path):
    names = ["../../etc", "a/b", ".", "..", "", "a b", "x" * 256, "ünï", "Fine", "%RETRY%g+T", "%DLQ%" + "g" * 200]
    table = {name: {"topicName": name} for name in names}
    (tmp_path / "store/config").mkdir(parents=True)
    (tmp_path / "store/config/topics.json").write_text(json.dumps({"topicConfigTable": table}))
    desk = open_desk()
    assert {name for name in names if desk.topics.get(name)} == {"Fine", "%RETRY%g+T", "%DLQ%" + "g" * 200}


def test_nulls_and_fields_of_later_releases_are_read_over(open_desk, tmp_path):
    text = b'{"topicConfigTable":{"T":{"perm":null,"readQueueNums":"3","later":{"a":[1]},"attributes":null}}}'
    (tmp_path / "store/config").mkdir(parents=True)
    (tmp_path / "store/config/topics.json").write_bytes(text)
    assert open_desk().topics.get("T") == TopicConfig(topic_name="T", read_queue_nums=3)


# --- creation by producers


def test_a_producer_makes_a_topic_after_the_template(desk):
    seen = []
    desk.topics.on_change.append(seen.append)
    generation, version = desk.topics.generation, desk.topics.data_version
    config = desk.topics.create_from_default("T", "TBW102", 4)
    assert config == TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4, perm=6)
    assert desk.topics.get("T") is config
    assert desk.topics.create_from_default("T", "TBW102", 16) is config
    assert desk.topics.generation == generation + 1
    assert desk.topics.data_version == (desk.clock.wall_ms(), version.counter + 1, 0)
    assert seen == [[config]]


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (8, 8), (9, 8), (2**31 - 1, 8), (0, 1), (-5, 1)])
def test_the_template_limits_the_number_of_queues(desk, asked, made):
    config = desk.topics.create_from_default("T", "TBW102", asked)
    assert (config.read_queue_nums, config.write_queue_nums) == (made, made)


def test_a_template_must_exist_and_let_itself_be_inherited(desk):
    desk.topics.update(TopicConfig(topic_name="ReadOnlyTemplate", perm=5, read_queue_nums=2, write_queue_nums=2))
    assert desk.topics.create_from_default("A", "NoSuchTopic", 4) is None
    assert desk.topics.create_from_default("B", "BenchmarkTest", 4) is None
    assert desk.topics.create_from_default("C", "DefaultCluster", 4).perm == 6
    assert desk.topics.create_from_default("D", "ReadOnlyTemplate", 4).perm == 4


@pytest.mark.parametrize("template", ["TBW102", "DefaultCluster", "broker-a", "Own"])
def test_one_switch_ends_all_creation_by_producers(open_desk, template):
    desk = open_desk(auto_create_topic_enable=False)
    desk.topics.update(TopicConfig(topic_name="Own", perm=7))
    assert desk.topics.get("TBW102") is None
    assert desk.topics.create_from_default("T", template, 4) is None
    assert desk.topics.get("T") is None
    assert desk.topics.create_retry_topic("%RETRY%g", 1, 6) is not None


def test_a_template_of_the_file_goes_when_the_switch_is_off(open_desk, tmp_path):
    (tmp_path / "store/config").mkdir(parents=True)
    shutil.copy(recorded("5.3.3"), tmp_path / "store/config/topics.json")
    desk = open_desk(auto_create_topic_enable=False)
    assert desk.topics.get("TBW102") is None
    desk.topics.persist()
    assert "TBW102" not in file_of(desk)["topicConfigTable"]


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "../x", "ü", "x" * 128, "a\n"])
def test_an_illegal_name_is_not_made(desk, name):
    assert desk.topics.create_from_default(name, "TBW102", 4) is None
    assert desk.topics.create_retry_topic(name, 1, 6) is None
    assert desk.topics.get(name) is None


def test_a_retry_topic_is_made_once_and_takes_the_order_flag_over(desk):
    config = desk.topics.create_retry_topic("%RETRY%g", 2, 6)
    assert config == TopicConfig(topic_name="%RETRY%g", read_queue_nums=2, write_queue_nums=2, perm=6)
    generation = desk.topics.generation
    assert desk.topics.create_retry_topic("%RETRY%g", 5, 4) is config
    assert desk.topics.generation == generation
    changed = desk.topics.create_retry_topic("%RETRY%g", 5, 4, order=True)
    assert changed.order
    assert changed.read_queue_nums == 2


def test_heartbeats_that_flip_a_groups_order_flag_change_it_once_in_a_while(desk, clock):
    desk.topics.create_retry_topic("%RETRY%g", 1, 6)
    generation = desk.topics.generation
    for _ in range(5):
        desk.topics.create_retry_topic("%RETRY%g", 1, 6, order=True)
        desk.topics.create_retry_topic("%RETRY%g", 1, 6)
    assert desk.topics.generation == generation + 1, "one change, of which other clients' heartbeats are read again"
    assert desk.topics.get("%RETRY%g").order
    clock.advance(ms=ORDER_FLAG_S * 1000)
    assert not desk.topics.create_retry_topic("%RETRY%g", 1, 6).order


def test_order_flags_of_many_groups_change_so_many_at_once_and_no_more(desk, clock):
    names = [f"%RETRY%g{n}" for n in range(ORDER_FLAGS_AT_ONCE + 5)]
    for order in (False, True):
        for name in names:
            desk.topics.create_retry_topic(name, 1, 6, order)
    assert sum(desk.topics.get(name).order for name in names) == ORDER_FLAGS_AT_ONCE
    clock.advance(ms=2000)
    for name in names:
        desk.topics.create_retry_topic(name, 1, 6, order=True)
    assert sum(desk.topics.get(name).order for name in names) == ORDER_FLAGS_AT_ONCE + 2


def test_options_shape_the_topics_of_the_start(open_desk):
    topics = open_desk(
        cluster_name="c.d",
        broker_name="b",
        default_topic_queue_nums=3,
        broker_topic_enable=False,
        trace_topic_enable=True,
    ).topics
    assert topics.get("TBW102").write_queue_nums == 3
    assert topics.get("b").perm == 1
    assert topics.get("RMQ_SYS_TRACE_TOPIC").perm == 6
    assert topics.get("c.d") is None  # no legal topic name


# --- administrators


def test_an_update_replaces_everything_but_unnamed_attributes(desk):
    first = TopicConfig(topic_name="T", order=True)
    desk.topics.update(first, parse_attributes("+message.type=FIFO,+reserve.time=5"))
    assert desk.topics.get("T").attributes == {"message.type": "FIFO", "reserve.time": "5"}
    desk.topics.update(TopicConfig(topic_name="T", read_queue_nums=2), parse_attributes("-reserve.time"))
    assert desk.topics.get("T") == TopicConfig(topic_name="T", read_queue_nums=2, attributes={"message.type": "FIFO"})


def test_the_same_again_changes_nothing(desk):
    config, attributes = TopicConfig(topic_name="T"), parse_attributes("+message.type=FIFO")
    assert desk.topics.update(config, attributes) > 0
    version, generation = desk.topics.data_version, desk.topics.generation
    assert desk.topics.update(config, attributes) == 0
    assert desk.topics.update(TopicConfig(topic_name="T")) == 0
    assert (desk.topics.data_version, desk.topics.generation) == (version, generation)


@pytest.mark.parametrize(
    "wrong",
    [
        {"read_queue_nums": -1},
        {"write_queue_nums": MAX_QUEUE_NUMS + 1},
        {"perm": -1},
        {"perm": 16},
    ],
)
def test_numbers_out_of_range_are_refused(desk, wrong):
    with pytest.raises(RefusedRequest) as refusal:
        desk.topics.update(TopicConfig(topic_name="T", **wrong))
    assert refusal.value.code == 29
    assert desk.topics.get("T") is None


def test_a_deleted_topic_is_gone_for_good(open_desk):
    desk = open_desk()
    desk.topics.update(TopicConfig(topic_name="T"))
    desk.topics.persist()
    ticket = desk.topics.delete("T")
    desk.topics.wait_durable(ticket)
    assert desk.topics.delete("T") == 0
    assert open_desk().topics.get("T") is None


def test_nobody_makes_a_topic_again_while_it_is_being_deleted(desk):
    desk.topics.create_from_default("T", "TBW102", 4)
    with desk.topics.deleting("T"):
        assert desk.topics.create_from_default("T", "TBW102", 4) is None
        assert desk.topics.create_retry_topic("T", 1, 6) is None
    assert desk.topics.create_from_default("T", "TBW102", 2).write_queue_nums == 2


# --- what survives


def test_every_acknowledged_change_is_there_after_a_crash_at_any_time(open_desk):
    """Random changes, saves and crashes, against a dict."""
    chance = random.Random(11)
    model = {}
    desk = open_desk()
    for _ in range(300):
        step_ms = chance.choice([0, 0, 1, 1000, -5])
        desk.clock.jump(step_ms) if step_ms < 0 else desk.clock.advance(ms=step_ms)
        step = chance.random()
        name = f"T{chance.randrange(6)}"
        if step < 0.45:
            config = TopicConfig(topic_name=name, read_queue_nums=chance.randrange(9))
            desk.topics.update(config)
            model[name] = config
        elif step < 0.6:
            desk.topics.delete(name)
            model.pop(name, None)
        elif step < 0.75:
            model.setdefault(name, desk.topics.create_from_default(name, "TBW102", 3))
        elif step < 0.9:
            desk.topics.persist()
        else:
            version = desk.topics.data_version
            desk = open_desk()  # as a killed process leaves it: nothing is saved at its end
            assert not version.is_newer_than(desk.topics.data_version)
        mine = {config.topic_name: config for config in desk.topics.all() if config.topic_name.startswith("T")}
        mine.pop("TBW102")
        assert mine == model


def test_the_journal_is_empty_once_the_files_are_saved(desk):
    desk.topics.update(TopicConfig(topic_name="T"))
    desk.groups.find("g")
    journal = desk.directory / "rocketbox/config.journal"
    desk.topics.persist()
    assert journal.stat().st_size > 0
    desk.groups.persist()
    wait_for(
        lambda: journal.stat().st_size == 0, "an empty journal"
    )  # its thread empties it after the sync of the written bytes


def test_a_crash_between_saving_the_file_and_emptying_the_journal_changes_nothing(open_desk, tmp_path):
    desk = open_desk()
    desk.topics.update(TopicConfig(topic_name="T", perm=4))
    desk.topics.update(TopicConfig(topic_name="U"))
    desk.topics.delete("U")
    journal = (tmp_path / "rocketbox/config.journal").read_bytes()
    desk.topics.persist()
    desk.groups.persist()
    (tmp_path / "rocketbox/config.journal").write_bytes(journal)
    again = open_desk()
    assert again.topics.get("T").perm == 4
    assert again.topics.get("U") is None
    assert again.topics.data_version == desk.topics.data_version


def test_what_apache_wrote_after_a_crash_of_ours_wins_but_loses_no_topic(open_desk, tmp_path, clock):
    desk = open_desk()
    desk.topics.update(TopicConfig(topic_name="Both", perm=4))
    desk.topics.update(TopicConfig(topic_name="Deleted"))
    desk.topics.persist()
    desk.groups.persist()
    desk.topics.delete("Deleted")
    desk.topics.update(TopicConfig(topic_name="Both", perm=2))
    desk.topics.update(TopicConfig(topic_name="OursOnly"))
    # Apache starts on the file unchanged, and changes it an hour later.
    path = tmp_path / "store/config/topics.json"
    document = json.loads(path.read_bytes())
    document["topicConfigTable"]["Both"]["perm"] = 6
    document["dataVersion"] = {"counter": 3, "stateVersion": 0, "timestamp": clock.wall_ms() + 3_600_000}
    path.write_text(json.dumps(document))
    again = open_desk()
    assert again.topics.get("Both").perm == 6
    assert again.topics.get("OursOnly") is not None
    assert again.topics.get("Deleted") is not None


def test_a_change_during_a_save_stays_in_the_journal(open_desk, monkeypatch):
    desk = open_desk()
    desk.groups.persist()
    desk.topics.update(TopicConfig(topic_name="Before"))
    save = config_table.save_json_atomically

    def save_while_something_changes(path, content, files):
        desk.topics.update(TopicConfig(topic_name="During"))
        save(path, content, files)

    monkeypatch.setattr(config_table, "save_json_atomically", save_while_something_changes)
    desk.topics.persist()
    monkeypatch.undo()
    assert "During" not in file_of(desk)["topicConfigTable"]
    topics = open_desk().topics
    assert topics.get("Before") is not None
    assert topics.get("During") is not None


def test_a_journal_entry_that_makes_no_sense_is_left_out(open_desk, tmp_path):
    desk = open_desk()
    version = {"counter": 99, "timestamp": desk.clock.wall_ms() + 1}
    desk.journal.append({"table": "topics", "name": "T", "value": {"perm": []}, "version": version})
    desk.journal.append({"table": "topics", "name": "U", "value": {"perm": 4}, "version": version})
    desk.journal.append({"table": "topics", "name": "V", "value": {"perm": 4}, "version": 5})
    topics = open_desk().topics
    assert topics.get("T") is topics.get("V") is None
    assert topics.get("U").perm == 4


def test_numbers_of_a_file_that_no_topic_has_are_taken_as_some_that_one_may_have(open_desk, tmp_path):
    (tmp_path / "store/config").mkdir(parents=True)
    odd = {
        "Less": {"readQueueNums": -1, "writeQueueNums": -(1 << 31), "perm": -2, "topicSysFlag": -1},
        "More": {"readQueueNums": (1 << 31) - 1, "writeQueueNums": 70_000, "perm": 256 + 4, "topicSysFlag": 1 << 20},
    }
    text = json.dumps({"topicConfigTable": odd, "dataVersion": {"counter": (1 << 63) - 1, "timestamp": 1}})
    (tmp_path / "store/config/topics.json").write_text(text)
    topics = open_desk().topics
    less, more = topics.get("Less"), topics.get("More")
    assert (less.read_queue_nums, less.write_queue_nums, less.perm, less.topic_sys_flag) == (0, 0, 14, 3)
    assert (more.read_queue_nums, more.write_queue_nums) == (MAX_QUEUE_NUMS, MAX_QUEUE_NUMS)
    assert (more.perm, more.topic_sys_flag) == (4, 0)
    topics.update(TopicConfig(topic_name="T"))
    assert topics.data_version.counter < 1 << 63, "no name server takes a table with such a version"


@pytest.mark.parametrize("content", ["null", "{}", '{"dataVersion":{"counter":1}}', '{"topicConfigTable":null}', "7"])
def test_a_file_without_its_table_is_damage_and_is_read_from_its_backup(open_desk, tmp_path, content):
    """A start without topics would give up the messages that wait for them."""
    path = tmp_path / "store/config/topics.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(StartError, match=r"topics\.json is damaged and there is no good copy of it"):
        open_desk()
    path.with_name("topics.json.bak").write_text(json.dumps({"topicConfigTable": {"T": {"topicName": "T"}}}))
    assert open_desk().topics.get("T") is not None
    assert path.with_name("topics.json.damaged").read_text() == content


@pytest.mark.parametrize("table", [[], "", 0, False])
def test_a_file_whose_table_is_none_ends_the_start(open_desk, tmp_path, table):
    (tmp_path / "store/config").mkdir(parents=True)
    (tmp_path / "store/config/topics.json").write_text(json.dumps({"topicConfigTable": table}))
    with pytest.raises(StartError, match="there is no topicConfigTable"):
        open_desk()


@pytest.mark.parametrize("flag", [-1, 4, (1 << 31) - 1])
def test_a_system_flag_that_there_is_not_is_refused(desk, flag):
    with pytest.raises(RefusedRequest, match="is not a topicSysFlag"):
        desk.topics.update(TopicConfig(topic_name="T", topic_sys_flag=flag))
    assert desk.topics.get("T") is None


def test_a_full_disk_refuses_the_change_and_changes_nothing(desk, monkeypatch):
    def full(entry, wake=True):
        raise OSError(28, "No space left on device")

    version = desk.topics.data_version
    monkeypatch.setattr(desk.journal, "append", full)
    for change in (
        lambda: desk.topics.update(TopicConfig(topic_name="T")),
        lambda: desk.topics.create_from_default("T", "TBW102", 4),
        lambda: desk.topics.create_retry_topic("T", 1, 6),
        lambda: desk.topics.delete("BenchmarkTest"),
    ):
        with pytest.raises(RefusedRequest, match="No space left"):
            change()
    assert desk.topics.get("T") is None
    assert desk.topics.get("BenchmarkTest") is not None
    assert desk.topics.data_version == version
    monkeypatch.undo()
    assert desk.topics.create_from_default("T", "TBW102", 4) is not None


def test_a_save_that_failed_is_made_good_by_the_next(desk, monkeypatch):
    desk.topics.update(TopicConfig(topic_name="T"))
    monkeypatch.setattr(desk.topics, "_path", desk.config_dir / "nowhere" / "topics.json")
    desk.topics._saver.save_now()
    assert "nowhere" in desk.topics.failure
    monkeypatch.undo()
    desk.topics._saver.save_now()
    assert desk.topics.failure is None
    assert "T" in file_of(desk)["topicConfigTable"]


def test_many_threads_change_and_save_at_once(open_desk):
    desk = open_desk()
    failures = []

    def work(number):
        try:
            for round_ in range(40):
                desk.topics.create_from_default(f"P{round_}", "TBW102", 4)
                desk.topics.update(TopicConfig(topic_name=f"T{number}", read_queue_nums=round_ + 1))
                desk.topics.persist()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    version = desk.topics.data_version
    assert version.counter == 40 + 4 * 40
    again = open_desk()
    assert again.topics.data_version == version
    assert {config.topic_name: config for config in again.topics.all()} == {
        config.topic_name: config for config in desk.topics.all()
    }


def test_the_order_configuration_marks_topics_that_are_there_and_unmarks_none(desk):
    for name, order in (("Plain", False), ("Ordered", True), ("Other", False)):
        desk.topics.update(TopicConfig(topic_name=name, order=order))
    seen = []
    desk.topics.on_change.append(seen.extend)
    desk.topics.take_orders({"Plain": "broker-a:4", "Ordered": "broker-a:4", "NotHere": "broker-a:4"})
    desk.topics.take_orders({"Plain": "broker-a:4"})
    assert [config.topic_name for config in seen] == ["Plain"]
    assert [desk.topics.is_order_topic(name) for name in ("Plain", "Ordered", "Other")] == [True, True, False]
    assert desk.topics.get("NotHere") is None


def test_the_text_of_a_topic_is_javas(desk):
    config = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=3, perm=6, attributes={"a": "b"})
    assert str(config) == (
        "TopicConfig [topicName=T, readQueueNums=4, writeQueueNums=3, perm=RW-, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=0, order=false, attributes={a=b}]"
    )
