"""Every bit of the small files that say where recovery begins, flipped one at a time: no message is lost or altered."""

import logging

import pytest

from tests.crash.crashes import nothing
from tests.crash.life import GONE, Life
from tests.crash.test_found import delete, disk_of, settle, write

SMALL_FILES = ["/rocketbox/recovery-position", "/rocketbox/deleted-topics.json", "/store/checkpoint", "/store/abort"]


def a_store(clean):
    """(its disk, what it holds): two topics, one of them deleted and made anew, more behind the recovery position."""
    life = Life("flips", None, True, nothing)
    life.open()
    write(life, "A", b"old 1", b"old 2")
    write(life, "B", *[b"%d" % i for i in range(30)])
    settle(life)
    delete(life, "A")
    write(life, "A", b"new 1", b"new 2")
    settle(life)
    write(life, "B", b"behind")
    life._sync()
    if clean:
        life.store.stop()
    return disk_of(life), {
        ("A", 0): [GONE, GONE, b"new 1", b"new 2"],
        ("B", 0): [*[b"%d" % i for i in range(30)], b"behind"],
    }


CASES = [(path, clean) for path in SMALL_FILES for clean in (True, False) if not (clean and path.endswith("/abort"))]


@pytest.mark.parametrize(("path", "clean"), CASES)  # a clean stop leaves no abort file
def test_a_flipped_bit_of_a_small_file_costs_no_message(path, clean):
    logging.disable(logging.CRITICAL)
    image, expected = a_store(clean)
    assert path in image
    data = image[path]
    used = [i for i in range(len(data)) if any(data[max(0, i - 8) : i + 1])] + [len(data) - 1]
    try:
        for at in used:
            for bit in range(8):
                flipped = bytearray(data)
                flipped[at] ^= 1 << bit
                life = Life("flipped", {**image, path: bytes(flipped)}, True, nothing)
                life.open()
                recovered = life.recovered()
                if path == "/rocketbox/deleted-topics.json" and recovered != expected:
                    # Unreadable: what was deleted may show again, what was not must be there.
                    assert recovered[("B", 0)] == expected[("B", 0)]
                    assert recovered[("A", 0)][-2:] == expected[("A", 0)][-2:]
                    continue
                assert recovered == expected, (at, bit)
    finally:
        logging.disable(logging.NOTSET)
    for size in (0, 1, len(data) // 2):
        life = Life("cut", {**image, path: data[:size]}, True, nothing)
        life.open()
        assert life.recovered()[("B", 0)] == expected[("B", 0)]
