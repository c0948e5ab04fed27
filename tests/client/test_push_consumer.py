"""Push consumers against a real broker: each message is handled, over failures, joins, closes and kills."""

import enum
import json
import os
import signal
import threading
from collections import Counter

import pytest

from appliance.client import (
    Closed,
    CloseReport,
    InvalidOption,
    NoRoute,
    Reject,
    RequestRefused,
    Retry,
    Suspend,
    allocation,
)
from appliance.client.shells.threads import links_of
from tests.support.directories import shared_directory
from tests.support.ports import reserve_port
from tests.support.waiting import wait_for

pytest_plugins = ("appliance.pytest_rocketbox",)

#: A deadline long enough that only a hang misses it.
PATIENT = 60.0


@pytest.fixture(scope="module")
def quick(request):
    """A server whose first delays are a second."""
    from appliance.pytest_rocketbox import RocketBox  # pytest loads it as a plugin first

    directory = shared_directory(request, "quick")
    settings = directory / "settings.toml"
    settings.write_text('[store]\nmessageDelayLevel = "1s 1s 1s 1s 1s 1s"\n')
    server = RocketBox(directory, "-c", str(settings))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def own_server(tmp_path):
    """A server that keeps its ports over a restart."""
    from appliance.pytest_rocketbox import RocketBox

    port = reserve_port()
    (tmp_path / "box").mkdir()
    settings = tmp_path / "settings.toml"
    settings.write_text('[store]\nmessageDelayLevel = "1s 1s 1s 1s 1s 1s"\n')
    server = RocketBox(
        tmp_path / "box", "-c", str(settings), "--broker-port", str(port), "--namesrv-port", str(port + 2)
    )
    server.start()
    yield server
    server.kill()


@pytest.fixture
def client(quick):
    with quick.client(timeout=PATIENT) as client:
        yield client


@pytest.fixture
def send(client, rocketmq_topic):
    """Sends texts to the test's topic, before anything is consumed."""
    producer = client.producer()

    def send(*texts, **options):
        for one in [producer.submit(rocketmq_topic, text, **options) for text in texts]:
            one.result(PATIENT)

    return send


class Seen:
    """A handler that notes what it was given. hold: it waits for `go` before the end of each message that holds it."""

    def __init__(self, hold=lambda text: False):
        self.lock = threading.Lock()
        self.messages = []
        self.done = []
        self.go = threading.Event()
        self._hold = hold

    def __call__(self, message):
        with self.lock:
            self.messages.append(message)
        if self._hold(message.text):
            assert self.go.wait(PATIENT)
        with self.lock:
            self.done.append(message.text)

    def texts(self):
        with self.lock:
            return [message.text for message in self.messages]


def dead_letters(client, group, count):
    reader = client.reader()
    queues = wait_for(lambda: reader.queues(f"%DLQ%{group}"), "dead letters", not_yet=(NoRoute,))
    return wait_for(
        lambda: (
            len(found := [m for queue in queues for m in reader.pull(queue, 0, wait=0.0).messages]) >= count and found
        ),
        f"{count} dead letters",
    )


def committed(consumer):
    """The sum of the group's offsets at the broker."""
    offsets = [consumer._session.wait(consumer._core.committed(queue)) for queue in data_queues(consumer)]
    return sum(offset or 0 for offset in offsets)


def data_queues(consumer):
    return [queue for queue in consumer.assignment() if not queue.topic.startswith("%RETRY%")]


def test_members_share_queues_by_the_rule_they_are_given(quick, client, rocketmq_topic, rocketmq_group):
    client.producer().send(rocketmq_topic, "0")
    with quick.client(timeout=PATIENT) as other:
        members = [one.push_consumer(rocketmq_group, allocation=allocation.in_turns) for one in (client, other)]
        for one in members:
            one.subscribe(rocketmq_topic, handler=Seen())
            one.start()

        def ids():
            return sorted(sorted(queue.queue_id for queue in data_queues(one)) for one in members)

        wait_for(lambda: ids() == [[0, 2], [1, 3]], "every other queue for each")


