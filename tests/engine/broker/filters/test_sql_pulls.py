"""Pulls with SQL92 expressions over the wire: expressions of the pull, and expressions that heartbeats registered."""

import json
import threading
from collections import Counter

import pytest

from appliance.engine.broker.filters.bloom import bloom_of
from appliance.engine.broker.processors import client as client_module
from appliance.engine.broker.pulling import pull_path
from appliance.engine.filter import expressions as expressions_module
from appliance.engine.filter import sql_filter
from appliance.engine.store.queues import flush_queues
from appliance.engine.store.settling import Settling
from tests.support.batches import encode_member
from tests.support.directories import shared_directory
from tests.support.engine import Peer, RunningEngine, pull_fields, records, send_fields, start_engine
from tests.support.waiting import wait_for

LONG = " OR ".join(f"colour = 'shade{number}'" for number in range(100)) + " OR colour = 'blue'"


@pytest.fixture(scope="module", params=["ASYNC_FLUSH", "SYNC_FLUSH"])
def running(request):
    with pytest.MonkeyPatch.context() as patch:
        # Entries stay in memory until a test wants them in files: a pull brings less where files end.
        patch.setattr(flush_queues, "INTERVAL_S", 3600)
        running = RunningEngine(shared_directory(request, "engine"), store={"flush_disk_type": request.param})
        yield running
        running.stop()


def wait_in_files(running, topic, count):
    store = running.engine.broker.store
    queue = store.find_queue(topic, 0)

    def filed():
        store._flush_queues.wakeup()
        return queue.tail_base == count

    wait_for(filed, "the entries are in a file")


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """Give slices of a pull all the time: on a busy machine one would end early, and the next pull bring the rest."""
    settle = Settling.settle
    monkeypatch.setattr(
        Settling, "settle", lambda self, entries, wanted, most: settle(self, entries, wanted, most, 60.0)
    )


@pytest.fixture
def topic(request):
    return "T_" + "".join(c if c.isalnum() else "_" for c in request.node.name)[:100]


def colours(running, topic, *names, queue=0):
    for number, name in enumerate(names):
        running.put(topic, b"%d" % number, queue=queue, properties=f"colour\x01{name}\x02n\x01{number}\x02")


def ask(peer, topic, offset, expression, **changes):
    return peer.ask(11, pull_fields(topic, 0, offset, expressionType="SQL92", subscription=expression, **changes))


def bodies(answer):
    return [record.body for record in records(answer.body)]


def numbers(answer):
    return [int(answer.ext_fields[name]) for name in ("nextBeginOffset", "minOffset", "maxOffset")]


@pytest.mark.parametrize("flushed", [False, True], ids=["in memory", "in files"])
def test_what_fulfils_the_expression_comes(running, topic, flushed):
    colours(running, topic, "red", "blue", "blue", "red", "blue")
    running.put(topic, b"none")
    if flushed:
        wait_in_files(running, topic, 6)
    peer = running.peer()
    answer = ask(peer, topic, 0, "colour = 'blue'")
    assert (answer.code, answer.remark, bodies(answer)) == (0, "FOUND", [b"1", b"2", b"4"])
    assert numbers(answer) == [6, 0, 6]
    assert bodies(ask(peer, topic, 2, "colour <> 'blue' AND n >= 3")) == [b"3"]
    nothing = ask(peer, topic, 0, "colour = 'green'")
    assert (nothing.code, nothing.remark, numbers(nothing)) == (20, "NO_MATCHED_MESSAGE", [6, 0, 6])
    assert ask(peer, topic, 6, "colour = 'green'").code == 19
    assert bodies(ask(peer, topic, 0, LONG)) == [b"1", b"2", b"4"]
    two = ask(peer, topic, 0, "colour = 'blue'", maxMsgNums=2)
    assert (bodies(two), numbers(two)[0]) == ([b"1", b"2"], 4 if flushed is False else numbers(two)[0])


@pytest.mark.parametrize(
    ("expression", "remark"),
    [
        ("a > 1 AND\nb BETWEEN 3 AND", "the expression ends (line 2, column 15)"),
        (LONG + " OR", "the expression ends"),
        ("", ""),
    ],
    ids=["short", "long", "none"],
)
def test_what_is_no_expression_is_refused(running, topic, expression, remark):
    """Apache answers with all messages."""
    colours(running, topic, "red")
    peer = running.peer()
    for _ in range(3):
        answer = ask(peer, topic, 0, expression)
        assert answer.code == 23
        assert answer.remark.startswith("parse the consumer's subscription failed")
        assert remark in answer.remark
    assert peer.ask(11, pull_fields(topic, 0, 0)).code == 0


