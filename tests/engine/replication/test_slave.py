"""A RocketBox slave behind a RocketBox master: the same log, queues, keys and tables, whatever happens to either."""

import errno
import itertools
import json
import shutil
import time
from contextlib import closing

import pytest

from appliance.engine.broker import schema_copies
from appliance.engine.broker.offset_resets.targets import Exactly
from appliance.engine.broker.offsets import LATELY_MOVED
from appliance.engine.errors import Unavailable
from appliance.engine.fastjson import loads
from tests.exchange.both_ways import missing_keys, read_everything
from tests.support.engine import pull_fields, send_fields
from tests.support.members_of_set import DELETE_TOPIC, make, send
from tests.support.peer import Peer
from tests.support.ports import reserve_port
from tests.support.set_of_brokers import FILE, log_of, start_master, start_slave, wait_same
from tests.support.waiting import wait_for


@pytest.fixture
def pair(tmp_path, impatient):
    """(start master, start slave); all are stopped at the end."""
    port = reserve_port()
    started = []

    def master(**store):
        started.append(start_master(tmp_path / "master", port, **store))
        return started[-1]

    def slave(of, **store):
        started.append(start_slave(tmp_path / "slave", of.engine.namesrv_address, **store))
        return started[-1]

    yield master, slave
    for one in reversed(started):
        if one.engine.loop.alive:
            one.stop()


def fill(master, count: int, begin: int = 0, topic: str = "Orders") -> None:
    for n in range(begin, begin + count):
        master.put(topic, b"%d " % n * 4000, queue=n % 4, properties=f"KEYS\x01key{n}\x02TAGS\x01T{n % 3}\x02")


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_an_empty_slave_gets_all_of_several_files_and_serves_it(pair, flush):
    master, slave = pair[0](flush_disk_type=flush), None
    fill(master, 120)
    slave = pair[1](master, flush_disk_type=flush)
    wait_same(master, slave)
    fill(master, 120, 120)
    wait_same(master, slave)
    assert master.engine.broker.store.log.written > 2 * FILE
    topics = {"Orders": 4}
    # It gets its tables by itself, and then serves the same as the master.
    wait_for(lambda: slave.engine.broker.topics.get("Orders"), "the topic")
    content = read_everything(master.engine.broker_address, topics)
    assert len(content.records) == 240
    assert read_everything(slave.engine.broker_address, topics) == content
    assert missing_keys(slave.engine.broker_address, content) == []


def test_a_reset_at_the_master_is_no_consumption_here_either(pair):
    master = pair[0]()
    master.window.group_commands.create("CG")
    for queue in (0, 1):
        master.put("Orders", *[b"x"] * 10, queue=queue)
        master.commit("CG", "Orders", queue, 2)
    slave = pair[1](master)
    sampler = slave.window._parts.sampler

    def counted_when_at(queue: int, offset: int) -> int:
        wait_for(lambda: slave.engine.broker.offsets.get("CG", "Orders", queue) == offset, "the offset")
        slave.sample()
        return sampler.pairs["Orders", "CG"].moved(sampler.count)

    counted_when_at(1, 2)
    master.commit("CG", "Orders", 1, 4)
    assert counted_when_at(1, 4) == 2
    master.window.offset_commands.reset("CG", "Orders", Exactly({0: 9}))
    assert counted_when_at(0, 9) == 2
    master.window.offset_commands.reset("CG", "Orders", Exactly({1: 9}))
    assert counted_when_at(1, 9) == 2
    told = loads(master.peer().ask(43, {}).body)
    assert told["offsetTable"]["Orders@CG"] == {"0": 9, "1": 9}
    assert told[LATELY_MOVED] == {"Orders@CG": {"0": 9, "1": 9}}


def test_it_refuses_sends_and_makes_no_topic_for_them(pair):
    master = pair[0]()
    slave = pair[1](master)
    answer = slave.peer().ask(310, send_fields("Unknown", 0, ""), b"x")
    assert answer.code == 14
    assert "slave" in answer.remark
    assert slave.engine.broker.topics.get("Unknown") is None
    assert slave.engine.broker.store.log.written == 0


def test_both_are_routed_under_one_name(pair):
    master = pair[0]()
    master.put("Orders", b"x")
    slave = pair[1](master)

    peer = Peer(master.engine.namesrv_address)
    wait_for(
        lambda: (
            json.loads(peer.ask(105, {"topic": "Orders", "acceptStandardJsonOnly": "true"}).body)["brokerDatas"][0][
                "brokerAddrs"
            ]
            == {"0": master.engine.broker_address, "1": slave.engine.broker_address}
        ),
        "both in the route",
        not_yet=(ValueError,),  # the name server does not know the topic
    )
    peer.close()