def test_two_members_handle_every_message_once(quick, client, send, rocketmq_topic, rocketmq_group, monkeypatch):
    monkeypatch.setattr("appliance.client.push_consumer._COMMIT_S", 0.3)
    send(*map(str, range(40)))
    first, second = Seen(), Seen()
    one = client.push_consumer(rocketmq_group, start="first")
    one.subscribe(rocketmq_topic, handler=first)
    one.start()
    # A member that joins asks for offsets at once: what is not committed by then would come twice.
    wait_for(lambda: committed(one) == 40, "the first 40 are committed")
    with quick.client(timeout=PATIENT) as other:
        two = other.push_consumer(rocketmq_group, start="first")
        two.subscribe(rocketmq_topic, handler=second)
        two.start()
        wait_for(lambda: len(data_queues(one)) == len(data_queues(two)) == 2, "two queues for each")
        assert not set(one.assignment()) & set(two.assignment())
        send(*map(str, range(40, 140)))
        wait_for(lambda: len(first.texts() + second.texts()) >= 140, "all")
    assert len(second.texts()) == 50
    wait_for(lambda: len(data_queues(one)) == 4, "all queues again")
    send("last", "and last")
    wait_for(lambda: {"last", "and last"} <= set(first.texts()), "messages after the other has left")
    assert Counter(first.texts() + second.texts()) == Counter([*map(str, range(140)), "last", "and last"])


def test_a_failing_handler_gets_the_message_again_and_then_it_is_a_dead_letter(
    client, send, rocketmq_topic, rocketmq_group, caplog
):
    send("bad", "good")
    attempts, good = [], []
    consumer = client.push_consumer(rocketmq_group, start="first", max_attempts=3)

    @consumer.subscribe(rocketmq_topic)
    def handle(message):
        if message.text == "good":
            good.append(message)
            return
        attempts.append((message.topic, message.attempt, message.message_id))
        raise ZeroDivisionError

    consumer.start()
    (dead,) = dead_letters(client, rocketmq_group, 1)
    assert attempts == [(rocketmq_topic, number, dead.message_id) for number in (1, 2, 3)]
    assert dead.text == "bad"
    wait_for(lambda: good, "the good one")  # of another queue
    assert [message.text for message in good] == ["good"]
    assert consumer.close() == CloseReport()
    failures = [record for record in caplog.records if "a handler of" in record.message]
    assert len(failures) == 3
    assert all(record.exc_info for record in failures)


def test_a_rejected_message_is_a_dead_letter_at_once(client, send, rocketmq_topic, rocketmq_group, caplog):
    send("bad")
    seen = []
    consumer = client.push_consumer(rocketmq_group, start="first")

    @consumer.subscribe(rocketmq_topic)
    def handle(message):
        seen.append(message.attempt)
        raise Reject("no such customer")

    consumer.start()
    assert [message.text for message in dead_letters(client, rocketmq_group, 1)] == ["bad"]
    assert seen == [1]
    assert "no such customer" in caplog.text


def test_of_a_batch_only_what_is_named_comes_again(client, send, rocketmq_topic, rocketmq_group):
    send(*"0123456789", shard=1)
    seen = Counter()
    consumer = client.push_consumer(rocketmq_group, start="first", batch=10, workers=1)

    @consumer.subscribe(rocketmq_topic)
    def handle(messages):
        seen.update(message.text for message in messages)
        odd = [message for message in messages if message.attempt == 1 and int(message.text) % 2]
        if odd:
            raise Retry(level=1, messages=odd)

    consumer.start()
    wait_for(lambda: seen.total() == 15, "the odd ones again")
    assert seen == Counter("0123456789") + Counter("13579")


class Status(enum.Enum):
    CONSUME_SUCCESS = 0


def test_a_status_that_is_returned_is_no_success(client, send, rocketmq_topic, rocketmq_group, caplog):
    send("x")
    consumer = client.push_consumer(rocketmq_group, start="first", max_attempts=1)
    consumer.subscribe(rocketmq_topic, handler=lambda message: Status.CONSUME_SUCCESS)
    consumer.start()
    dead_letters(client, rocketmq_group, 1)
    assert "it is done when it returns" in caplog.text


