"""A disk without room, or that fails, while messages come due, a replay runs and offsets are reset: nothing is lost, no
processor is kept busy, no log is flooded, and all goes on when there is room."""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.engine import read_queue, send_fields
from tests.support.engine_process import EngineProcess
from tests.support.faults import Faults
from tests.support.waiting import wait_for

TOPIC, COUNT = "Later", 40
BODY = b"x" * 30_000
BUSY_S = 2.0
_TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path)


@pytest.fixture
def engine(tmp_path: Path, faults: Faults) -> Iterator[EngineProcess]:
    small = {"mapped_file_size_commit_log": 1 << 20, "flush_disk_type": "SYNC_FLUSH"}
    with EngineProcess(tmp_path / "data", environment=faults.environment, store=small) as engine:
        yield engine


def delay(engine: EngineProcess, level: int, count: int = COUNT) -> None:
    peer = engine.peer()
    for number in range(count):
        fields = send_fields(TOPIC, 0, f"DELAY\x01{level}\x02UNIQ_KEY\x01{number}\x02")
        peer.send(310, fields, b"%05d" % number + BODY)
    # All in one go: on a busy disk the first ones would be due while the last are sent.
    assert {peer.receive().code for _ in range(count)} == {0}
    peer.close()


def arrived(engine: EngineProcess, topic: str = TOPIC) -> Counter[bytes]:
    return Counter(record.body[:5] for record in read_queue(engine.peer(), topic))


ALL = Counter(b"%05d" % number for number in range(COUNT))


def processor_s(engine: EngineProcess) -> float:
    fields = Path(f"/proc/{engine.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def stay_so(engine: EngineProcess) -> None:
    """For a while, in which the process rests and says little."""
    lines, used = engine.said().count("\n"), processor_s(engine)
    time.sleep(BUSY_S)
    assert processor_s(engine) - used < 0.25 * BUSY_S
    assert engine.said().count("\n") - lines < 20


def test_no_room_for_the_next_file_while_messages_come_due(engine: EngineProcess, faults: Faults) -> None:
    delay(engine, 2)  # in 5 s
    faults.arm("allocate", error=errno.ENOSPC, path="/commitlog/")
    wait_for(lambda: "delays: level 2 waits" in engine.said(), "they are due and there is no room")
    assert faults.hits("allocate")
    stay_so(engine)
    assert "given up" not in engine.said()
    assert arrived(engine).total() < COUNT
    faults.disarm()
    wait_for(lambda: arrived(engine) == ALL, "they come when there is room")


@pytest.mark.parametrize("call", ["sync", pytest.param("write", marks=pytest.mark.nightly)])
def test_a_progress_that_cannot_be_saved_holds_up_nobody(engine: EngineProcess, faults: Faults, call: str) -> None:
    faults.arm(call, error=errno.ENOSPC, path="/delayOffset.json")
    delay(engine, 1)
    wait_for(lambda: arrived(engine) == ALL, "they come")
    wait_for(lambda: faults.hits(call), "the progress is not saved")
    stay_so(engine)
    assert engine.said().count("the progress cannot be saved") == 1
    faults.disarm()
    time.sleep(1.5)
    assert engine.stop() == 0
    engine.start()
    time.sleep(1.0)
    assert arrived(engine) == ALL, "nothing comes again after a stop"


def test_a_log_that_broke_delivers_after_a_restart(engine: EngineProcess, faults: Faults) -> None:
    delay(engine, 2)
    faults.arm("sync", error=errno.EIO, path="/commitlog/")
    wait_for(lambda: "read-only from now on" in engine.said(), "the first delivery breaks the log")
    stay_so(engine)
    assert "given up" not in engine.said()
    engine.kill()
    faults.disarm()
    engine.start()
    wait_for(lambda: arrived(engine).keys() == ALL.keys(), "they come")
    # The batch whose sync failed may have reached the disk. No consumer saw it before.
    assert max(arrived(engine).values()) <= 2


NIGHTLY_SYNC = pytest.param("sync", "/replay/", marks=pytest.mark.nightly)


@pytest.mark.parametrize(("call", "path"), [("allocate", "/commitlog/"), ("write", "/replay/"), NIGHTLY_SYNC])
def test_a_replay_without_room_pauses_and_goes_on(engine: EngineProcess, faults: Faults, call: str, path: str) -> None:
    """It says why, and when it is resumed nothing is sent twice."""
    engine.do("letters", group="G", count=3000, filler="f" * 500)
    job = engine.do("replay_commands.start", group="G", rate=1000)["job"]["id"]
    wait_for(lambda: arrived(engine, "%RETRY%G"), "some are sent")
    faults.arm(call, error=errno.ENOSPC, path=path)
    wait_for(lambda: engine.do("replays.job", job=job)["state"] == "paused", "it is paused")
    view = engine.do("replays.job", job=job)
    assert "No space left" in str(view["why"]) or "room" in str(view["why"]), view
    stay_so(engine)
    faults.disarm()
    engine.do("replay_commands.resume", job=job)
    wait_for(lambda: engine.do("replays.job", job=job)["state"] == "done", "it ends")
    assert engine.do("replays.job", job=job)["replayed"] == 3000
    bodies = Counter(record.body for record in read_queue(engine.peer(), "%RETRY%G"))
    assert bodies == Counter(b"body %d" % number for number in range(3000))


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_reset_that_cannot_be_written_down_moves_nothing(engine: EngineProcess, faults: Faults, call: str) -> None:
    peer = engine.peer()
    for number in range(10):
        assert peer.ask(310, send_fields(TOPIC, 0), b"%d" % number).code == 0
    place = {"consumerGroup": "G", "topic": TOPIC, "queueId": 0}
    assert peer.ask(200, body=b'{"groupName":"G"}').code == 0
    assert peer.ask(15, place | {"commitOffset": 7}).code == 0
    fields = {"group": "G", "topic": TOPIC, "queueId": 0, "offset": 2, "timestamp": -1, "isForce": "true"}
    faults.arm(call, error=errno.ENOSPC, path="/offset-resets.journal")
    answer = peer.ask(222, fields)
    assert (answer.code, "No space left" in (answer.remark or "")) == (1, True)
    assert peer.ask(14, place).ext_fields["offset"] == "7"
    assert peer.ask(15, place | {"commitOffset": 8}).code == 0
    stay_so(engine)
    faults.disarm()
    engine.kill()
    engine.start()
    peer = engine.peer()
    assert peer.ask(222, fields).code == 0
    engine.kill()
    engine.start()
    assert engine.peer().ask(14, place).ext_fields["offset"] == "2", "a reset that was answered holds"
