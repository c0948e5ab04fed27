"""The load generator against a scripted broker: its requests, its counts, and the errors that it must not overlook."""

from __future__ import annotations

import itertools
import json
import os
import struct
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from bench.build import build
from tests.bench.responder import Request, Responder, answer, message_id, record
from tests.support.waiting import wait_for

SEND, BATCH, PULL, HEARTBEAT, MAX_OFFSET, MIN_OFFSET, END = 310, 320, 11, 34, 30, 31, 37


@pytest.fixture(scope="module")
def loadgen() -> Path:
    return build("loadgen", ("-O2", "-Wall", "-Wextra", "-Werror"))


def run(loadgen: Path, responder: Responder, mode: str, *options: object) -> tuple[int, dict[str, Any]]:
    """Run the generator once; return (exit status, result). The responder must have understood every request."""
    command = [str(loadgen), mode, "--broker", responder.address, *map(str, options)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert responder.failure is None, responder.failure
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def properties(text: str) -> dict[str, str]:
    assert text.endswith("\x02")
    return dict(entry.split("\x01") for entry in text[:-1].split("\x02"))


class Log:
    """Assigns queue offsets as a broker does."""

    def __init__(self) -> None:
        self.next: defaultdict[int, int] = defaultdict(int)

    def take(self, queue_id: int, count: int = 1) -> int:
        first = self.next[queue_id]
        self.next[queue_id] += count
        return first


def acknowledge(log: Log, request: Request, count: int = 1) -> bytes:
    queue_id = int(request.fields["e"])
    ids = ",".join(message_id(i) for i in range(count))
    return answer(
        request, msgId=ids, queueId=queue_id, queueOffset=log.take(queue_id, count), MSG_REGION="DefaultRegion"
    )


def inner_messages(body: bytes) -> list[tuple[bytes, dict[str, str]]]:
    found = []
    while body:
        size, magic, crc, flag, length = struct.unpack_from(">iiiii", body)
        assert (magic, crc, flag) == (0, 0, 0)
        (properties_length,) = struct.unpack_from(">h", body, 20 + length)
        text = body[22 + length : 22 + length + properties_length].decode()
        assert size == 22 + length + properties_length
        found.append((body[20 : 20 + length], properties(text)))
        body = body[size:]
    return found


# ---------------------------------------------------------------- programs


def test_the_calibration_server_builds_and_answers_the_generator(loadgen: Path) -> None:
    program = build("calibrate", ("-O2", "-Wall", "-Wextra", "-Werror"))
    with subprocess.Popen([program, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = json.loads(server.stdout.readline())["port"]

        def load(mode: str, *options: str) -> int:
            command = [str(loadgen), mode, "--broker", f"127.0.0.1:{port}", *options]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stdout
            return int(json.loads(done.stdout)["all_messages"])

        assert load("batch", "--batch", "40", "--queues", "3", "--messages", "1200") == 1200
        assert load("pull", "--queues", "3", "--connections", "3", "--messages", "90", "--verify") > 2000
        assert load("pull", "--queues", "3", "--connections", "3", "--messages", "90", "--discard") > 2000
        for mode in ("send", "ping"):
            assert load(mode, "--connections", "3", "--messages", "300") == 300
        assert load("latency", "--queues", "1", "--heartbeat", "--seconds", "0.3", "--warm-up", "0.1") > 50
        server.stdin.close()


def test_the_disk_calibration_reports_a_rate(tmp_path: Path) -> None:
    command = [str(build("calibrate")), "sync", "--dir", str(tmp_path), "--seconds", "0.2"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert found["rate"] > 0
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- sends


def test_sends_carry_what_the_java_client_sends(loadgen: Path) -> None:
    log, begin = Log(), int(time.time())
    with Responder(lambda request: [acknowledge(log, request)]) as responder:
        options = ("--topic", "Orders", "--group", "PG", "--queues", 4, "--connections", 2, "--inflight", 3)
        status, result = run(loadgen, responder, "send", *options, "--messages", 200, "--body", 100, "--keys", "k1 k2")
    assert (status, result["errors"], result["all_messages"], result["offset_gaps"]) == (0, 0, 200, 0)
    assert len(responder.requests) == 200
    assert len({request.connection for request in responder.requests}) == 2
    unique = set()
    for request in responder.requests:
        assert request.code == SEND
        fields = dict(request.fields)
        found = properties(fields.pop("i"))
        unique.add(found.pop("UNIQ_KEY"))
        assert found == {"KEYS": "k1 k2", "WAIT": "true", "TAGS": "TagA"}
        assert begin <= int(fields.pop("g")) / 1000 <= time.time()
        assert fields.pop("e") in {"0", "1", "2", "3"}
        fixed = {"a": "PG", "b": "Orders", "c": "TBW102", "d": "4", "f": "0", "h": "0", "j": "0", "k": "false"}
        assert fields == fixed | {"m": "false", "n": "broker-a"}
        assert len(request.body) == 100
    assert len(unique) == 200
    assert {len(key) for key in unique} == {32}


@pytest.mark.parametrize("left_open", [False, True])
def test_each_half_message_is_committed_by_what_its_answer_said(loadgen: Path, left_open: bool) -> None:
    halves: dict[str, tuple[int, int]] = {}

    def handle(request: Request) -> list[bytes]:
        if request.code != SEND:
            return []
        offset = len(halves)
        halves[properties(request.fields["i"])["UNIQ_KEY"]] = (offset, offset * 1000 + 0xABC)
        where = {"msgId": message_id(offset * 1000 + 0xABC), "queueId": request.fields["e"], "queueOffset": offset}
        return [answer(request, **where)]

    with Responder(handle) as responder:
        options = ("--topic", "Orders", "--group", "PG", "--queues", 4, "--connections", 3, "--messages", 60)
        status, result = run(loadgen, responder, "transaction", *options, *(("--open",) if left_open else ()))
        wanted = 0 if left_open else 60
        wait_for(lambda: sum(one.code == END for one in responder.requests) == wanted, "the commits")
    assert (status, result["errors"], result["all_messages"], result["offset_gaps"]) == (0, 0, 60, 0)
    sends = [request for request in responder.requests if request.code == SEND]
    for request in sends:
        found = properties(request.fields["i"])
        assert (request.fields["f"], found["TRAN_MSG"], found["PGROUP"]) == ("4", "true", "PG")
    assert {request.fields["e"] for request in sends} == {"0", "1", "2", "3"}
    ended = set()
    for request in responder.requests:
        if request.code == END:
            fields = dict(request.fields)
            key = fields.pop("msgId")
            ended.add(key)
            assert halves[key] == (int(fields.pop("tranStateTableOffset")), int(fields.pop("commitLogOffset")))
            assert fields == {
                "producerGroup": "PG", "commitOrRollback": "8", "fromTransactionCheck": "false", "transactionId": key,
                "topic": "Orders", "bname": "broker-a",
            }  # fmt: skip
    assert len(ended) == wanted


def test_no_more_requests_are_outstanding_than_asked_for(loadgen: Path) -> None:
    log, held = Log(), []

    def hold_six(request: Request) -> list[bytes]:
        held.append(request)
        if len(held) < 6:
            return []
        frames = [acknowledge(log, waiting) for waiting in held]
        held.clear()
        return frames

    # 1 connection x 6: a seventh request would leave one waiting for ever, fewer than six would never be answered.
    with Responder(hold_six) as responder:
        status, result = run(loadgen, responder, "send", "--inflight", 6, "--messages", 60)
    assert (status, result["all_messages"]) == (0, 60)


def test_answers_may_come_in_any_order_and_in_pieces(loadgen: Path) -> None:
    log, held = Log(), []

    def backwards_in_pieces(request: Request) -> list[bytes]:
        held.append(request)
        if len(held) < 4:
            return []
        data = b"".join(acknowledge(log, waiting) for waiting in reversed(held))
        held.clear()
        return [data[i : i + 37] for i in range(0, len(data), 37)]

    with Responder(backwards_in_pieces) as responder:
        status, result = run(loadgen, responder, "send", "--inflight", 4, "--messages", 80)
    assert (status, result["errors"], result["all_messages"]) == (0, 0, 80)


def test_latency_is_the_time_an_answer_took(loadgen: Path) -> None:
    log, number = Log(), itertools.count()

    def slow(request: Request) -> list[bytes]:
        time.sleep(0.1 if next(number) % 5 == 4 else 0.01)
        return [acknowledge(log, request)]

    with Responder(slow) as responder:
        _, result = run(loadgen, responder, "send", "--messages", 20)
    latency = result["latency_us"]
    assert 10_000 <= latency["p50"] < 50_000
    assert 99_000 <= latency["p90"] <= latency["p99"] <= latency["p99.9"] <= latency["max"] < 200_000
    assert result["rate"] == pytest.approx(20 / result["seconds"], rel=0.01)
    assert 0.5 <= result["seconds"] < 1.5


def test_a_batch_holds_whole_messages_with_keys_of_their_own(loadgen: Path) -> None:
    log = Log()
    with Responder(lambda request: [acknowledge(log, request, 5)]) as responder:
        status, result = run(loadgen, responder, "batch", "--batch", 5, "--messages", 50, "--body", 30)
    assert (status, result["errors"], result["all_messages"], len(responder.requests)) == (0, 0, 50, 10)
    unique = set()
    for request in responder.requests:
        assert (request.code, request.fields["m"]) == (BATCH, "true")
        assert set(properties(request.fields["i"])) == {"UNIQ_KEY", "WAIT"}
        for body, found in inner_messages(request.body):
            assert len(body) == 30
            assert (found["WAIT"], found["TAGS"]) == ("true", "TagA")
            unique.add(found["UNIQ_KEY"])
    assert len(unique) == 50


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda request, good: [answer(request, 14, remark="no space")], "bad_code"),
        (lambda request, good: [answer(request, queueId=request.fields["e"], queueOffset=0)], "bad_answer"),
        (lambda request, good: [good.replace(b"7F0", b"7G0")], "bad_answer"),
        (lambda request, good: [good.replace(b'"queueOffset":"20"', b'"queueOffset":"-2"')], "bad_answer"),
        (lambda request, good: [good.replace(b'"queueOffset":"20"', b'"queueOffset":"2x"')], "closed"),
        (lambda request, good: [good.replace(b'"queueOffset":"20"', b'"queueOffset":2000')], "gap"),
        (lambda request, good: [good.replace(b'"flag":1', b'"flag";1')], "closed"),
        (lambda request, good: [good, good], "unknown_opaque"),
        (lambda request, good: [good[:8] + b"[" + good[9:]], "closed"),
        (lambda request, good: [b"\x7f" + good[1:]], "closed"),
    ],
    ids=[
        "code",
        "no-msgId",
        "msgId-not-hex",
        "negative-offset",
        "no-number",
        "hole",
        "no-colon",
        "twice",
        "not-json",
        "huge",
    ],
)
def test_a_wrong_answer_is_an_error(loadgen: Path, spoil: Any, kind: str) -> None:
    log, number = Log(), itertools.count()

    def spoil_one(request: Request) -> list[bytes]:
        good = acknowledge(log, request)
        # The 21st, whose offset 20 has two digits, so that one can become a sign.
        return spoil(request, good) if next(number) == 20 else [good]

    with Responder(spoil_one) as responder:
        status, result = run(loadgen, responder, "send", "--queues", 1, "--connections", 1, "--messages", 40)
    assert status == 1
    assert result["errors"] >= 1
    assert result["error_kinds"].get(kind), result
    if kind == "bad_code":
        assert result["first_error"] == "code 14: no space"


def test_acknowledged_offsets_with_a_hole_are_an_error(loadgen: Path) -> None:
    log, number = Log(), itertools.count()

    def skip_one(request: Request) -> list[bytes]:
        if next(number) == 10:
            log.take(int(request.fields["e"]))
        return [acknowledge(log, request)]

    with Responder(skip_one) as responder:
        status, result = run(loadgen, responder, "send", "--queues", 2, "--messages", 40)
    assert (status, result["error_kinds"], result["offset_gaps"]) == (1, {"gap": 1}, 1)


def test_a_request_nobody_answers_is_an_error(loadgen: Path) -> None:
    def never(request: Request) -> list[bytes]:
        return []

    with Responder(never) as responder:
        options = ("--inflight", 2, "--seconds", 0.1, "--warm-up", 0)
        status, result = run(loadgen, responder, "send", *options)
    assert (status, result["error_kinds"]) == (1, {"unanswered": 2})


def test_requests_of_the_broker_are_not_taken_for_answers(loadgen: Path) -> None:
    log = Log()

    def notify(request: Request) -> list[bytes]:
        good = acknowledge(log, request)
        return [good.replace(b'"flag":1', b'"flag":2'), good]

    with Responder(notify) as responder:
        status, result = run(loadgen, responder, "send", "--messages", 20)
    assert (status, result["errors"], result["all_messages"]) == (0, 0, 20)


def test_ping_asks_for_the_minimum_offset(loadgen: Path) -> None:
    with Responder(lambda request: [answer(request, offset=0)]) as responder:
        status, _ = run(loadgen, responder, "ping", "--messages", 20)
    assert status == 0
    assert {request.code for request in responder.requests} == {MIN_OFFSET}


# ---------------------------------------------------------------- pulls


def pull_from(queue: list[bytes], request: Request) -> bytes:
    """Return the answer of a broker whose queue holds `queue`, whole records, from offset 100 on."""
    first, after = 100, 100 + len(queue)
    offset, wanted = int(request.fields["queueOffset"]), int(request.fields["maxMsgNums"])
    offsets = {"minOffset": first, "maxOffset": after, "suggestWhichBrokerId": 0}
    if offset < first:
        return answer(request, 19, nextBeginOffset=first, **offsets)
    taken = queue[offset - first : offset - first + wanted]
    return answer(request, 0, b"".join(taken), "FOUND", nextBeginOffset=offset + len(taken), **offsets)


def test_a_pull_walks_its_queue_and_begins_again(loadgen: Path) -> None:
    queue = [record(100 + i, b"body %d" % i) for i in range(50)]
    with Responder(lambda request: [pull_from(queue, request)]) as responder:
        options = ("--connections", 2, "--queues", 2, "--messages", 40, "--group", "CG", "--verify")
        status, result = run(loadgen, responder, "pull", *options)
    # 32 + 18 messages a walk, each begun by the pull that learns the minimum offset or by wrapping around.
    assert (status, result["errors"]) == (0, 0), result
    assert result["wraps"] >= 19
    offsets = [int(request.fields["queueOffset"]) for request in responder.requests]
    assert result["all_messages"] == sum(len(queue[offset - 100 :][:32]) for offset in offsets if offset >= 100)
    for request in responder.requests:
        assert request.code == PULL
        assert request.fields["sysFlag"] == "4"
        assert (request.fields["subscription"], request.fields["expressionType"]) == ("*", "TAG")
        assert (request.fields["consumerGroup"], request.fields["maxMsgNums"]) == ("CG", "32")
    assert {request.fields["queueId"] for request in responder.requests} == {"0", "1"}


@pytest.mark.parametrize(
    ("spoil", "options"),
    [
        (lambda queue: [*queue[:20], queue[21], queue[20], *queue[22:]], ()),
        (lambda queue: [*queue[:20], queue[20][:-3], *queue[21:]], ()),
        (lambda queue: [*queue[:20], queue[20].replace(b"body", b"b0dy"), *queue[21:]], ("--verify",)),
    ],
    ids=["order", "cut", "altered"],
)
def test_a_pull_with_other_records_is_an_error(loadgen: Path, spoil: Any, options: tuple[str, ...]) -> None:
    queue = spoil([record(100 + i, b"body %d" % i) for i in range(50)])
    with Responder(lambda request: [pull_from(queue, request)]) as responder:
        status, result = run(loadgen, responder, "pull", "--queues", 1, "--messages", 5, *options)
    assert status == 1
    assert set(result["error_kinds"]) == {"bad_record"}


def test_a_pull_whose_bodies_are_dropped_walks_the_same_way(loadgen: Path) -> None:
    queue = [record(100 + i, b"body %3d" % i + b"x" * 40_000) for i in range(50)]
    with Responder(lambda request: [pull_from(queue, request)]) as responder:
        options = ("--connections", 2, "--inflight", 2, "--queues", 3, "--messages", 40, "--max", 7, "--discard")
        status, result = run(loadgen, responder, "pull", *options)
    assert (status, result["errors"]) == (0, 0), result
    # All but the first with records of each connection, the last being four that learn the minimum offset.
    assert result["requests"] - 12 <= result["discarded"] < result["requests"]
    offsets = [int(request.fields["queueOffset"]) for request in responder.requests]
    assert result["all_messages"] == sum(len(queue[offset - 100 :][:7]) for offset in offsets if offset >= 100)
    assert result["bytes_rate"] / result["rate"] > 40_000, "dropped bytes count, too"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda good: good.replace(b'"nextBeginOffset":"114"', b'"nextBeginOffset":"113"'),
        lambda good: good.replace(b'"nextBeginOffset":"114"', b'"nextBeginOffset":"107"'),
        lambda good: good.replace(b'"code":0', b'"code":1'),
    ],
    ids=["another-offset", "no-progress", "code"],
)
def test_what_is_wrong_about_an_answer_is_seen_without_its_body(loadgen: Path, spoil: Any) -> None:
    queue = [record(100 + i, b"body %3d" % i + b"x" * 1000) for i in range(50)]
    number = itertools.count()

    def spoil_one(request: Request) -> list[bytes]:
        good = pull_from(queue, request)
        # The first learns where the queue begins, the second is checked whole, the third is from 107 to 114.
        return [spoil(good) if next(number) == 2 else good]

    with Responder(spoil_one) as responder:
        status, result = run(loadgen, responder, "pull", "--queues", 1, "--max", 7, "--messages", 6, "--discard")
    assert status == 1
    assert set(result["error_kinds"]) <= {"bad_record", "bad_code"}, result
    assert result["discarded"] >= 1, "the answers before it and after it were dropped"