def test_a_restarted_slave_goes_on_where_it_was(pair):
    master = pair[0]()
    fill(master, 30)
    slave = pair[1](master)
    wait_same(master, slave)
    slave.stop()
    fill(master, 90, 30)
    slave = pair[1](master)
    wait_same(master, slave)
    fill(master, 3, 120)
    wait_same(master, slave)


def test_a_restarted_master_is_followed_again(pair):
    master = pair[0]()
    fill(master, 30)
    slave = pair[1](master)
    wait_same(master, slave)
    follower, registration = slave.engine.broker.follower.follower, slave.engine.broker.registration
    ha_address = registration.master[1]
    master.stop()
    wait_for(lambda: follower.status.why_not, "the slave to notice")
    master = pair[0]()
    # Ports are chosen anew here: the slave gets the address that name servers at fixed ports would give.
    registration.master = (master.engine.broker_address, ha_address)
    fill(master, 30, 30)
    wait_same(master, slave)


def test_a_slave_that_is_ahead_is_left_as_it_is(pair, tmp_path):
    """The master lost records that the slave has: nothing is cut, and nothing overwritten."""
    master = pair[0]()
    fill(master, 30)
    slave = pair[1](master)
    wait_same(master, slave)
    before = log_of(slave)
    slave.stop()
    master.stop()
    shutil.rmtree(tmp_path / "master")
    master = pair[0]()
    fill(master, 10)
    slave = pair[1](master)
    status = slave.engine.broker.follower.follower
    wait_for(lambda: "does not have the record" in status.status.why_not, "it to say so")
    assert log_of(slave) == before


def test_another_log_of_the_same_shape_is_not_followed(pair, tmp_path):
    """The master was made anew, and has a record at each place of the slave's, and more."""
    master = pair[0]()
    fill(master, 30)
    slave = pair[1](master)
    wait_same(master, slave)
    before = log_of(slave)
    slave.stop()
    master.stop()
    shutil.rmtree(tmp_path / "master")
    master = pair[0]()
    fill(master, 40)
    assert log_of(master)[: len(before)] != before
    slave = pair[1](master)
    status = slave.engine.broker.follower.follower
    wait_for(lambda: "another than the last one" in status.status.why_not, "it to say so")
    assert log_of(slave) == before


def test_offsets_and_groups_come_too(pair):
    master = pair[0]()
    fill(master, 4)
    master.join("c1", "Readers")
    master.commit("Readers", "Orders", 1, 1)
    slave = pair[1](master)
    wait_for(lambda: slave.engine.broker.offsets.get("Readers", "Orders", 1) == 1, "the offset")
    wait_for(lambda: slave.engine.broker.groups.get("Readers"), "the group")
    master.commit("Readers", "Orders", 1, 0)  # set back
    wait_for(lambda: slave.engine.broker.offsets.get("Readers", "Orders", 1) == 0, "the offset set back")


def test_a_topic_made_again_begins_anew_there_too(pair):
    master = pair[0]()
    fill(master, 40)
    slave = pair[1](master)
    wait_same(master, slave)
    assert master.peer().ask(215, {"topic": "Orders"}).code == 0
    wait_for(lambda: slave.engine.broker.topics.get("Orders") is None, "the topic to go")
    fill(master, 8, 1000)
    wait_same(master, slave)
    wait_for(lambda: slave.engine.broker.topics.get("Orders"), "the topic")
    topics = {"Orders": 4}
    content = read_everything(master.engine.broker_address, topics)
    assert len(content.records) == 8
    assert read_everything(slave.engine.broker_address, topics) == content


def test_no_acknowledged_message_of_a_topic_made_again_with_more_queues_is_missing_there(pair):
    """No request waits for the slave to hear of the deletion: its log shows it."""
    master = pair[0](broker_role="SYNC_MASTER")
    slave = pair[1](master)
    with closing(master.peer()) as peer:
        make(peer, "Orders", 1)
        wait_for(lambda: slave.engine.broker.topics.get("Orders"), "the topic")
        send(peer, "Orders", 0, *(b"old %d" % n for n in range(10)))
        assert peer.ask(DELETE_TOPIC, {"topic": "Orders"}).code == 0
        make(peer, "Orders", 4)
        for queue in (1, 2, 3, 0):  # the one that begins anew comes last
            send(peer, "Orders", queue, *(b"new %d" % n for n in range(4)))
    wait_same(master, slave)
    wait_for(lambda: slave.engine.broker.topics.get("Orders").read_queue_nums == 4, "its queues")
    topics = {"Orders": 4}
    content = read_everything(master.engine.broker_address, topics)
    assert len(content.records) == 16
    assert read_everything(slave.engine.broker_address, topics) == content


