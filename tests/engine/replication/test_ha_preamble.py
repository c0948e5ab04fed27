"""Preambles of bound streams: to bytes and back, and malformed ones."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engine.errors import FrameError
from appliance.engine.protocol.ha_preamble import (
    MAX_EPOCHS,
    SAYS_TAKEN,
    Answer,
    Challenge,
    Hello,
    Opening,
    Proof,
    Prove,
    Reason,
    Refusal,
    is_preamble,
    pack,
    set_hash,
)

HELLO = Hello(set_hash("broker-a"), "u" * 32, 2, 3, 3, 5000, 1000, 1 << 30, ((1, 1000), (3, 4000)))
ANSWER = Answer("leader", 3, 0, 6000, ((1, 1000), (3, 4000)))
REFUSAL = Refusal(Reason.OTHER_EPOCH, 4, "it leads epoch 4")

longs = st.integers(0, 2**63 - 1)
uuids = st.text("0123456789abcdef-", min_size=1, max_size=64)
ends = st.tuples(longs, longs).map(sorted)


@st.composite
def epoch_lists(draw):
    numbers = sorted(draw(st.sets(st.integers(1, 2**63 - 1), max_size=20)))
    starts = sorted(draw(st.lists(longs, min_size=len(numbers), max_size=len(numbers))))
    return tuple(zip(numbers, starts, strict=True))


hellos = st.builds(
    lambda name, uuid, slot, epoch, seen, span, size, epochs, features: Hello(
        name, uuid, slot, epoch, seen, span[1], span[0], size, epochs, features
    ),
    st.binary(min_size=8, max_size=8), uuids, st.integers(0, 2**16 - 1), st.integers(1, 2**63 - 1), longs, ends,
    st.integers(1, 2**63 - 1), epoch_lists(), st.integers(0, 2**15 - 1),
)  # fmt: skip
answers = st.builds(
    lambda uuid, epoch, span, epochs: Answer(uuid, epoch, *span, epochs),
    uuids, st.integers(1, 2**63 - 1), ends, epoch_lists(),
)  # fmt: skip
refusals = st.builds(Refusal, st.integers(0, 255), longs, st.text(max_size=63))
texts = st.builds(
    lambda kind, text: kind(text), st.sampled_from([Prove, Challenge, Proof]), st.text(min_size=1, max_size=63)
)
preambles = st.one_of(hellos, answers, refusals, texts)


@given(preambles, st.binary(max_size=40), st.lists(st.integers(1, 60), max_size=8))
def test_they_come_back_in_any_pieces_with_what_follows_them(said, behind, sizes):
    data = pack(said) + behind
    opening = Opening()
    for size in [*sizes, len(data)]:
        found = opening.feed(data[:size])
        data = data[size:]
        if found is not None:
            break
    assert found == said
    assert opening.rest + data == behind


@given(preambles)
def test_each_word_has_its_top_bit_set_so_that_no_report_and_no_header_is_one(said):
    words = pack(said)
    assert len(words) % 8 == 0
    assert all(word < 0 for (word,) in struct.iter_unpack(">q", words))
    assert is_preamble(words[:1])
    assert not is_preamble(struct.pack(">q", 2**63 - 1))


@given(hellos, st.data())
def test_half_of_one_is_none_and_a_changed_one_is_refused(said, data):
    words = pack(said)
    cut = data.draw(st.integers(1, len(words) - 1))
    assert Opening().feed(words[:cut]) is None
    at, bit = data.draw(st.integers(0, len(words) - 1)), data.draw(st.integers(0, 7))
    changed = bytearray(words)
    changed[at] ^= 1 << bit
    opening = Opening()
    try:
        found = opening.feed(bytes(changed))
    except FrameError:
        return
    # A larger size waits for the rest, which is bounded and will not fit.
    assert found is None
    with pytest.raises(FrameError):
        opening.feed(b"\x80" + b"\0" * (1 << 16))


def feed_all(opening: Opening, *pieces: bytes) -> None:
    for piece in pieces:
        opening.feed(piece)


@given(st.binary(min_size=1, max_size=300))
def test_garbage_is_refused_or_waits_within_bounds(data):
    with pytest.raises(FrameError):
        feed_all(Opening(), data, bytes(1 << 16))


def raw(payload: bytes, size: int | None = None, version: int = 1) -> bytes:
    """Return a preamble around any payload, with the right CRC."""
    head = struct.pack(">6sHII", b"\xd2BoxHA", version, 0x80000000 | (len(payload) if size is None else size),
                       zlib.crc32(payload))  # fmt: skip
    pieces = [payload[at : at + 7].ljust(7, b"\0") for at in range(0, len(payload), 7)]
    return head + b"".join(b"\x80" + piece for piece in pieces)


def inside(said) -> bytes:
    """Return its payload."""
    words = pack(said)
    size = int.from_bytes(words[9:12], "big")
    return b"".join(words[at + 1 : at + 8] for at in range(16, len(words), 8))[:size]


@pytest.mark.parametrize("said", [HELLO, ANSWER, REFUSAL])
def test_the_helper_above_packs_as_the_engine_does(said):
    assert raw(inside(said)) == pack(said)


@pytest.mark.parametrize(
    "words",
    [
        raw(inside(HELLO), size=0xFFFFFF),  # 16 MiB
        struct.pack(">6sHII", b"\xd2BoxHA", 1, 0x7FFFFFFF, 0),  # 2 GiB, and no mark
        raw(inside(HELLO), version=2),
        raw(b""),
        raw(b"\x00"),
        raw(b"\x04" + inside(HELLO)[1:]),
        *[raw(inside(HELLO)[:cut]) for cut in (1, 8, 9, 10, 41, 45, 60, 83, 84, 90, 115)],
        *[raw(inside(ANSWER)[:cut]) for cut in (1, 7, 8, 20, 33, 40)],
        *[raw(inside(REFUSAL)[:cut]) for cut in (1, 2, 9, 10, 11)],
        *[raw(inside(said) + b"\0") for said in (HELLO, ANSWER, REFUSAL)],
        raw(b"\x01" + bytes(8) + b"\x41" + b"u" * 65 + inside(HELLO)[42:]),  # uuid too long
        raw(b"\x03" + bytes(9) + b"\x01\xff"),  # no UTF-8
        pack(HELLO._replace(uuid="")),
        pack(HELLO._replace(features=-1)),
        pack(HELLO._replace(epoch=0)),
        pack(HELLO._replace(seen=-1)),
        pack(HELLO._replace(start=-1)),
        pack(HELLO._replace(start=5001)),
        pack(HELLO._replace(file_bytes=0)),
        pack(HELLO._replace(epochs=((3, 0), (1, 5)))),
        pack(HELLO._replace(epochs=((3, 0), (3, 5)))),
        pack(HELLO._replace(epochs=((1, 5), (3, 0)))),
        pack(HELLO._replace(epochs=((0, 5),))),
        pack(HELLO._replace(epochs=((1, -5),))),
        pack(ANSWER._replace(start=6001)),
        pack(ANSWER._replace(epoch=-3)),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xd2BoxHB" + pack(HELLO)[6:],
        struct.pack(">q", -1),
        b"\xff" * 40,
    ],
)
def test_what_nobody_should_say_is_refused(words):
    with pytest.raises(FrameError):
        Opening().feed(words)


def test_the_newest_epochs_are_said_when_there_are_many():
    epochs = tuple((n, n * 10) for n in range(1, MAX_EPOCHS + 50))
    found = Opening().feed(pack(ANSWER._replace(epochs=epochs, start=0)))
    assert found.epochs == epochs[-MAX_EPOCHS:]


def test_a_long_reason_is_cut_at_a_character():
    found = Opening().feed(pack(REFUSAL._replace(text="ä" * 200)))
    assert found.text == "ä" * 127


def test_features_stand_where_older_versions_read_a_part_of_the_slot():
    """They accept any slot that is not negative, and ignore it."""
    older, newer = pack(HELLO), pack(HELLO._replace(features=SAYS_TAKEN))
    assert len(older) == len(newer)
    payload = b"".join(newer[at + 1 : at + 8] for at in range(16, len(newer), 8))
    slot_at = 1 + 8 + 1 + len(HELLO.uuid)
    assert struct.unpack_from(">i", payload, slot_at)[0] == SAYS_TAKEN << 16 | HELLO.slot
    assert Opening().feed(older).features == 0
