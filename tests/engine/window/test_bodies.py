"""Bodies: decompressed by the sys flag, recognised, and never more than the bounds allow."""

import base64
import gzip
import json
import tracemalloc
import zlib

import pytest

from appliance.engine.window.messages import bodies
from appliance.engine.window.messages.bodies import DECODE_LIMIT_BYTES, view_body

TEXT = ("Grüße " * 100).encode()
ZLIB, LZ4, ZSTD = 0x301, 0x101, 0x201


def lz4_frame(data):
    return pytest.importorskip("lz4.frame").compress(data)


def zstd_frame(data):
    return pytest.importorskip("zstandard").ZstdCompressor().compress(data)


def codes(view):
    return [note.code for note in view.notes]


@pytest.mark.parametrize(
    ("flag", "pack", "name"),
    [(0x1, zlib.compress, "zlib"), (ZLIB, zlib.compress, "zlib"), (LZ4, lz4_frame, "lz4"), (ZSTD, zstd_frame, "zstd")],
)
def test_compressed_by_the_sys_flag(flag, pack, name):
    packed = pack(TEXT)
    view = view_body(packed, flag, 65536)
    assert (view.kind, view.layers, view.text) == ("text", (name,), TEXT.decode())
    assert (view.stored_bytes, view.decoded_bytes) == (len(packed), len(TEXT))
    assert view.notes == ()


@pytest.mark.parametrize(
    ("flag", "pack"), [(ZLIB, zlib.compress), (LZ4, lz4_frame), (ZSTD, zstd_frame), (0, gzip.compress)]
)
def test_a_bomb_is_decompressed_to_the_bound_and_no_further(flag, pack):
    bomb = pack(bytes(40 << 20))
    tracemalloc.start()
    view = view_body(bomb, flag, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * DECODE_LIMIT_BYTES, "it was not decompressed in full"
    assert view.decoded_bytes == DECODE_LIMIT_BYTES
    assert (view.shown_bytes, view.truncated, codes(view)[0]) == (1000, True, "bomb")


@pytest.mark.parametrize(("flag", "pack"), [(ZLIB, zlib.compress), (LZ4, lz4_frame), (ZSTD, zstd_frame)])
@pytest.mark.parametrize("harm", [lambda data: data[: len(data) // 2], lambda data: b"\0" + data, lambda data: b"no"])
def test_what_does_not_decompress_is_shown_as_it_is(flag, pack, harm):
    body = harm(pack(TEXT))
    view = view_body(body, flag, 65536)
    if flag == ZSTD and view.layers:  # the beginning of a stream that ends early is shown
        assert TEXT.startswith(base64.b64decode(view.base64))
        return
    assert "bad_compression" in codes(view)
    assert base64.b64decode(view.base64) == body


def test_without_the_library_the_body_says_which_is_missing(monkeypatch):
    def missing(data, limit):
        raise ImportError("lz4")

    monkeypatch.setitem(bodies.DECODERS, "lz4", missing)
    view = view_body(b"\x04\x22\x4d\x18", LZ4, 100)
    assert next(str(note) for note in view.notes) == (
        "The body is lz4; the Python package lz4 that reads it is not installed."
    )
    assert view.hex.startswith("00000000  04 22 4d 18")


def test_gzip_is_found_by_looking_also_inside_the_clients_own_layer():
    view = view_body(zlib.compress(gzip.compress(b'{"a":1}')), ZLIB, 100)
    assert (view.layers, view.kind) == (("zlib", "gzip"), "json")
    assert json.loads(view.json) == {"a": 1}


def test_two_bytes_that_look_like_zlib_may_be_chance():
    view = view_body(b"x\x9c" + b"not compressed", 0, 100)
    assert (view.layers, view.kind) == ((), "binary")
    assert "bad_compression" not in codes(view)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "empty"),
        (b'{"a": [1, 2]}', "json"),
        (b"\xef\xbb\xbf[1]", "json"),
        (b"  [1]\n", "json"),
        (b"42", "text"),
        (b'"words"', "text"),
        (b"{nearly}", "text"),
        (b"line\r\n\tline", "text"),
        ("中文".encode(), "text"),
        (b"\xff\xfe", "binary"),
        (b"a\0b", "binary"),
        ("中文".encode("gb18030"), "binary"),
    ],
)
def test_kinds(body, kind):
    assert view_body(body, 0, 100).kind == kind


def test_json_is_indented_and_its_numbers_are_left_alone():
    view = view_body(b'{"n":12345678901234567890.10,"e":1e400}', 0, 100)
    assert view.json == '{\n  "n": 12345678901234567890.10,\n  "e": 1e400\n}'


def test_json_shows_the_characters_that_its_program_escaped():
    body = rb'{"note":"Gr\u00fc\u00dfe \u4f60\ud83d\ude00","kept":"\\u00fc \u0000\u0022\u005c\u202e \n\/"}'
    shown = view_body(body, 0, 200).json
    assert shown is not None
    assert '"note": "Grüße 你😀"' in shown
    assert r'"kept": "\\u00fc \u0000\u0022\u005c\u202e \n\/"' in shown
    assert json.loads(shown) == json.loads(body)


def test_json_that_would_grow_out_of_bounds_stays_as_it_is():
    body = (b"[" * 500 + b"0," * 300 + b"0" + b"]" * 500 + b",") * 70
    body = b"[" + body[:-1] + b"]"
    view = view_body(body, 0, 1 << 20)
    assert view.kind == "json"
    assert len(view.json) == len(body)


def test_json_nested_too_deeply_is_text():
    view = view_body(b"[" * 100_000 + b"]" * 100_000, 0, 100)
    assert view.kind == "text"


def test_a_cut_goes_between_characters():
    view = view_body("ü".encode() * 50, 0, 51)
    assert view.text == "ü" * 25
    assert (view.shown_bytes, view.truncated, codes(view)) == (51, True, ["too_long"])
    assert len(base64.b64decode(view.base64)) == 51


def test_hex_shows_offsets_and_letters():
    assert view_body(b"Hello, w\x00rld!\n12345", 0, 100).hex == (
        "00000000  48 65 6c 6c 6f 2c 20 77 00 72 6c 64 21 0a 31 32  Hello, w.rld!.12\n"
        "00000010  33 34 35                                         345"
    )


def test_a_long_body_is_shown_as_a_whole_up_to_a_bound():
    body = b'{"n": "' + b"x" * 92 + b'"}'
    long = view_body(body, 0, 50, most_whole=100)
    assert (long.json, long.kind, len(long.text or ""), codes(long)) == (
        None,
        "text",
        50,
        ["too_long", "whole_is_export"],
    )
    assert view_body(body, 0, 50).json is not None
    assert view_body(body[:-5] + b'"}', 0, 50, most_whole=100).json is not None, "this one is short"