def test_a_queue_of_a_topic_made_again_as_it_was_begins_where_the_masters_does(pair):
    """The slave hears of the deletion when the topic is there again, and so sees no change of its table."""
    master = pair[0]()
    fill(master, 8)
    slave = pair[1](master)
    wait_same(master, slave)
    wait_for(lambda: slave.engine.broker.topics.get("Orders"), "the topic")
    with closing(master.peer()) as peer:
        assert peer.ask(DELETE_TOPIC, {"topic": "Orders"}).code == 0
        make(peer, "Orders", 4)
    wait_for(lambda: slave.engine.broker.store.queues.begins_of("Orders"), "the deletion")
    wait_for(lambda: slave.engine.broker.store.offset_range("Orders", 0) == (2, 2), "the beginning")

    def pulled(server, offset):
        with closing(server.peer()) as peer:
            answer = peer.ask(11, pull_fields("Orders", 0, offset))
            return answer.code, {name: answer.ext_fields[name] for name in ("nextBeginOffset", "minOffset")}

    for offset in (0, 1):
        assert pulled(master, offset) == (21, {"nextBeginOffset": "2", "minOffset": "2"})
        wait_for(lambda offset=offset: pulled(slave, offset) == pulled(master, offset), "the same answer")


def test_a_topic_made_again_has_no_schema_of_the_one_before_where_its_deletion_is_only_heard_of(pair):
    """A slave keeps schemas of its own, and may lead one day."""
    master = pair[0]()
    fill(master, 8)
    slave = pair[1](master)
    wait_same(master, slave)
    wait_for(lambda: slave.engine.broker.topics.get("Orders"), "the topic")
    slave.window.schemas.put("Orders", kind="avro", data=b'{"type": "string"}')
    fill(master, 1, topic="Other")
    with closing(master.peer()) as peer:
        assert peer.ask(DELETE_TOPIC, {"topic": "Orders"}).code == 0
        make(peer, "Orders", 4)
    wait_for(lambda: slave.engine.broker.store.queues.begins_of("Orders"), "the deletion")
    assert slave.window.schemas.find("Orders") is None
    slave.window.schemas.put("Orders", kind="avro", data=b'{"type": "long"}')
    assert slave.window.schemas.find("Orders").name == "long"


def test_a_queue_of_a_topic_made_again_begins_there_after_a_round_that_failed(pair):
    master = pair[0]()
    fill(master, 8)
    slave = pair[1](master)
    wait_same(master, slave)
    topics = slave.engine.broker.topics
    wait_for(lambda: topics.get("Orders"), "the topic")
    failed = []

    def make_durable():
        if slave.engine.broker.store.queues.begins_of("Orders") and not failed:
            failed.append(True)
            raise OSError(errno.ENOSPC, "no space left")

    topics.make_durable = make_durable
    with closing(master.peer()) as peer:
        assert peer.ask(DELETE_TOPIC, {"topic": "Orders"}).code == 0
        make(peer, "Orders", 4)
    wait_for(lambda: failed and slave.engine.broker.store.queues.find("Orders", 0), "the queue, in a later round")
    with closing(slave.peer()) as peer:
        answer = peer.ask(11, pull_fields("Orders", 0, 0))
        assert (answer.code, answer.ext_fields["minOffset"]) == (21, "2")


def test_a_slave_that_people_make_the_master_has_the_topics_of_the_last_moment(pair, tmp_path):
    """The log comes at once, the topics seconds later; the master is lost in between."""
    master = pair[0]()
    fill(master, 8)
    slave = pair[1](master)
    wait_same(master, slave)
    wait_for(lambda: slave.engine.broker.topics.get("Orders"), "the topic")
    wait_for(lambda: (slave.data_dir / "rocketbox" / "followed.json").exists(), "the note")
    slave.engine.broker.follower.sync.stop()
    with closing(master.peer()) as peer:
        send(peer, "Later", 1, *(b"%d" % n for n in range(4)))
    wait_same(master, slave)
    assert slave.engine.broker.topics.get("Later") is None
    master.stop()
    slave.stop()
    alone = start_master(tmp_path / "slave", reserve_port())
    try:
        assert alone.engine.broker.topics.get("Later").write_queue_nums == 2
        content = read_everything(alone.engine.broker_address, {"Orders": 4, "Later": 2})
        assert len(content.records) == 12
        assert not (alone.data_dir / "rocketbox" / "followed.json").exists()
    finally:
        alone.stop()


