"""Both twins do the same: whatever connections read, their answers, the log, the queues and every count are equal.

An input that fails is shrunk and printed. The long form (ROCKETBOX_TORTURE=1) sends a million frames.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.engine.protocol.command import decode_frame
from tests.fuzz.hostile_frames import TOPICS, Frames
from tests.support.batches import encode_member
from tests.support.effort import effort
from tests.support.sending import LONG
from tests.support.twins import Outcome, Setting, Step, outcome

from . import inputs
from .shrinking import differ, frames_of, shown, shrunk

pytestmark = pytest.mark.compiled

#: Number of conversations of some 60 frames each. Under the sanitizers everything is many times slower.
CONVERSATIONS = 100 if os.environ.get("ROCKETBOX_SANITIZED") else effort(250, 500, 17_000)
#: Conversations in one test: a hundred take about as long as a test may.
A_TEST = 50
SMALL = Setting(segment_bytes=128 * 1024)


PLAIN_MEMBERS = b"".join(
    encode_member(b"body", f"UNIQ_KEY\x017F0000016AB14E0E2F2A69208FBB{number:04X}\x02WAIT\x01true\x02".encode())
    for number in range(4)
)


def check(steps: list[Step], setting: Setting = SMALL) -> Outcome:
    """Assert that both twins have the same outcome; return the compiled one's."""
    pure, compiled = outcome(steps, setting, False), outcome(steps, setting, True)
    if pure.differences(compiled):
        small = shrunk(steps, lambda fewer: differ(fewer, setting))
        found = "\n".join(differ(small, setting))
        pytest.fail(f"pure and compiled: {found}\n{shown(small, setting)}")
    assert not compiled.exceptions, f"{compiled.exceptions}\n{shown(steps, setting)}"
    return compiled