def test_close_waits_for_handlers_and_nothing_is_lost_or_doubled(quick, send, rocketmq_topic, rocketmq_group):
    texts = [str(number) for number in range(60)]
    send(*texts)
    held = Seen(hold=lambda text: int(text) >= 20)
    with quick.client(timeout=PATIENT) as client:
        consumer = client.push_consumer(rocketmq_group, start="first", workers=4)
        consumer.subscribe(rocketmq_topic, handler=held)
        consumer.start()
        wait_for(lambda: len(held.texts()) - len(held.done) == 4, "all workers are busy")
        reports = []
        closing = threading.Thread(target=lambda: reports.append(client.close()))
        closing.start()
        wait_for(lambda: consumer.is_closed, "the close")
        held.go.set()
        closing.join(PATIENT)
    assert reports == [CloseReport()]
    assert len(held.done) == len(held.texts()) < 60
    rest = Seen()
    with quick.client(timeout=PATIENT) as client:
        consumer = client.push_consumer(rocketmq_group, start="first")
        consumer.subscribe(rocketmq_topic, handler=rest)
        consumer.start()
        wait_for(lambda: len(held.texts() + rest.texts()) >= 60, "the rest")
    assert Counter(held.texts() + rest.texts()) == Counter(texts)


def test_handlers_may_send_while_the_client_closes(quick, client, send, rocketmq_topic, rocketmq_group):
    send("x")
    begun, go = threading.Event(), threading.Event()
    answers = []
    other = quick.client(timeout=PATIENT)
    consumer = other.push_consumer(rocketmq_group, start="first")

    @consumer.subscribe(rocketmq_topic)
    def handle(message):
        begun.set()
        assert go.wait(PATIENT)
        answers.append(other.producer().send(rocketmq_topic + "-done", message.body))

    consumer.start()
    assert begun.wait(PATIENT)
    closing = threading.Thread(target=other.close)
    closing.start()
    wait_for(lambda: consumer.is_closed, "the close")
    go.set()
    closing.join(PATIENT)
    assert len(answers) == 1


def test_a_close_that_cannot_wait_says_which_thread_goes_on(client, send, rocketmq_topic, rocketmq_group):
    send("x")
    seen = Seen(hold=lambda text: True)
    consumer = client.push_consumer(rocketmq_group, start="first")
    consumer.subscribe(rocketmq_topic, handler=seen)
    consumer.start()
    wait_for(seen.texts, "the message")
    report = consumer.close(timeout=0.0)
    seen.go.set()
    assert [name.startswith(f"rocketbox-{rocketmq_group}") for name in report.still_running] == [True]
    assert consumer.close() is report
    again = Seen()
    consumer = client.push_consumer(rocketmq_group, start="first")
    consumer.subscribe(rocketmq_topic, handler=again)
    consumer.start()
    wait_for(lambda: again.texts() == ["x"], "it comes again")


def test_a_close_does_not_wait_for_ever_for_another_one(rocketmq_topic, rocketmq_group, quick):
    with quick.client(timeout=PATIENT) as client:
        consumer = client.push_consumer(rocketmq_group, start="first")
        consumer.subscribe(rocketmq_topic, handler=lambda message: None)
        consumer.start()
        client._session.timeout = 0.2
        consumer._leaving.acquire()  # as a close with a far deadline does
        reports = []
        threading.Thread(target=lambda: reports.append(consumer.close(timeout=0.0)), daemon=True).start()
        wait_for(lambda: reports, "the end of the second close")
        assert reports == [CloseReport(0, len(consumer._core.held))]
        consumer._leaving.release()
        consumer.close()
        assert consumer._core.is_closed


def test_a_handler_may_close_its_consumer(client, send, rocketmq_topic, rocketmq_group):
    send("x")
    consumer = client.push_consumer(rocketmq_group, start="first")
    reports = []
    consumer.subscribe(rocketmq_topic, handler=lambda message: reports.append(consumer.close(10 * PATIENT)))
    consumer.start()
    wait_for(lambda: reports, "its end")
    assert len(reports[0].still_running) == 1  # this handler
    with pytest.raises(Closed, match="make a new one"):
        consumer.start()