def test_a_long_expression_is_checked_in_the_pool(running):
    peer = running.peer()
    for expression, code in ((LONG, 0), (LONG, 0), (LONG + " OR", 23), (LONG + " OR", 23), ("x" * 40_000, 23)):
        data = {"topic": "T", "subString": expression, "expressionType": "SQL92"}
        body = json.dumps({"clientId": "c", "group": "g", "subscriptionData": data}).encode()
        assert peer.ask(46, {}, body).code == code


def test_the_language_is_loaded_in_the_pool_whoever_needs_it_first(running, topic, monkeypatch):
    """Loading takes longer than many expressions; on the loop all connections would wait for it."""
    threads = []
    load = expressions_module._sql

    def loading():
        if expressions_module._loaded is None:
            threads.append(threading.current_thread().name)
        return load()

    monkeypatch.setattr(expressions_module, "_sql", loading)
    colours(running, topic, "red", "blue")
    peer = running.peer()
    data = {"topic": topic, "subString": "colour = 'blue'", "expressionType": "SQL92"}
    check = json.dumps({"clientId": "c", "group": "g", "subscriptionData": data}).encode()
    for first in (
        lambda: bodies(ask(peer, topic, 0, "colour = 'red'")) == [b"0"],
        lambda: peer.ask(46, {}, check).code == 0,
        lambda: bodies(ask_registered(registered(running, topic, "colour = 'blue'")[1], "G_" + topic, topic, 0)),
    ):
        monkeypatch.setattr(expressions_module, "_loaded", None)
        assert first()
    assert threads == ["pool-pull-filter"] * 3


def registered(running, topic, expression, version=5, client="c@1", **data):
    group = "G_" + topic
    return group, running.join(client, group, topic, expression, expressionType="SQL92", subVersion=version, **data)


def ask_registered(peer, group, topic, offset, version=5, **changes):
    fields = pull_fields(topic, 0, offset, sysFlag=0, consumerGroup=group, subVersion=version, **changes)
    fields.pop("subscription", None)
    return peer.ask(11, fields)


AHEAD = 10**15


def beat(peer, client, topic, expression, version):
    data = {"topic": topic, "subString": expression, "subVersion": version, "expressionType": "SQL92"}
    consumer = {"groupName": "G_" + topic, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [data]}  # fmt: skip
    body = json.dumps({"clientID": client, "consumerDataSet": [consumer], "producerDataSet": []}).encode()
    assert peer.ask(34, {}, body).code == 0


def counts(running, topic):
    broker = running.engine.broker
    subscription = broker.clients.consumer_group("G_" + topic).subscriptions[topic]
    assert broker.tables.filters.get(topic, "G_" + topic).expression == subscription.sub_string
    return subscription.sub_string


@pytest.mark.parametrize("version", [AHEAD, 5], ids=["the same version", "a lower one"])
def test_of_one_client_the_later_heartbeat_counts(running, topic, version):
    """The client's clock may have been corrected in between."""
    peer = running.peer()
    beat(peer, "c", topic, "b = 1", AHEAD)
    beat(peer, "c", topic, "b = 2", version)
    assert counts(running, topic) == "b = 2"


def test_a_clock_that_is_ahead_counts_while_its_client_is_there_and_no_longer(running, topic):
    ahead, other = running.peer(), running.peer()
    beat(ahead, "ahead", topic, "b = 1", AHEAD)
    beat(other, "other", topic, "b = 2", 5)
    assert counts(running, topic) == "b = 1"
    ahead.close()
    info = running.engine.broker.clients.consumer_group("G_" + topic)
    wait_for(lambda: len(info.channels) == 1, "it is gone")
    beat(other, "other", topic, "b = 2", 5)
    assert counts(running, topic) == "b = 2"
    assert ask_registered(other, "G_" + topic, topic, 0).code not in (25, 28)


def test_members_that_want_the_same_are_never_told_that_theirs_is_too_new(running, topic):
    members = [running.peer() for _ in range(3)]
    for number, peer in enumerate(members):
        beat(peer, f"c{number}", topic, "b = 1", 10 + number)
    members[2].close()
    beat(members[0], "c0", topic, "b = 1", 10)
    for number, peer in enumerate(members[:2]):
        assert ask_registered(peer, "G_" + topic, topic, 0, version=10 + number).code not in (25, 28)