# ---------------------------------------------------------------- CPU time


def test_the_cpu_time_of_others_is_measured_after_the_warm_up(loadgen: Path) -> None:
    log = Log()
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            with Responder(lambda request: [acknowledge(log, request)]) as responder:
                options = ("--seconds", 0.3, "--warm-up", 0.9)
                before = time.process_time()
                _, ours = run(loadgen, responder, "send", *options, "--watch", f"{sleeper.pid},{os.getpid()}")
                whole = time.process_time() - before
                _, idle = run(loadgen, responder, "send", *options, "--watch", sleeper.pid)
        finally:
            sleeper.kill()
    # The responder is this process, and as busy in the warm-up as after it.
    assert 0 < ours["watched_cpu_s"] < whole / 2
    assert idle["watched_cpu_s"] < 0.01
    assert 0 < idle["generator_cpu_s"] < idle["seconds"]


# ---------------------------------------------------------------- long polls


class LongPolls:
    """One queue whose polls are held until a message is sent. `deliver` may change the answer that wakes them."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.polls: list[Request] = []
        self.subscribed = False

    def deliver(self, number: int) -> list[bytes]:
        return [record(number, self.bodies[number])]

    def handle(self, request: Request) -> list[bytes]:
        if request.code == HEARTBEAT:
            self.subscribed = True
            json.loads(request.body)
            return [answer(request)]
        if request.code == MAX_OFFSET:
            return [answer(request, offset=len(self.bodies))]
        if request.code == PULL:
            self.polls.append(request)
            assert int(request.fields["sysFlag"]) & 2
            # A poll without a subscription of its own needs the heartbeat's.
            assert "subscription" in request.fields or self.subscribed
            return self.answer_polls()
        self.bodies.append(request.body)
        sent = answer(request, msgId=message_id(0), queueId=0, queueOffset=len(self.bodies) - 1)
        request.connection.sendall(sent)
        return self.answer_polls()

    def answer_polls(self) -> list[bytes]:
        for poll in list(self.polls):
            offset = int(poll.fields["queueOffset"])
            if offset >= len(self.bodies):
                continue
            self.polls.remove(poll)
            found = self.deliver(offset)
            offsets = {"minOffset": 0, "maxOffset": len(self.bodies), "nextBeginOffset": offset + 1}
            poll.connection.sendall(answer(poll, 0, b"".join(found), "FOUND", suggestWhichBrokerId=0, **offsets))
        return []


@pytest.mark.parametrize("options", [(), ("--heartbeat",)], ids=["subscription", "heartbeat"])
def test_latency_is_measured_end_to_end(loadgen: Path, options: tuple[str, ...]) -> None:
    broker = LongPolls()
    with Responder(broker.handle) as responder:
        timing = ("--rate", 100, "--seconds", 0.5, "--warm-up", 0.1)
        status, result = run(loadgen, responder, "latency", *timing, *options)
    assert (status, result["errors"]) == (0, 0), result
    assert result["messages"] == pytest.approx(50, abs=9)  # of 60 with the warm-up
    assert len(broker.bodies) == result["all_messages"]
    assert broker.subscribed == bool(options)
    assert 0 < result["latency_us"]["p50"] < 50_000
    assert 0 < result["acknowledged_us"]["p50"] < 50_000


def test_a_stall_is_charged_to_every_message_it_delayed(loadgen: Path) -> None:
    broker, stalled = LongPolls(), itertools.count()

    def stall_once(request: Request) -> list[bytes]:
        if request.code == SEND and next(stalled) == 20:
            time.sleep(0.3)
        return broker.handle(request)

    with Responder(stall_once) as responder:
        status, result = run(loadgen, responder, "latency", "--rate", 100, "--seconds", 1, "--warm-up", 0)
    assert status == 0, result
    # 30 of the 100 were due during the stall: the mean of all is near 0.3 * 0.15 s, not near 0.3 s / 100.
    assert result["latency_us"]["max"] >= 290_000
    assert 30_000 < result["latency_us"]["mean"] < 90_000


@pytest.mark.parametrize("which", ["twice", "lost"])
def test_a_message_delivered_twice_or_never_is_an_error(loadgen: Path, which: str) -> None:
    class Wrong(LongPolls):
        def deliver(self, number: int) -> list[bytes]:
            if number != 10:
                return super().deliver(number)
            good = super().deliver(number)
            return (
                good + good
                if which == "twice"
                else super().deliver(number + 1)
                if number + 1 < len(self.bodies)
                else []
            )

    with Responder(Wrong().handle) as responder:
        status, result = run(loadgen, responder, "latency", "--rate", 100, "--seconds", 0.3, "--warm-up", 0)
    assert status == 1
    assert result["error_kinds"].get("bad_record"), result


def test_parked_polls_wake_together(loadgen: Path) -> None:
    broker = LongPolls()
    with Responder(broker.handle) as responder:
        command = [str(loadgen), "park", "--broker", responder.address, "--connections", "40", "--queues", "1"]
        with subprocess.Popen(
            [*command, "--warm-up", "0.3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as generator:
            assert generator.stdin is not None
            assert generator.stdout is not None
            assert json.loads(generator.stdout.readline()) == {"event": "parked", "connections": 40}
            assert (len(broker.polls), len(broker.bodies)) == (40, 0)
            generator.stdin.write("wake\n")
            generator.stdin.close()
            result = json.loads(generator.stdout.readline())
        assert generator.returncode == 0, result
    assert (result["woken"], result["errors"], result["messages"]) == (40, 0, 40)
    assert result["wake_all_ms"] * 1000 == pytest.approx(result["latency_us"]["max"], abs=10)
    assert {request.fields["sysFlag"] for request in responder.requests if request.code == PULL} == {"6"}


def test_a_poll_that_does_not_stay_parked_is_an_error(loadgen: Path) -> None:
    broker = LongPolls()

    def impatient(request: Request) -> list[bytes]:
        if request.code == PULL and len(broker.polls) == 5:
            return [answer(request, 19, nextBeginOffset=0, minOffset=0, maxOffset=0, remark="NO_MESSAGE_IN_QUEUE")]
        return broker.handle(request)

    with Responder(impatient) as responder:
        status, result = run(
            loadgen, responder, "park", "--connections", 6, "--queues", 1, "--warm-up", 0.1, "--hold", 0.1
        )
    assert (status, result["error_kinds"]) == (1, {"bad_code": 1})
