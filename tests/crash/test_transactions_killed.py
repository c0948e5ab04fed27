"""SIGKILL while transactions are sent and ended by many, and disks that fail: what was acknowledged holds, and every
committed message is there once."""

from __future__ import annotations

import errno
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from appliance.engine.protocol.message_id import decode_offset_id
from appliance.engine.protocol.properties import find_property
from tests.support.engine import Peer, read_queue, send_fields
from tests.support.engine_process import EngineProcess
from tests.support.faults import Faults
from tests.support.waiting import wait_for

TOPIC, GROUP = "Orders", "PG"
COMMIT, ROLL_BACK = 8, 12
ROUNDS = 3
STORE = {"mapped_file_size_commit_log": 1 << 20}
#: The broker does not check transactions within a test.
QUIET = {"transaction_time_out_ms": 3_600_000}


class Producer:
    """Sends halves and ends most of them, until its broker is gone. All of it by unique key."""

    def __init__(self, engine: EngineProcess, name: str) -> None:
        self.name = name
        self.peer = engine.peer()
        self.halves: dict[str, dict[str, str]] = {}
        #: Asked for; and answered.
        self.asked: dict[str, int] = {}
        self.done: dict[str, int] = {}

    def run(self) -> None:
        chance = random.Random(self.name)
        try:
            while True:
                key = f"{self.name}.{len(self.halves)}"
                self.halves[key] = self.half(key)
                decision = chance.choice((COMMIT, COMMIT, ROLL_BACK, 0))
                if decision:
                    self.asked[key] = decision
                    assert self.end(key, decision) == 0
                    self.done[key] = decision
        except (ConnectionError, TimeoutError, OSError):
            return

    def half(self, key: str, body: bytes = b"") -> dict[str, str]:
        text = f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02UNIQ_KEY\x01{key}\x02"
        answer = self.peer.ask(310, send_fields(TOPIC, 0, text, f=4), body or key.encode())
        assert answer.code == 0, answer
        fields = answer.ext_fields
        place = str(decode_offset_id(fields["msgId"])[2])
        return {"tranStateTableOffset": fields["queueOffset"], "commitLogOffset": place, "msgId": key}

    def end(self, key: str, decision: int) -> int:
        fields = self.halves[key] | {"producerGroup": GROUP, "commitOrRollback": str(decision)}
        return self.peer.ask(37, fields).code


def committed(engine: EngineProcess) -> Counter[str]:
    return Counter(
        find_property(record.properties, "UNIQ_KEY") or "" for record in read_queue(Peer(engine.broker), TOPIC)
    )


def _enough(producers: list[Producer]) -> bool:
    return sum(len(producer.done) for producer in producers) > 150


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_kill_between_any_two_steps(tmp_path: Path, flush: str) -> None:
    engine = EngineProcess(tmp_path / "data", broker=QUIET, store=STORE | {"flush_disk_type": flush})
    engine.start()
    halves: dict[str, dict[str, str]] = {}
    done: dict[str, int] = {}
    asked: dict[str, int] = {}
    try:
        for number in range(ROUNDS):
            producers = [Producer(engine, f"{number}.{index}") for index in range(3)]
            threads = [threading.Thread(target=producer.run) for producer in producers]
            for thread in threads:
                thread.start()
            wait_for(partial(_enough, producers), "some are ended")
            engine.kill()
            for thread in threads:
                thread.join(60)
            engine.start()
            for producer in producers:
                producer.peer.close()
                halves |= producer.halves
                asked |= producer.asked
                done |= producer.done
        found = committed(engine)
        assert max(found.values()) == 1
        for key, decision in done.items():
            assert found[key] == (decision == COMMIT), key
        assert not set(found) - {key for key, decision in asked.items() if decision == COMMIT}
        # Whatever is open still can be ended, once; what is not, not.
        last = Producer(engine, "last")
        last.halves = halves
        for key in halves:
            code = last.end(key, COMMIT)
            assert code == 0 or key in asked, key
            assert code == 1 or key not in done, key
            assert last.end(key, COMMIT) == 1
        found = committed(engine)
        assert max(found.values()) == 1
        assert set(found) >= {key for key in halves if asked.get(key) != ROLL_BACK}
        last.peer.close()
    finally:
        engine.kill()


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path)


@pytest.fixture
def engine(tmp_path: Path, faults: Faults) -> Iterator[EngineProcess]:
    store = STORE | {"flush_disk_type": "SYNC_FLUSH"}
    with EngineProcess(tmp_path / "data", environment=faults.environment, broker=QUIET, store=store) as engine:
        yield engine


def test_no_room_for_what_ends_them(engine: EngineProcess, faults: Faults) -> None:
    """A commit is refused and it stays open; one that is rolled back is acknowledged when it is written."""
    producer = Producer(engine, "p")
    body = b"x" * 200_000
    for key in ("a", "b", "c"):
        producer.halves[key] = producer.half(key, body)
    faults.arm("allocate", error=errno.ENOSPC, path="/commitlog/")
    codes = []
    for _ in range(8):  # until the file is full
        answer = producer.peer.ask(310, send_fields(TOPIC, 0, ""), body)
        codes.append(answer.code)
    assert codes[-1] == 14
    assert producer.end("a", COMMIT) == 14
    fields = producer.halves["b"] | {"producerGroup": GROUP, "commitOrRollback": str(ROLL_BACK)}
    filler = 0
    while producer.peer.ask(310, send_fields(TOPIC, 0, ""), b"f" * 100).code == 0:
        filler += 1
    producer.peer.send(37, fields)
    wait_for(lambda: "an op message is not taken" in engine.said(), "there is no room for it")
    time.sleep(0.5)
    assert engine.said().count("an op message is not taken") == 1, "said once"
    faults.disarm()
    assert producer.peer.receive().code == 0, "it is written now"
    assert producer.end("a", COMMIT) == 0
    engine.kill()
    engine.start()
    producer.peer = engine.peer()
    assert [producer.end(key, COMMIT) for key in ("a", "b", "c")] == [1, 1, 0]
    assert {key: count for key, count in committed(engine).items() if key in "abc"} == {"a": 1, "c": 1}


def test_a_log_that_breaks_among_them(engine: EngineProcess, faults: Faults) -> None:
    producer = Producer(engine, "p")
    for key in ("a", "b", "c", "d"):
        producer.halves[key] = producer.half(key)
    assert producer.end("a", COMMIT) == 0
    faults.arm("sync", error=errno.EIO, path="/commitlog/")
    assert producer.end("b", COMMIT) == 14
    assert producer.end("c", ROLL_BACK) == 14
    engine.kill()
    faults.disarm()
    engine.start()
    producer.peer = engine.peer()
    # Transactions that could not be synced may be there or not: none was acknowledged.
    codes = [producer.end(key, COMMIT) for key in ("a", "b", "c", "d")]
    assert (codes[0], codes[2:]) == (1, [0, 0])
    assert committed(engine) == Counter("abcd")


def test_a_topic_that_is_deleted_between(engine: EngineProcess) -> None:
    producer = Producer(engine, "p")
    producer.halves["a"] = producer.half("a")
    assert producer.peer.ask(215, {"topic": TOPIC}).code == 0
    assert producer.end("a", COMMIT) == 1
    engine.kill()
    engine.start()
    producer.peer = engine.peer()
    assert producer.end("a", COMMIT) == 1
    create = {
        "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    assert producer.peer.ask(17, create).code == 0
    assert producer.end("a", COMMIT) == 1, "it was sent to another topic of this name"
    assert committed(engine) == Counter()