def test_an_expression_of_a_clock_that_was_ahead_does_not_outlive_a_restart(tmp_path):
    running = RunningEngine(tmp_path)
    beat(running.peer(), "ahead", "T", "b = 1", AHEAD)
    running.restart()
    peer = running.peer()
    beat(peer, "other", "T", "b = 2", 5)
    assert counts(running, "T") == "b = 2"
    assert ask_registered(peer, "G_T", "T", 0).code not in (25, 28)
    running.stop()


@pytest.mark.parametrize("expression", ["colour = 'blue'", LONG], ids=["short", "long"])
def test_a_pull_takes_the_expression_from_its_groups_heartbeat(running, topic, expression):
    colours(running, topic, "red", "blue")
    group, member = registered(running, topic, expression)
    assert bodies(ask_registered(member, group, topic, 0)) == [b"1"]
    newer = ask_registered(member, group, topic, 0, version=6)
    assert (newer.code, newer.remark) == (25, "the consumer's subscription not latest")
    registered(running, topic, "colour = 'red'", version=6, client="c@2")
    assert bodies(ask_registered(member, group, topic, 0)) == [b"0"], "the newest member's counts"


def test_a_wrong_expression_is_not_registered(running, topic):
    colours(running, topic, "red")
    group, member = registered(running, topic, "colour = ")
    answer = ask_registered(member, group, topic, 0)
    assert (answer.code, answer.remark) == (
        27,
        "The broker's consumer filter data is not exist!Your expression may be wrong!",
    )