def test_a_purge_comes_to_the_slave_and_stays_there_without_its_master(pair):
    master = pair[0]()
    slave = pair[1](master)
    fill(master, 8)
    wait_same(master, slave)
    wait_for(lambda: slave.engine.broker.topics.get("Orders"), "the topic")
    store, copy = master.engine.broker.store, slave.engine.broker.store
    assert master.window.topic_purges.purge("Orders").applied
    ends = {queue.queue_id: queue.max_offset for queue in store.queues.of_topic("Orders")}
    assert {queue.queue_id: queue.min_offset for queue in store.queues.of_topic("Orders")} == ends
    wait_for(
        lambda: {queue.queue_id: queue.min_offset for queue in copy.queues.of_topic("Orders")} == ends, "the purge"
    )
    assert copy.files.purged_queues.places == store.files.purged_queues.places
    fill(master, 4)
    wait_same(master, slave)
    topics = {"Orders": 4}
    content = read_everything(master.engine.broker_address, topics)
    assert len(content.records) == 4
    assert read_everything(slave.engine.broker_address, topics) == content


def test_bodies_are_shown_there_by_the_masters_schemas(pair, monkeypatch):
    """They were not: each slave had to be given the schemas by hand."""
    monkeypatch.setattr(schema_copies, "_PIECE", 50)
    master = pair[0]()
    fill(master, 4)
    master.put("Orders", b"\x54", queue=0)
    master.window.schemas.put("Orders", kind="avro", data=b'"long"', by="anna")
    slave = pair[1](master)
    wait_same(master, slave)

    def decoded():
        return slave.window.messages.body("Orders/0/1").decoded

    wait_for(lambda: decoded() == "42", "the schema")
    assert slave.window.schemas.get("Orders").by == "anna"
    master.window.schemas.put("Orders", kind="avro", data=b'{"type": "array", "items": "null"}')
    wait_for(lambda: decoded() != "42", "the other schema")
    master.window.schemas.put("Orders", kind="avro", data=b'"int"')
    wait_for(lambda: decoded() == "42", "the third schema")
    with pytest.raises(Unavailable, match="is a slave"):
        slave.window.schema_commands.put("Orders", kind="avro", data=b'"long"')
    master.window.schemas.remove("Orders")
    wait_for(lambda: slave.window.schemas.find("Orders") is None, "its end")
    assert decoded() is None


def test_delayed_messages_are_delivered_by_the_master_alone(pair):
    master = pair[0]()
    slave = pair[1](master)
    master.put("Orders", b"later", properties="DELAY\x011\x02")
    wait_for(lambda: master.engine.broker.store.max_offset("Orders", 0) == 1, "the delivery")
    wait_same(master, slave)
    assert slave.engine.broker.store.max_offset("Orders", 0) == 1


def test_a_slave_that_has_what_nobody_may_see_yet_follows_again(pair):
    """The master waits for a second slave, so that it does not show the first one's messages: that one is restarted."""
    master = pair[0](broker_role="SYNC_MASTER", in_sync_replicas=3, slave_timeout_ms=50)
    slave = pair[1](master)
    sent = send_fields("Orders", 0, "WAIT\x01true\x02")
    assert master.peer().ask(310, sent, b"x").code == 12
    theirs = master.engine.broker.store
    wait_for(lambda: slave.engine.broker.store.log.written == theirs.log.written > 0, "the slave to have it")
    slave.stop()
    assert theirs.published == 0
    assert master.peer().ask(310, sent, b"y").code == 12
    slave = pair[1](master)
    wait_for(lambda: slave.engine.broker.store.log.written == theirs.log.written, "the slave to have both")
    assert log_of(slave) == log_of(master)
    wait_for(lambda: slave.engine.broker.follower.follower.status.why_not == "", "all to be well")
    wait_for(lambda: [s.acknowledged for s in master.engine.broker.replication.slaves] == [theirs.log.written], "it")


