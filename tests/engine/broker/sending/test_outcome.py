"""The outcome of a send stays a value until its tick is published; then its receiver makes an answer of it."""

import threading

from appliance.engine.broker.processors.send import SendReply
from appliance.engine.broker.sending.fields import SendFields
from appliance.engine.protocol.codes import ResponseCode
from tests.support.engine import send_fields

PROPERTIES = "UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBA0000\x02"


class Waiting:
    """A receiver of outcomes without a socket."""

    def __init__(self):
        self.outcomes = []
        self.told = threading.Event()

    def put_ended(self, outcome):
        self.outcomes.append(outcome)
        self.told.set()


def put(engine, reply_to, topic="Values", body=b"x", **changes):
    fields = SendFields("PG", topic, "TBW102", 4, 0, 0, 1, 0, PROPERTIES, **changes)
    engine.loop.call_soon(lambda: engine.broker.sending.path.put(fields, 0, bytes(8), memoryview(body), reply_to))


def test_a_caller_without_a_connection_gets_the_outcome_as_a_value(engine):
    waiting = Waiting()
    put(engine, waiting)
    assert waiting.told.wait(60)
    [outcome] = waiting.outcomes
    assert (outcome.code, outcome.queue_id, outcome.queue_offset) == (0, 0, 0)
    assert outcome.unique_key == "7F0000016AB14E0E2F2A69208FBA0000"
    assert len(outcome.physical_offsets) == 1


def test_a_refusal_is_a_value_too_and_comes_at_once(engine):
    waiting = Waiting()
    put(engine, waiting, topic="bad/name")
    assert waiting.told.wait(60)
    [outcome] = waiting.outcomes
    assert (outcome.code, outcome.physical_offsets) == (ResponseCode.INVALID_PARAMETER, ())
    assert "illegal characters" in outcome.reason


def test_an_answer_that_cannot_be_made_costs_its_connection_and_no_other_answer(engine, peer):
    """Both sends belong to one tick."""
    assert peer.ask(310, send_fields("Values"), b"x").code == 0
    fine = Waiting()

    class Conn:
        born_host = bytes(8)
        failed = False

        def send(self, data):
            raise RuntimeError("cannot be sent")

        def fail(self):
            self.failed = True

    conn = Conn()

    def both():
        for reply_to in (SendReply(engine.broker.sending.answers, conn, 5), fine):
            fields = SendFields("PG", "Values", "TBW102", 4, 0, 0, 1, 0, PROPERTIES)
            engine.broker.sending.path.put(fields, 0, bytes(8), memoryview(b"x"), reply_to)

    engine.loop.call_soon(both)
    assert fine.told.wait(60)
    assert conn.failed
    assert fine.outcomes[0].code == 0