@pytest.mark.parametrize("by", ["a signal", "a close"])
def test_run_ends_and_puts_handlers_back(client, send, rocketmq_topic, rocketmq_group, by):
    send("x")
    consumer = client.push_consumer(rocketmq_group, start="first")
    closing = threading.Thread(target=consumer.close)

    @consumer.subscribe(rocketmq_topic)
    def handle(message):
        if by == "a close":
            closing.start()
        else:
            os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        assert consumer.run(signals=(signal.SIGUSR1,)) == CloseReport()
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_tags_and_conditions_choose(client, send, rocketmq_topic, rocketmq_group):
    send("paid", tags="paid", properties={"region": "EU"})
    send("open", tags="open", properties={"region": "US"})
    send("refunded", tags="refunded", properties={"region": "US"})
    by_tags, by_sql = Seen(), Seen()
    tagged = client.push_consumer(rocketmq_group, start="first")
    tagged.subscribe(rocketmq_topic, tags="paid || refunded", handler=by_tags)
    tagged.start()
    chosen = client.push_consumer(rocketmq_group + "-sql", start="first")
    chosen.subscribe(rocketmq_topic, sql="region = 'US'", handler=by_sql)
    chosen.start()
    wait_for(lambda: sorted(by_tags.texts()) == ["paid", "refunded"], "two by tags")
    wait_for(lambda: sorted(by_sql.texts()) == ["open", "refunded"], "two by the condition")


def test_a_condition_that_is_none_is_refused_at_the_start(client, send, rocketmq_topic, rocketmq_group):
    send("x")
    consumer = client.push_consumer(rocketmq_group)
    consumer.subscribe(rocketmq_topic, sql="region = = 'US'", handler=print)
    with pytest.raises(RequestRefused, match="the condition"):
        consumer.start()


def test_a_paused_consumer_fetches_nothing(client, send, rocketmq_topic, rocketmq_group):
    seen = Seen()
    consumer = client.push_consumer(rocketmq_group, start="first")
    consumer.subscribe(rocketmq_topic, handler=seen)
    consumer.pause()
    send("x")
    consumer.start()
    wait_for(lambda: not any(held.is_pulling for held in consumer._core.held.values()), "its loops rest")
    consumer.resume()
    wait_for(lambda: seen.texts() == ["x"], "the message")


@pytest.mark.parametrize("ordered", [False, True])
def test_a_killed_broker_costs_no_message(own_server, rocketmq_topic, rocketmq_group, ordered):
    seen = Counter()
    with own_server.client(timeout=PATIENT) as client:
        producer = client.producer()
        consumer = client.push_consumer(rocketmq_group, start="first", ordered=ordered)
        broken, dead = threading.Event(), threading.Event()

        @consumer.subscribe(rocketmq_topic)
        def handle(message):
            seen[message.text] += 1
            if message.text == "fails" and not broken.is_set():
                assert dead.wait(PATIENT)
                broken.set()
                raise ConnectionError("the broker is away by now")

        for text in ("0", "fails", "1"):
            producer.send(rocketmq_topic, text, shard=1)
        consumer.start()
        wait_for(lambda: seen["fails"], "the message that fails")
        own_server.kill()
        wait_for(lambda: not links_of(client._session.shell), "the client sees it")
        dead.set()
        wait_for(broken.is_set, "the failure")
        own_server.start()
        producer.send(rocketmq_topic, "2", shard=1)
        wait_for(lambda: seen["fails"] > 1 and seen["1"] and seen["2"], "all messages")
        assert consumer.close() == CloseReport()


# --- in order