def test_tables_of_a_master_with_another_log_are_not_taken_over(pair, tmp_path, monkeypatch):
    """The master was made anew: only its slave still has the data, which stays readable."""
    master = pair[0]()
    fill(master, 30)
    master.join("c1", "Readers")
    master.commit("Readers", "Orders", 1, 5)
    slave = pair[1](master)
    wait_same(master, slave)
    wait_for(lambda: slave.engine.broker.offsets.get("Readers", "Orders", 1) == 5, "the offset")
    wait_for(lambda: slave.engine.broker.topics.get("Orders"), "the topic")
    slave.stop()
    master.stop()
    shutil.rmtree(tmp_path / "master")
    master = pair[0]()
    fill(master, 3, topic="Others")
    slave = pair[1](master)
    status = slave.engine.broker.follower.follower
    wait_for(lambda: "the last one" in status.status.why_not, "it to say so")
    sync, asked = slave.engine.broker.follower.sync, []
    master_of_tables = sync._master
    monkeypatch.setattr(sync, "_master", lambda: asked.append(master_of_tables()) or asked[-1])
    wait_for(lambda: len(asked) > 2, "it to have had time for the tables twice")
    assert slave.engine.broker.topics.get("Orders")
    assert slave.engine.broker.topics.get("Others") is None
    assert slave.engine.broker.offsets.get("Readers", "Orders", 1) == 5


def test_the_window_of_a_slave_says_what_it_is_and_changes_nothing(pair):
    """A topic made on a slave, or an offset set there, was once undone 3 s later; and its disk was called full."""
    master = pair[0]()
    fill(master, 4)
    slave = pair[1](master)
    wait_same(master, slave)
    window = slave.engine.window
    found = {one.name: one for one in window.checks()}
    assert found["disk"].level == "ok"
    assert found["replication"].level == "ok", found["replication"]
    assert window.retention.snapshot().refusing is None
    for change in (
        lambda: window.topic_commands.create("Mine"),
        lambda: window.group_commands.create("Mine"),
        lambda: window.sender.send("Orders", b"x"),
        lambda: window.replay_commands.start("Readers"),
        lambda: window.topic_commands.delete("Orders", dry_run=True),
    ):
        with pytest.raises(Unavailable, match="is a slave"):
            change()
    assert [one.sentence.code for one in master.engine.window.checks() if one.name == "replication"] == [
        "slaves_follow"
    ]
    master.stop()
    wait_for(lambda: {one.name: one.level for one in window.checks()}["replication"] == "failed", "it to say so")


def test_changes_over_the_wire_are_refused_with_the_masters_address_and_deleting_a_topic_is_left_to_it(pair):
    master = pair[0]()
    fill(master, 4)
    slave = pair[1](master)
    wait_same(master, slave)
    wait_for(lambda: slave.engine.broker.topics.get("Orders"), "the topic")
    peer = slave.peer()
    for code, fields in (
        (17, {"topic": "New", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}),
        (200, {}),
        (207, {"groupName": "G"}),
        (222, {"topic": "Orders", "group": "G", "timestamp": "0", "isForce": "true"}),
        (314, {"srcGroup": "A", "destGroup": "B", "topic": "Orders", "offline": "true"}),
        (323, {"topic": "Orders", "msgId": "x"}),
    ):
        answer = peer.ask(code, fields, b"{}")
        assert answer.code == 16, code
        assert master.engine.broker_address in answer.remark
    assert slave.engine.broker.topics.get("New") is None
    # mqadmin deleteTopic asks every broker of the cluster, and stops at the first refusal.
    answer = peer.ask(215, {"topic": "Orders"})
    assert answer.code == 0
    assert master.engine.broker_address in answer.remark
    assert slave.engine.broker.topics.get("Orders") is not None
    assert master.peer().ask(215, {"topic": "Orders"}).code == 0
    wait_for(lambda: slave.engine.broker.topics.get("Orders") is None, "the master's deletion to come")


def test_the_status_of_replication_holds_figures_that_move(pair):
    master = pair[0]()
    slave = pair[1](master)
    fill(master, 20)
    wait_same(master, slave)
    begun = int(time.time() * 1000) - 60_000
    wait_for(lambda: slave.engine.broker.follower.sync.master_end, "the slave to ask how far its master is")
    told = json.loads(slave.peer().ask(907).body)
    assert told["master"] is False
    client = told["haClientRuntimeInfo"]
    assert client["activated"] is True
    assert client["masterAddr"] == master.engine.broker.ha_address
    assert client["lastReadTimestamp"] > begun
    assert client["lastWriteTimestamp"] > begun
    wait_for(
        lambda: (
            json.loads(slave.peer().ask(907).body)["haClientRuntimeInfo"]["masterFlushOffset"]
            == master.engine.broker.store.published
        ),
        "the slave to know the master's end",
    )
    # While bytes are copied there is a rate: a second later it is 0 again.
    filled = itertools.count(20, 5)

    def has_rate() -> bool:
        fill(master, 5, next(filled))
        status = json.loads(master.peer().ask(907).body)
        return any(one["transferredByteInSecond"] for one in status["haConnectionInfo"])

    wait_for(has_rate, "a rate", every=0.1)