@pytest.mark.parametrize("part", range(CONVERSATIONS // A_TEST))
def test_conversations(part):
    for seed in range(part * A_TEST, (part + 1) * A_TEST):
        chance = random.Random(seed)
        setting = inputs.setting(chance)
        check(list(inputs.conversation(chance, 30)), setting)


@settings(max_examples=effort(150, 300, 20_000), deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(st.randoms(use_true_random=False))
def test_one_frame_between_usual_ones(chance):
    """Hypothesis looks for one odd frame, which it makes as simple as it can."""
    usual = inputs.usual(random.Random(1), "java")
    check([*inputs.PREPARED, ("read", 0, usual + inputs.odd(chance) + usual), ("read", 1, usual)])


def test_recorded_frames():
    """Every recorded send of official clients, one in each read and then in reads of 60,000 bytes."""
    found = inputs.recorded()
    assert len(found) > 700
    whole = b"".join(found)
    steps: list[Step] = [("read", 0, frame) for frame in found]
    steps += [("read", 1, whole[at : at + 60_000]) for at in range(0, len(whole), 60_000)]
    got = check(steps, Setting(segment_bytes=4 << 20, max_message_size=1 << 20))
    assert got.counters["messages"] > 1000
    # Transactions, delayed messages and retries are not usual.
    assert got.taken > len(found)


@pytest.mark.parametrize("kind", inputs.USUAL_KINDS)
def test_usual_frames_are_taken(kind):
    """A fast path that is never taken would pass every other test."""
    chance = random.Random(kind)
    frames = []
    while len(frames) < 200:
        frame = inputs.usual(chance, kind)
        # The compiled part takes a batch without its own unique key only if its members are plain: all have one then.
        if b"UNIQ_KEY" in frame[: frame.index(b"WAIT")] or "订单".encode() not in frame:
            frames.append(frame)
    steps: list[Step] = [*inputs.PREPARED, *(("read", 0, b"".join(frames[at : at + 8])) for at in range(0, 200, 8))]
    got = check(steps, Setting(segment_bytes=16 << 20, max_message_size=1 << 20))
    queues = 3 * 4  # Python handles the first send to each queue
    assert len(frames_of(got.answers[0])) == 200
    assert got.taken >= 200 - queues


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("", True),
        ("WAIT\x01true", True),
        ("WAIT\x01true\x02", True),
        ("a\x01b\x02own\x01值", True),
        ("\x02".join(f"{number}\x01v" for number in range(8)), True),
        ("\x02".join(f"{number}\x01v" for number in range(9)), False),
        ("a\x01b\x02a\x01c", False),
        ("a\x01b\x02\x02own\x01c", False),
        ("a\x01b\x02\x02", False),
        ("a\x01", False),
        ("\x01b", False),
        ("a\x01b\x01c", False),
        ("a", False),
        ("WAIT\x01false", False),
        ("UNIQ_KEY\x01", False),
    ],
)
def test_a_batch_may_have_no_unique_key_of_its_own(text, taken):
    """The broker makes one for the answer. Batches whose properties would be stored in another form go to Python."""
    chance = random.Random(1)
    frames = []
    for style in ("java", "cpp"):
        pairs = inputs.fields_of(chance, inputs.TOPICS[0], 0, text, True)
        encoded = [(name.encode(), inputs.value_of(value, style == "cpp")) for name, value in pairs]
        frames.append(inputs.framed(inputs.json_header(style, 320, encoded, b"9", b"0"), PLAIN_MEMBERS))
    got = check([*inputs.PREPARED, ("read", 0, b"".join(frames * 2))], Setting(segment_bytes=16 << 20))
    assert got.taken == (3 if taken else 0), "the first send finds its queue in Python"


@pytest.mark.parametrize("seed", range(effort(6, 12, 400)))
def test_frames_of_a_stranger(seed):
    """The frames of tests/fuzz with request codes that both twins handle."""
    wanted = {*inputs.SENDS, *inputs.PULLS}
    usual = inputs.usual(random.Random(1), "java")
    hostile = (one.frame for one in Frames(seed, wanted) if one.code in wanted)
    reads: list[Step] = [("read", 0, frame + usual) for frame in itertools.islice(hostile, 500)]
    check([*(("topic", topic) for topic in TOPICS), *inputs.PREPARED, *reads], Setting(segment_bytes=8 << 20))


@pytest.mark.parametrize("code", inputs.PULLS)
@pytest.mark.parametrize("slow", [False, True])
def test_pulls_are_served(code, slow):
    """Pulls at several offsets with several expressions; a peer that reads late receives all answers in the end."""
    chance = random.Random(code)
    sends = b"".join(inputs.usual(chance, chance.choice(inputs.USUAL_KINDS)) for _ in range(200))
    steps: list[Step] = [*inputs.PREPARED, ("read", 0, sends)]
    if slow:
        steps.append(("slow", 1, True))
    pulls = 0
    pairs = dict(inputs.plain(code)[0])
    for tags, count, queue in itertools.product(("*", "TagA", "TagA || 订单"), (1, 32), (0, 1)):
        for offset in range(8):
            pairs |= {"subscription": tags, "maxMsgNums": count, "queueId": queue, "queueOffset": offset}
            encoded = [(name.encode(), inputs.value_of(value, False)) for name, value in pairs.items()]
            frame = inputs.framed(inputs.json_header("java", code, encoded, b"%d" % pulls, b"0"), b"")
            binary = inputs.framed(inputs.binary_header(code, list(pairs.items()), pulls, 0), b"", 1)
            steps.append(("read", 1, frame + binary))
            pulls += 2
            if slow and offset == 4:
                steps.append(("take", 1, 5000))
    got = check(steps, Setting(segment_bytes=16 << 20, max_message_size=1 << 20))
    assert len(frames_of(got.answers[1])) == pulls
    assert got.pulled > (pulls // 10 if slow else pulls // 2)  # Python sends records that lie far apart


def test_headers_with_too_many_fields():
    """In headers beyond 64 KiB Python counts everything that may be a field, also inside texts."""
    steps: list[Step] = []
    for style, code, signs in itertools.product(("java", "binary"), (310, 10), (4000, 5000, 30_000)):
        pairs = dict(inputs.fields_of(random.Random(1), "TopicA", 0, "UNIQ_KEY\x01K\x02", False))
        pairs["a"] = '":xx' * signs
        named = [(LONG[name] if code == 10 and name in LONG else name, value) for name, value in pairs.items()]
        if style == "binary":
            frame = inputs.framed(inputs.binary_header(code, named, 7, 0), b"x", 1)
        else:
            encoded = [(name.encode(), inputs.value_of(value, False)) for name, value in named]
            frame = inputs.framed(inputs.json_header(style, code, encoded, b"7", b"0"), b"x")
        steps.append(("read", 0, frame))
    check([*inputs.PREPARED, ("read", 0, inputs.usual(random.Random(1), "java")), *steps])


@pytest.mark.parametrize("code", inputs.SENDS + inputs.PULLS)
@pytest.mark.parametrize("encoding", ["json", "binary"])
def test_each_value_in_each_place(encoding, code):
    """A usual send after each frame shows that the connection is still in step."""
    make = inputs.each_header if encoding == "json" else inputs.each_binary_header
    frames = list(make(code))
    usual = inputs.usual(random.Random(1), "java")
    for at in range(0, len(frames), 500):
        reads: list[Step] = [("read", 0, frame + usual) for frame in frames[at : at + 500]]
        check([*inputs.PREPARED, ("read", 0, usual * 4), *reads], Setting(segment_bytes=1 << 20))


def test_members_get_the_unique_key_of_their_own_batch():
    body = encode_member(b"x", b"WAIT\x01true") + encode_member(b"y", b"UNIQ_KEY\x01K\x02WAIT\x01true")
    reads: list[Step] = []
    for number in range(4):
        text = f"UNIQ_KEY\x01BATCH{number}\x02WAIT\x01true\x02"
        pairs = inputs.fields_of(random.Random(1), "TopicA", 0, text, True)
        encoded = [(name.encode(), inputs.value_of(value, False)) for name, value in pairs]
        reads.append(("read", 0, inputs.framed(inputs.json_header("java", 320, encoded, b"%d" % number, b"0"), body)))
    got = check([*inputs.PREPARED, *reads])
    assert got.taken == 3
    for number in range(4):
        assert got.log.count(b"UNIQ_KEY\x01BATCH%d" % number) == 1


@pytest.mark.parametrize("kind", inputs.USUAL_KINDS)
def test_partial_frames(kind):
    """A frame in two pieces, cut at each byte, between two whole ones."""
    chance = random.Random(kind)
    frame = inputs.usual(chance, kind)
    while len(frame) > 1200:
        frame = inputs.usual(chance, kind)
    steps: list[Step] = []
    for at in range(len(frame) + 1):
        steps += [("read", 0, frame + frame[:at]), ("read", 0, frame[at:] + frame)]
    got = check([*inputs.PREPARED, *steps], Setting(segment_bytes=1 << 20))
    assert len(frames_of(got.answers[0])) == 3 * (len(frame) + 1)


CORPUS_SEEDS = range(1_000_000, 1_000_000 + effort(40, 80, 2000))


def corpus() -> list[tuple[list[Step], Setting]]:
    """Return the conversations that run in a process of each kind."""
    found = []
    for seed in CORPUS_SEEDS:
        chance = random.Random(seed)
        setting = inputs.setting(chance)
        found.append((list(inputs.conversation(chance, 30)), setting))
    return found


def test_processes(tmp_path):
    """A process with the compiled part and one that must not use it have the same outcomes."""
    root = Path(__file__).parents[2]
    found = []
    for pure in ("", "1"):
        out = tmp_path / f"outcomes{pure}"
        environment = os.environ | {"ROCKETBOX_PURE": pure, "PYTHONPATH": str(root)}
        command = [sys.executable, "-m", "tests.hotpath.run_corpus", str(out)]
        subprocess.run(command, cwd=root, env=environment, check=True, timeout=3000)
        lines = out.read_text().splitlines()
        assert lines[0] == ("pure" if pure else "compiled")
        found.append(lines[1:])
    assert len(found[0]) == len(CORPUS_SEEDS)
    differing = [CORPUS_SEEDS[n] for n, (one, other) in enumerate(zip(*found, strict=True)) if one != other]
    assert not differing, f"seeds {differing}"


USUAL = b"".join(inputs.usual(random.Random(kind), kind) for kind in inputs.USUAL_KINDS for _ in range(2))
FIRST: list[Step] = [*inputs.PREPARED, ("read", 0, USUAL), ("read", 1, USUAL)]
NUMBER = 2 * len(inputs.USUAL_KINDS)


def codes(answers: bytes) -> Counter[int]:
    """Return how often each code was answered."""
    return Counter(decode_frame(frame).code for frame in frames_of(answers))


@pytest.mark.parametrize(
    ("synchronous", "steps", "expected"),
    [
        # Not synced in time: reported once in the answer, and stored nevertheless.
        (True, [("read", 0, USUAL), ("advance", 6000), ("tick",), ("sync",)], {0: NUMBER, 10: NUMBER}),
        (True, [("read", 0, USUAL), ("advance", 4000), ("tick",), ("sync",)], {0: 2 * NUMBER}),
        # The log breaks in the middle of a tick, or before its sync.
        (False, [("break_log",), ("read", 0, USUAL), ("read", 0, USUAL)], {0: NUMBER, 14: 2 * NUMBER}),
        (True, [("write", 1, USUAL), ("read", 0, USUAL), ("break_log",), ("read", 0, USUAL)],
         {0: NUMBER, 14: 2 * NUMBER}),
        # No room, and room again.
        (False, [("refuse", "full"), ("read", 0, USUAL), ("refuse", None), ("read", 0, USUAL)],
         {0: 2 * NUMBER, 14: NUMBER}),
        # A topic that is gone when its tick is published, or its messages come.
        (False, [("write", 0, USUAL), ("forbid", "TopicA"), ("tick",), ("forget", "TopicA")], None),
        (True, [("read", 0, USUAL), ("forbid", "TopicA"), ("read", 0, USUAL), ("forget", "TopicA"), ("sync",)], None),
        (True, [("read", 0, USUAL), ("forbid", "TopicA"), ("forget", "TopicA"), ("topic", "TopicA"),
                ("read", 0, USUAL)], {0: 3 * NUMBER}),
        # Fewer queues, no right to write, other options.
        (False, [("topic", "TopicA", 6, 1, 1), ("read", 0, USUAL)], None),
        (False, [("topic", "TopicA", 4), ("read", 0, USUAL)], None),
        (False, [("options", False, 1000), ("read", 0, USUAL)], None),
        # Held back, with more behind it, and closed meanwhile.
        (False, [("hold", True), ("read", 0, USUAL), ("read", 0, USUAL), ("hold", False)], {0: 3 * NUMBER}),
        (False, [("hold", True), ("read", 0, USUAL), ("close", 0), ("hold", False)], {0: NUMBER}),
        # Gone before it is answered, or with nothing more to say.
        (True, [("read", 0, USUAL), ("close", 0), ("sync",)], {0: NUMBER}),
        (True, [("write", 0, USUAL), ("hang_up", 0), ("tick",), ("sync",)], None),
        (False, [("write", 0, USUAL), ("shut", 0), ("tick",)], None),
        # Time goes back: store times do not.
        (False, [("jump", -5000), ("read", 0, USUAL), ("jump", 9000), ("read", 0, USUAL)], {0: 3 * NUMBER}),
    ],
)  # fmt: skip
def test_what_may_happen(synchronous, steps, expected):
    for stage_bytes in (2000, 30_000, 1 << 20):
        setting = Setting(synchronous, 1 << 20, stage_bytes, 1 << 20)
        sync: list[Step] = [("sync",)] if synchronous else []
        got = check([*FIRST, *sync, *steps], setting)
        if expected is not None:
            assert codes(got.answers[0]) == expected
        if stage_bytes == 1 << 20:
            assert got.taken > NUMBER // 2


def send(topic: str, queue_id: int, body: bytes, number: int = 0, tags: str = "TagA") -> bytes:
    """Return a usual 310 of Java."""
    text = f"UNIQ_KEY\x017F0000016AB14E0E2F2A{number:012X}\x02WAIT\x01true\x02TAGS\x01{tags}\x02"
    pairs = inputs.fields_of(random.Random(1), topic, queue_id, text, False)
    encoded = [(name.encode(), inputs.value_of(value, False)) for name, value in pairs]
    return inputs.framed(inputs.json_header("java", 310, encoded, b"%d" % number, b"0"), body)


def test_frames_longer_than_buffers():
    """A frame that is not whole yet is kept as a copy, or gets a buffer of its own."""
    chance = random.Random(7)
    steps: list[Step] = [*inputs.PREPARED]
    sent = 0
    for size in (60_000, 65_400, 65_536, 66_000, 131_000, 300_000, 524_288, 530_000, 1_200_000):
        frame = send("TopicA", 0, chance.randbytes(size))
        for at in (1, 7, 9, 200, 65_000, len(frame) - 1, chance.randrange(len(frame))):
            steps += [("read", 0, frame[:at]), ("read", 1, frame[: at // 2]), ("read", 0, frame[at:] + frame)]
            steps.append(("read", 1, frame[at // 2 :]))
            sent += 1
    got = check(steps, Setting(segment_bytes=32 << 20, max_message_size=4 << 20))
    assert codes(got.answers[0]) == {0: 2 * sent}
    assert codes(got.answers[1]) == {0: sent}


def test_more_of_everything_than_fits_at_once():
    """More connections in one tick, queues in one read, answers to a peer, members of a batch and tags than fit."""
    wide = b"".join(send("Wide", queue, b"x", queue) for queue in range(200))
    refused = b"".join(send("None", 0, b"x", number) for number in range(60))
    ours: list[Step] = [("topic", "Wide", 6, 200, 200), *inputs.PREPARED, ("read", 0, wide), ("read", 0, wide * 2)]
    frame = send("TopicA", 0, b"x")
    ours += [("write", number, frame * (1 + number % 3)) for number in range(200)]
    ours += [("tick",), ("read", 1, frame + refused + frame), ("read", 1, (frame + refused) * 2)]
    for first in range(0, 3000, 500):
        body = b"".join(
            encode_member(b"%d" % number, f"UNIQ_KEY\x01K{number}\x02TAGS\x01Tag{number}\x02".encode())
            for number in range(first, first + 500)
        )
        for common in ("", f"KEYS\x01k{first}\x02"):
            pairs = inputs.fields_of(random.Random(1), "TopicB", 1, f"UNIQ_KEY\x01B{first}\x02{common}", True)
            encoded = [(name.encode(), inputs.value_of(value, False)) for name, value in pairs]
            ours.append(("read", 2, inputs.framed(inputs.json_header("java", 320, encoded, b"1", b"0"), body) * 2))
    got = check(ours, Setting(segment_bytes=32 << 20, max_message_size=4 << 20))
    assert codes(got.answers[0])[0] == 601
    assert codes(got.answers[1])[0] == 2 + 4
    assert got.counters["messages"] > 12_000
    assert got.taken > 600


def filled_up_to(room: int, overhead: int) -> bytes:
    """Return sends whose records take exactly `room` bytes; each record takes `overhead` beside its body."""
    count = -(-room // 15_000)
    sizes = [room // count] * (count - 1)
    sizes.append(room - sum(sizes))
    return b"".join(send("TopicA", 0, b"z" * (size - overhead)) for size in sizes)


def test_the_end_of_a_file_and_of_the_stage():
    """Records and batches whose last byte lies at each place around the end of a log file, and around a full stage."""
    pairs = inputs.fields_of(random.Random(1), "TopicA", 0, "UNIQ_KEY\x01B\x02WAIT\x01true\x02", True)
    encoded = [(name.encode(), inputs.value_of(value, False)) for name, value in pairs]
    member = encode_member(b"y" * 50, b"UNIQ_KEY\x01K\x02TAGS\x01TagA\x02")
    batch = inputs.framed(inputs.json_header("java", 320, encoded, b"1", b"0"), member * 2)
    first = send("TopicA", 0, b"x")
    size = len(outcome([*inputs.PREPARED, ("read", 0, first)], SMALL, False).log)
    together = len(outcome([*inputs.PREPARED, ("read", 0, batch)], SMALL, False).log)
    for end, stage_bytes in ((64 * 1024, 1 << 20), (30_000, 30_000)):
        rolled = 0
        for last, needed in ((first, size), (batch, together)):
            for left in range(-2, 24):  # bytes behind the last record, if it fits at all
                written = size if stage_bytes > end else 0  # the first record is in the file, not in the stage
                filling = filled_up_to(end - written - needed - left, size - 1)
                got = check(
                    [*inputs.PREPARED, ("read", 0, first), ("read", 1, filling + last + first)],
                    Setting(segment_bytes=64 * 1024, stage_bytes=stage_bytes),
                )
                assert codes(got.answers[1])[0] == len(frames_of(filling)) + 2
                assert got.taken >= len(frames_of(filling))
                rolled += got.counters["written"] > 64 * 1024
        assert rolled == (52 if stage_bytes > end else 0)


@pytest.mark.parametrize("encoding", ["json", "binary"])
def test_each_number_of_a_header(encoding):
    """Each bit of the flags, and numbers at the limits of 32 and 64 bits."""
    edges = [0, 1, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63]
    numbers = [sign * number for number in (*edges, *(1 << bit for bit in range(32))) for sign in (1, -1)]
    steps: list[Step] = [*inputs.PREPARED, ("read", 0, send("TopicA", 0, b"x"))]
    for code, at in itertools.product(inputs.SENDS + inputs.PULLS, range(13)):
        fields, body = inputs.plain(code)
        if at >= len(fields) or not isinstance(fields[at][1], int):
            continue
        for number in numbers:
            changed = [*fields[:at], (fields[at][0], number), *fields[at + 1 :]]
            if encoding == "binary":
                frame = inputs.framed(inputs.binary_header(code, changed, 1, 0), body, 1)
            else:
                named = [(name.encode(), inputs.value_of(value, False)) for name, value in changed]
                frame = inputs.framed(inputs.json_header("java", code, named, b"1", b"0"), body)
            steps.append(("read", 0, frame))
    check(steps, Setting(segment_bytes=1 << 20))


def test_peers_that_take_their_answers_late():
    """A socket takes a part of a tick's answers; the rest follows, and no byte of it twice."""
    many = b"".join(send("TopicA", 0, b"x", number) for number in range(400))
    steps: list[Step] = [*inputs.PREPARED, ("read", 0, send("TopicA", 0, b"x"))]
    for number in range(4):
        steps.append(("slow", number, True))
    for taken in (0, 1, 1000, 100_000, 1 << 20, 50_000):
        steps += [("write", number, many) for number in range(3)]
        steps += [("tick",), *(("take", number, taken) for number in range(3)), ("tick",)]
    got = check(steps, Setting(segment_bytes=4 << 20))
    assert [codes(answers) for answers in got.answers] == [{0: 2401}, {0: 2400}, {0: 2400}]
    got = check(steps, Setting(segment_bytes=4 << 20, outbox_bytes=10_000))
    assert [codes(answers) for answers in got.answers] == [{0: 2401}, {0: 2400}, {0: 2400}]