def test_an_ordered_consumer_keeps_the_order_of_each_shard(client, send, rocketmq_topic, rocketmq_group):
    for number in range(30):
        send(f"{number % 3}:{number}", shard=number % 3)
    seen, failed = [], set()
    lock = threading.Lock()
    consumer = client.push_consumer(rocketmq_group, start="first", ordered=True)

    @consumer.subscribe(rocketmq_topic)
    def handle(message):
        with lock:
            if int(message.text[2:]) % 7 == 0 and message.text not in failed:
                failed.add(message.text)
                raise Suspend(0.01)
            seen.append(message.text)

    consumer.start()
    wait_for(lambda: len(seen) == 30, "all")
    for shard in range(3):
        mine = [int(text[2:]) for text in seen if text.startswith(f"{shard}:")]
        assert mine == sorted(mine)
    assert len(failed) == 5


def test_an_ordered_queue_goes_over_behind_the_handler_that_works_on_it(
    quick, client, send, rocketmq_topic, rocketmq_group
):
    for shard in range(4):
        send(f"{shard} first", f"{shard} then", shard=shard)
    first = Seen(hold=lambda text: text.endswith("first"))
    one = client.push_consumer(rocketmq_group, start="first", ordered=True)
    one.subscribe(rocketmq_topic, handler=first)
    one.start()
    wait_for(lambda: len(first.texts()) == 4, "a message of each queue")
    with quick.client(timeout=PATIENT) as other:
        second = Seen()
        two = other.push_consumer(rocketmq_group, start="first", ordered=True)
        two.subscribe(rocketmq_topic, handler=second)
        two.start()
        wait_for(lambda: len(data_queues(one)) == 2, "the first gives two queues up")
        assert not data_queues(two)
        first.go.set()
        wait_for(lambda: len(first.done + second.done) == 8, "all")
        assert len(data_queues(two)) == 2
    assert Counter(first.texts() + second.texts()) == Counter(
        f"{shard} {what}" for shard in range(4) for what in ("first", "then")
    )
    assert all(text.endswith("then") for text in second.texts())


def test_an_ordered_message_that_fails_for_good_lets_the_queue_go_on(client, send, rocketmq_topic, rocketmq_group):
    send("bad", "good", shard=1)
    seen = []
    consumer = client.push_consumer(rocketmq_group, start="first", ordered=True, max_attempts=2)

    @consumer.subscribe(rocketmq_topic)
    def handle(message):
        seen.append((message.text, message.attempt))
        if message.text == "bad":
            raise Retry(after=0.01)

    consumer.start()
    assert [message.text for message in dead_letters(client, rocketmq_group, 1)] == ["bad"]
    wait_for(lambda: len(seen) == 3, "the next message")
    assert seen == [("bad", 1), ("bad", 2), ("good", 1)]


# --- broadcast


@pytest.fixture
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / ".rocketmq_offsets"


def test_everybody_gets_a_broadcast_and_goes_on_behind_it(quick, send, home, rocketmq_topic, rocketmq_group):
    send(*map(str, range(8)))
    for texts, more in (([str(number) for number in range(8)], "8"), (["8"], "9")):
        found = {name: Seen() for name in ("a", "b")}
        clients = [quick.client(timeout=PATIENT, instance_name=name, client_ip="10.0.0.1") for name in found]
        for client, seen in zip(clients, found.values(), strict=True):
            consumer = client.push_consumer(rocketmq_group, start="first", broadcast=True)
            consumer.subscribe(rocketmq_topic, handler=seen)
            consumer.start()
        for seen in found.values():
            wait_for(lambda seen=seen, texts=texts: sorted(seen.texts()) == texts, "all for everybody")
        assert [client.close() for client in clients] == [CloseReport()] * 2
        send(more)
    assert {path.relative_to(home).as_posix() for path in home.rglob("offsets.json")} == {
        f"10.0.0.1@{name}/{rocketmq_group}/offsets.json" for name in ("a", "b")
    }


def test_a_broadcast_that_fails_does_not_come_again(quick, send, home, rocketmq_topic, rocketmq_group):
    send("bad", "good", shard=1)
    seen = []
    with quick.client(timeout=PATIENT) as client:
        consumer = client.push_consumer(rocketmq_group, start="first", broadcast=True, workers=1)

        @consumer.subscribe(rocketmq_topic)
        def handle(message):
            seen.append(message.text)
            if message.text == "bad":
                raise ValueError

        consumer.start()
        wait_for(lambda: seen == ["bad", "good"], "both")
    (file,) = home.rglob("offsets.json")
    from appliance.engine.fastjson import loads

    table = loads(file.read_text())["offsetTable"]
    assert {json.loads(key)["topic"]: offset for key, offset in table.items() if offset} == {rocketmq_topic: 2}


