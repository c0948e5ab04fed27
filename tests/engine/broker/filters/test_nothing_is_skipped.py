"""A consumer that filters by an expression gets exactly the messages that match, each once and in order: whenever they
are sent, however many a pull asks for, whether it is held meanwhile, and whichever thread evaluates the filter."""

import random

import pytest

from appliance.engine.broker.pulling import pull_path
from appliance.engine.filter.sql_filter import sql_filter
from appliance.engine.protocol.properties import decode_properties
from tests.support.batches import encode_member
from tests.support.directories import shared_directory
from tests.support.effort import effort
from tests.support.engine import RunningEngine, pull_fields, records, send_fields
from tests.support.waiting import wait_for

COLOURS = ("red", "blue", "green", "\u00fc", "")
LONG = " OR ".join(f"colour = 'shade{number}'" for number in range(60)) + " OR colour = 'blue' AND n > 3"
RARE = ("n = 7", "n = 8 AND colour = 'blue'", "n IN ('9')", "n = 11 AND " + LONG)
EXPRESSIONS = (
    "colour = 'blue'", "n >= 5 AND colour <> 'red'", "FALSE", "TRUE", "colour IS NULL", "n BETWEEN 3 AND 40",
    "colour CONTAINS 'e' OR n = 7", "n > colour", LONG,
    *RARE,
)  # fmt: skip


@pytest.fixture(scope="module")
def running(request):
    running = RunningEngine(shared_directory(request, "engine"), store={"max_filter_message_size": 400})
    yield running
    running.stop()


class Consumer:
    """Pulls one queue on a connection of its own, each time from the next offset of the last answer."""

    def __init__(self, running, topic, expression, chance):
        self.peer = running.peer()
        self.topic, self.expression, self.chance = topic, expression, chance
        self.offset, self.bodies, self.waits = 0, [], False

    def turn(self, wait=0.0):
        """Send a pull if none is under way, and take its answer. Return False if there was none yet."""
        if not self.waits:
            fields = pull_fields(
                self.topic, 0, self.offset, sysFlag=6, suspendTimeoutMillis=self.chance.choice((100, 1000, 5000)),
                expressionType="SQL92", subscription=self.expression,
                maxMsgNums=self.chance.choice((1, 2, 7, 32, 10_000)),
            )  # fmt: skip
            self.peer.send(11, fields)
            self.waits = True
        try:
            answer = self.peer.receive(wait or self.chance.choice((0.001, 0.01)))
        except TimeoutError:
            return False
        self.waits = False
        assert answer.code in (0, 19, 20, 21), answer
        following = int(answer.ext_fields["nextBeginOffset"])
        assert following >= self.offset
        if answer.code == 0:
            found = records(answer.body)
            assert [record.queue_offset for record in found] == sorted({record.queue_offset for record in found})
            assert self.offset <= found[0].queue_offset
            assert found[-1].queue_offset < following
            self.bodies += [record.body for record in found]
        self.offset = following
        return True


@pytest.mark.parametrize("seed", range(effort(1, 6, 60)))
def test_each_message_that_matches_comes_once_and_in_order(running, seed, monkeypatch):
    chance = random.Random(seed)
    monkeypatch.setattr(pull_path, "_JUDGED_A_TICK", chance.choice((0, 3, 64)))
    topic = f"T{seed}"
    sent = []
    running.put(topic, b"0")
    sent.append((b"0", ""))
    producer = running.peer()
    consumers = [Consumer(running, topic, expression, chance) for expression in EXPRESSIONS]
    for _ in range(40):
        count = chance.choice((0, 1, 1, 3, 40, 90))
        members = []
        for _ in range(count):
            colour = chance.choice(COLOURS)
            properties = (f"colour\x01{colour}\x02" if colour else "") + f"n\x01{chance.randrange(60)}\x02"
            if chance.random() < 0.03:
                properties += "x\x01" + "v" * 9000 + "\x02"
            sent.append((b"%d" % len(sent), properties))
            members.append(encode_member(sent[-1][0], properties.encode()))
        if members:
            assert producer.ask(320, send_fields(topic, 0, "") | {"m": "true"}, b"".join(members)).code == 0
        for consumer in chance.sample(consumers, 5):
            consumer.turn()
        if chance.random() < 0.6:  # so that they are held when the next ones come
            for consumer in (consumer for consumer in consumers if consumer.expression in RARE):
                while consumer.turn(wait=0.02):
                    pass
        if chance.random() < 0.1:
            queue = running.engine.broker.store.find_queue(topic, 0)
            end = queue.max_offset
            wait_for(lambda queue=queue, end=end: queue.tail_base >= end, "the entries are in a file")
    for consumer in consumers:
        while consumer.offset < len(sent):
            assert consumer.turn(wait=10), consumer.expression
        judge = sql_filter(consumer.expression)
        assert consumer.bodies == [body for body, text in sent if judge.matches(decode_properties(text))]
        consumer.peer.close()