def test_an_error_of_ours_while_compiling_leaves_no_heartbeat_waiting(running, topic, monkeypatch):
    def fail(kind, expression):
        raise MemoryError(expression[:10])

    processor = running.engine.broker._client
    monkeypatch.setattr(client_module, "make_filter", fail)
    subscription = {"topic": topic, "subString": f"{LONG} OR {topic} = 1", "subVersion": 1, "expressionType": "SQL92"}
    beat = {"clientID": "c", "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [subscription]}]}
    peer = running.peer()
    peer.send(34, {}, json.dumps(beat).encode())
    peer.receive_all()
    wait_for(lambda: not processor._waiting_for and not processor._waiting_bytes, "nothing waits")


def test_a_heartbeat_is_compiled_in_slices_and_others_come_between(running, topic, monkeypatch):
    """A second of compiling from each of hundreds of clients would keep every pull with an expression waiting."""
    order, begun, may_go_on = [], threading.Event(), threading.Event()

    def make(kind, expression, peer):
        order.append(expression[-1])
        begun.set()
        assert may_go_on.wait(60)
        return expressions_module.make_filter(kind, expression, peer)

    monkeypatch.setattr(client_module, "_COMPILING_S", 0.0)
    monkeypatch.setattr(client_module, "make_filter", make)
    subscriptions = [
        {"topic": f"{topic}{n}", "subString": f"{LONG} OR {topic} > {n}", "subVersion": 1, "expressionType": "SQL92"}
        for n in range(3)
    ]
    beat = {"clientID": "c", "consumerDataSet": [{"groupName": "G", "subscriptionDataSet": subscriptions}]}
    peer = running.peer()
    peer.send(34, {}, json.dumps(beat).encode())
    assert begun.wait(60)
    assert running.engine.broker._filter_pool.submit(lambda: order.append("other"))
    may_go_on.set()
    assert [peer.receive().code, peer.receive().code] in ([40, 0], [0, 40])
    assert order == ["0", "other", "1", "2"]
    assert all(running.engine.broker.tables.filters.get(f"{topic}{n}", "G") for n in range(3))


def test_filter_data_that_is_older_than_the_pull(running, topic):
    """Happens between two heartbeats of members that disagree: the subscription is new, its filter is not."""
    colours(running, topic, "red")
    group, member = registered(running, topic, "colour = 'red'", version=5)
    info = running.engine.broker.clients.consumer_group(group)
    data = info.subscriptions[topic]
    info.subscriptions[topic] = type(data)(
        topic=topic, sub_string=data.sub_string, sub_version=9, expression_type="SQL92"
    )
    answer = ask_registered(member, group, topic, 0, version=9)
    assert (answer.code, answer.remark) == (28, "the consumer's consumer filter data not latest")


def test_an_entry_dies_with_the_last_member_and_is_back_with_the_first(running, topic):
    running.put(topic, b"0")
    group, member = registered(running, topic, "colour = 'red'", version=5)
    filters = running.engine.broker.tables.filters
    born = filters.get(topic, group)
    assert not born.is_dead
    member.close()
    wait_for(lambda: filters.get(topic, group).is_dead, "the entry is dead")
    registered(running, topic, "colour = 'red'", version=5)
    assert filters.get(topic, group) == born
    registered(running, topic, "colour = 'red'", version=7, client="c@2")
    assert (filters.get(topic, group).client_version, filters.get(topic, group).born_time) == (7, born.born_time)


def test_a_held_pull_sleeps_through_what_is_not_for_it(running, topic):
    colours(running, topic, "red")
    polling = running.engine.broker.pull.long_polling
    waiting = running.peer()
    fields = pull_fields(
        topic, 0, 1, sysFlag=6, suspendTimeoutMillis=15_000, expressionType="SQL92", subscription="colour = 'blue'"
    )
    waiting.send(11, fields)
    wait_for(lambda: polling.count == 1, "the pull is held")
    colours(running, topic, "red", "green", "red")
    assert waiting.is_silent()
    assert polling.count == 1
    colours(running, topic, "blue")
    answer = waiting.receive()
    assert (answer.code, bodies(answer), numbers(answer)) == (0, [b"0"], [5, 0, 5])


def test_a_held_pull_is_looked_for_in_the_pool_when_much_comes(running, topic, monkeypatch):
    """A thousand pulls at once have the same effect: the tick's budget of filter evaluations is used up."""
    monkeypatch.setattr(pull_path, "_JUDGED_A_TICK", 0)
    colours(running, topic, "red")
    polling = running.engine.broker.pull.long_polling
    waiting = running.peer()
    fields = pull_fields(
        topic, 0, 1, sysFlag=6, suspendTimeoutMillis=15_000, expressionType="SQL92", subscription="colour = 'blue'"
    )
    waiting.send(11, fields)
    wait_for(lambda: polling.count == 1, "the pull is held")
    queue = running.engine.broker.store.find_queue(topic, 0)
    for number in range(40):
        colours(running, topic, "red")
        if number % 10 == 0:
            assert waiting.is_silent(0.05)
    (request,) = polling.held_at(queue)
    wait_for(lambda: request.offset == 41, "the pull has seen them all")
    colours(running, topic, "blue")
    assert bodies(waiting.receive()) == [b"0"]


def test_a_held_pull_whose_time_is_over_has_moved_on(running, topic):
    colours(running, topic, "red")
    polling, waiting, end = running.engine.broker.pull.long_polling, running.peer(), 1
    for time_ms in (600, 6000, 60_000):  # longer ones for a busy machine, until the messages come in time
        asked = {"sysFlag": 6, "suspendTimeoutMillis": time_ms, "expressionType": "SQL92"}
        fields = pull_fields(topic, 0, end, subscription="colour = 'blue'", **asked)
        waiting.send(11, fields)
        wait_for(lambda: polling.count == 1, "the pull is held")
        colours(running, topic, "red", "green")
        end += 2
        was_held = polling.count == 1
        answer = waiting.receive()
        if was_held:
            break
    assert (answer.code, numbers(answer)) == (19, [end, 0, end])


def test_a_new_expression_answers_what_the_old_one_held(running, topic):
    colours(running, topic, "red")
    group, member = registered(running, topic, "colour = 'blue'", version=5)
    fields = pull_fields(topic, 0, 1, sysFlag=2, suspendTimeoutMillis=15_000, consumerGroup=group, subVersion=5)
    fields.pop("subscription", None)
    member.send(11, fields)
    wait_for(lambda: running.engine.broker.pull.long_polling.count == 1, "the pull is held")
    registered(running, topic, "colour = 'red'", version=6, client="c@2")
    while (answer := member.receive()).code == 40:
        pass  # another member has come
    assert answer.code == 19
    colours(running, topic, "red")
    assert bodies(ask_registered(member, group, topic, 1, version=6)) == [b"0"]


def test_members_of_a_batch_have_properties_of_their_own(running, topic):
    running.put(topic, b"first")
    peer = running.peer()
    members = [(b"a", b"colour\x01red\x02"), (b"b", b"colour\x01blue\x02"), (b"c", b"")]
    body = b"".join(encode_member(body, properties) for body, properties in members)
    fields = send_fields(topic, 0, "colour\x01green\x02")
    assert peer.ask(320, fields | {"m": "true"}, body).code == 0
    assert bodies(ask(peer, topic, 0, "colour = 'blue'")) == [b"b"]


def test_a_delayed_message_is_judged_where_it_arrives(running, topic):
    colours(running, topic, "red")
    peer = running.peer()
    waiting = pull_fields(
        topic, 0, 1, sysFlag=6, suspendTimeoutMillis=15_000, expressionType="SQL92", subscription="colour = 'blue'"
    )
    peer.send(11, waiting)
    running.put(topic, b"later", properties="colour\x01blue\x02DELAY\x011\x02")
    assert bodies(peer.receive()) == [b"later"]


def test_sql_may_be_switched_off(tmp_path):
    running = RunningEngine(tmp_path, broker={"enable_property_filter": False})
    try:
        colours(running, "T", "red")
        group, member = registered(running, "T", "colour = 'red'")
        for answer in (ask(member, "T", 0, "colour = 'red'"), ask_registered(member, group, "T", 0)):
            assert (answer.code, answer.remark) == (
                1,
                "The broker does not support consumer to filter message by SQL92",
            )
        assert running.peer().ask(11, pull_fields("T", 0, 0)).code == 0
    finally:
        running.stop()


def test_retries_are_judged_by_the_filter_of_their_topic(tmp_path):
    """With filterSupportRetry; official clients subscribe the retry topic with `*`."""
    running = RunningEngine(tmp_path, broker={"filter_support_retry": True})
    try:
        running.put("T", b"0")
        group = "G"
        retry = {"topic": "%RETRY%G", "subString": "*", "subVersion": 1, "expressionType": "TAG"}
        data = {"topic": "T", "subString": "colour = 'blue'", "subVersion": 5, "expressionType": "SQL92"}
        consumer = {
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [data, retry],
        }  # fmt: skip
        member = running.peer()
        beat = {"clientID": "c@1", "consumerDataSet": [consumer], "producerDataSet": []}
        assert member.ask(34, {}, json.dumps(beat).encode()).code == 0
        for number, (colour, origin) in enumerate([("red", "T"), ("blue", "T"), ("red", "Other")]):
            running.put("%RETRY%G", b"%d" % number, properties=f"colour\x01{colour}\x02RETRY_TOPIC\x01{origin}\x02")
        answer = ask_registered(member, group, "%RETRY%G", 0, version=1)
        assert bodies(answer) == [b"1", b"2"], "nothing is known of Other"
    finally:
        running.stop()


def test_the_table_survives_a_restart_as_apache_writes_it(tmp_path):
    running = RunningEngine(tmp_path)
    try:
        running.put("T", b"0")
        registered(running, "T", "colour = 'blue'", version=5)
        before = running.engine.broker.tables.filters.get("T", "G_T")
        running.restart()
        text = (tmp_path / "store" / "config" / "consumerFilter.json").read_text()
        after = running.engine.broker.tables.filters.get("T", "G_T")
        assert after.is_dead
        positions = list(bloom_of(20, 32).positions_of("G_T", "T"))
        assert json.loads(text) == {
            "filterDataByTopic": {
                "T": {
                    "groupFilterData": {
                        "G_T": {
                            "bloomFilterData": {"bitNum": 112, "bitPos": positions},
                            "bornTime": before.born_time,
                            "clientVersion": 5,
                            "consumerGroup": "G_T",
                            "dead": True,
                            "deadTime": after.dead_time,
                            "expression": "colour = 'blue'",
                            "expressionType": "SQL92",
                            "topic": "T",
                        }
                    },
                    "topic": "T",
                }
            }
        }
        colours(running, "T", "blue")
        group, member = registered(running, "T", "colour = 'blue'", version=5)
        assert not running.engine.broker.tables.filters.get("T", group).is_dead
        answer = ask_registered(member, group, "T", 1)
        assert (answer.code, bodies(answer)) == (0, [b"0"])
    finally:
        running.stop()


def test_heartbeats_full_of_expressions_hold_nobody_up(tmp_path, monkeypatch):
    """10,000 different ones, right and wrong, from a few connections: each is answered, none is compiled on the loop,
    and the kept ones are bounded."""
    compiled_by = Counter()
    compile_sql92 = sql_filter.compile_sql92

    def counted(text):
        compiled_by[threading.current_thread().name] += 1
        return compile_sql92(text)

    monkeypatch.setattr(sql_filter, "compile_sql92", counted)
    engine = start_engine(tmp_path)
    try:
        peers = [Peer(engine.broker_address) for _ in range(10)]
        other = Peer(engine.broker_address)
        for number, peer in enumerate(peers):
            subscriptions = [
                {
                    "topic": f"T{n}",
                    "subString": f"a = {number * 1000 + n}" + (" AND" if n % 4 else ""),
                    "subVersion": 1,
                    "expressionType": "SQL92",
                }
                for n in range(1000)
            ]
            consumer = {"groupName": f"g{number}", "subscriptionDataSet": subscriptions}
            body = json.dumps({"clientID": f"c{number}", "consumerDataSet": [consumer]}).encode()
            peer.send(34, {}, body)
        served = 0
        answers: list[int] = []
        while len(answers) < len(peers):
            assert other.ask(38, {"consumerGroup": "nobody"}).code == 1
            served += 1
            try:
                answers.append(peers[len(answers)].receive(0.001).code)
            except TimeoutError:
                continue
            if answers[-1] == 40:  # it has joined its group
                answers.pop()
        assert answers == [0] * len(peers)
        assert served > len(peers)
        assert set(compiled_by) == {"pool-pull-filter"}
        assert compiled_by["pool-pull-filter"] == 10_000, "each once"
        assert len(engine.broker.tables.filters.all()) == 2500, "what one address may have"
        for peer in [*peers, other]:
            peer.close()
    finally:
        engine.stop()


def batch_of(count, colour):
    return b"".join(encode_member(b"%d" % number, b"colour\x01%s\x02" % colour) for number in range(count))


def test_a_thousand_messages_for_many_held_pulls_do_not_hold_up_the_loop(tmp_path):
    """The pool looks at them; no pull is answered without a message, and all offsets move."""
    running = RunningEngine(tmp_path)
    try:
        running.put("T", b"0")
        store, polling = running.engine.broker.store, running.engine.broker.pull.long_polling
        waiting = [running.peer() for _ in range(50)]
        for number, peer in enumerate(waiting):
            fields = pull_fields(
                "T", 0, 1, sysFlag=6, suspendTimeoutMillis=30_000, consumerGroup=f"G{number}",
                expressionType="SQL92", subscription=f"colour = 'shade{number}'",
            )  # fmt: skip
            peer.send(11, fields)
        wait_for(lambda: polling.count == 50, "all are held")
        queue = store.find_queue("T", 0)
        held = polling.held_at(queue)
        before = store.settling.scanned
        assert running.peer().ask(320, send_fields("T", 0, "") | {"m": "true"}, batch_of(1000, b"red")).code == 0
        wait_for(lambda: {request.offset for request in held} == {1001}, "all have seen them")
        assert polling.count == 50
        assert store.settling.scanned - before <= pull_path._JUDGED_A_TICK + 16, "judged on the loop"
        running.put("T", b"mine", properties="colour\x01shade7\x02")
        assert bodies(waiting[7].receive()) == [b"mine"]
        assert polling.count == 49
    finally:
        running.stop()


def test_a_scan_that_finds_nothing_moves_on_and_holds_nobody_up(tmp_path):
    """Each pull looks through up to maxFilterMessageSize; others are served in between."""
    running = RunningEngine(tmp_path, store={"max_filter_message_size": 4000})
    try:
        peer, other = running.peer(), running.peer()
        for _ in range(20):
            assert peer.ask(320, send_fields("T", 0, "") | {"m": "true"}, batch_of(1000, b"red")).code == 0
        wait_in_files(running, "T", 20_000)
        offset, steps = 0, []
        judged_now = running.engine.broker.store.settling.scanned
        while offset < 20_000:
            fields = pull_fields("T", 0, offset, expressionType="SQL92", subscription="colour = 'blue'", sysFlag=6)
            peer.send(11, fields)
            assert other.ask(38, {"consumerGroup": "nobody"}).code == 1
            answer = peer.receive()
            assert answer.code == 20
            steps.append(numbers(answer)[0] - offset)
            offset += steps[-1]
        assert max(steps) <= 200
        assert min(steps) > 0
        assert running.engine.broker.store.settling.scanned == judged_now, "the pool did it"
    finally:
        running.stop()