def test_offsets_that_cannot_be_read_are_not_begun_anew_in_silence(home):
    from appliance.client import BadAnswer
    from appliance.client.local_offsets import LocalOffsets
    from appliance.client.message import MessageQueue

    queue = MessageQueue("T", "a", 0)
    offsets = LocalOffsets("10.0.0.1@DEFAULT", "g")
    offsets.load()
    assert offsets.read(queue) is None
    assert offsets.save({queue: 7}) is None
    assert offsets.save({MessageQueue("T", "a", 1): 8}) is None
    (file,) = home.rglob("offsets.json")
    for torn in (b"{", b"", b"\xff\x00"):
        file.write_bytes(torn)
        offsets.load()
        assert offsets.read(queue) == 7
    file.with_suffix(".json.bak").write_text("{")
    with pytest.raises(BadAnswer, match="Remove it"):
        offsets.load()


# --- wrong calls


@pytest.mark.parametrize(
    "options",
    [{"workers": 0}, {"batch": 1025}, {"max_attempts": 0}, {"handler_timeout": 0}, {"start": "middle"},
     {"cache_messages": 0}, {"cache_bytes": 0}],
)  # fmt: skip
def test_a_wrong_option_is_refused(client, options):
    with pytest.raises(InvalidOption):
        client.push_consumer("g", **options)


async def coroutine(message):
    """No plain function."""


class Later:
    """No plain function either."""

    async def __call__(self, message):
        """Never done."""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("a.b", "*", print), "no topic"),
        (("T", "a || ", print), "Tags are"),
        (("T", "*", coroutine), "plain function"),
        (("T", "*", Later()), "plain function"),
        (("T", "*", 7), "plain function"),
    ],
)
def test_a_wrong_subscription_is_refused(client, rocketmq_group, arguments, text):
    consumer = client.push_consumer(rocketmq_group)
    topic, tags, handler = arguments
    with pytest.raises(InvalidOption, match=text):
        consumer.subscribe(topic, tags, handler=handler)
    with pytest.raises(InvalidOption, match="Tags are"):
        consumer.subscribe("T", "paid", sql="a > 1", handler=print)
    with pytest.raises(InvalidOption, match="subscribe"):
        consumer.start()
    with pytest.raises(InvalidOption, match="already"):
        client.pull_consumer(rocketmq_group)
    consumer.close()
    client.pull_consumer(rocketmq_group).close()


@pytest.mark.parametrize(
    ("tags", "text"),
    [
        (print, r"write subscribe\(topic, handler=print\)"),
        (lambda message: None, r"write subscribe\(topic, handler=\.\.\.\)"),
        (["paid"], "Tags are one text"),
    ],
)
def test_what_is_no_tags_is_refused_at_once(client, rocketmq_group, tags, text):
    consumer = client.push_consumer(rocketmq_group)
    with pytest.raises(InvalidOption, match=text):
        consumer.subscribe("T", tags)
    consumer.close()


def test_a_consumer_starts_beside_a_heartbeat_that_is_longer_than_brokers_read(client, send, rocketmq_topic):
    """It is taken in parts, which the broker registers in slices: until then it takes no other of the connection."""
    send("x")
    session, noted = client._session, []
    core = session.core
    core._note = noted.append
    core.producers |= {f"{'n' * 200}-{number}" for number in range(1500)}
    session.shell.start(core.beat_all())
    consumer = client.push_consumer(f"{rocketmq_topic}-group")
    consumer.subscribe(rocketmq_topic, handler=lambda message: None)
    consumer.start()
    assert any(queue.topic == rocketmq_topic for queue in consumer.assignment()), "a member when its start has ended"
    session.wait(core.beat_all())
    assert not noted
