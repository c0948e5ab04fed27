"""Whatever a peer sends, each log record is one line, and no part of it looks like another record."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading

import pytest

from appliance.engine import log_lines
from appliance.engine.log_lines import LINE_CHARACTERS, MARK, TRACEBACK_LINES, LineFormatter
from appliance.engine.plain_text import plain, plain_json

FORGED = "x\n2026-01-01 00:00:00,000 ERROR appliance.engine: all is lost"
BEGINS_A_RECORD = re.compile(r"\d{4}-\d\d-\d\d ")
UNPRINTABLE = [
    *range(0x20), 0x7F, *range(0x80, 0xA0), 0x61C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F),
    *range(0x2066, 0x206A), 0xD800, 0xDFFF, 0xFEFF,
]  # fmt: skip


def record(message: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    caught = (type(error), error, error.__traceback__) if error is not None else None
    return logging.LogRecord("appliance.test", logging.WARNING, __file__, 1, message, arguments, caught)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def written(message: str, *arguments: object, error: BaseException | None = None) -> str:
    text = LineFormatter().format(record(message, *arguments, error=error))
    lines = text.splitlines()
    assert BEGINS_A_RECORD.match(lines[0])
    assert not [line for line in lines[1:] if not line.startswith(MARK)], "more than one record"
    assert not [char for char in text.replace("\n", "") if ord(char) in UNPRINTABLE]
    text.encode()
    return text


@pytest.mark.parametrize("code", UNPRINTABLE)
def test_a_character_that_is_not_printed_is_written_out(code):
    line = written("client id=%s", f"a{chr(code)}b")
    assert len(line.splitlines()) == 1
    assert re.search(r"id=a\\[xunrt][0-9a-f]*b\Z", line)


@pytest.mark.parametrize("text", ["plain", "键 é ñ", "a\\nb", "emoji 🚀", "%s %d", ""])
def test_what_is_printed_stays(text):
    assert plain(text) == text
    assert written("name=%s", text).endswith(f"name={text}")


def test_a_forged_line_stays_in_its_record_wherever_it_is():
    for line in (written("closed %s", FORGED), written(FORGED), written("%s", (FORGED,)), written("%r", FORGED)):
        assert len(line.splitlines()) == 1
    assert written("n=%s", FORGED).count("\\n2026") == 1


def test_a_traceback_keeps_its_lines_behind_a_mark():
    text = written("failed", error=raised(ValueError(FORGED)))
    lines = text.splitlines()
    assert lines[1] == MARK + "Traceback (most recent call last):"
    assert lines[-2] == MARK + "ValueError: x"
    assert lines[-1].startswith(MARK + "2026-01-01")


@pytest.mark.parametrize("separator", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_an_exceptions_text_ends_no_line_by_other_means(separator):
    text = written("failed", error=raised(ValueError(f"a{separator}2026-01-01 00:00:00,000 ERROR b")))
    assert len(text.splitlines()) == len(text.split("\n"))


def test_causes_and_notes_are_marked_too():
    error = ValueError("second")
    error.__cause__ = raised(KeyError(FORGED))
    error.add_note(FORGED)
    assert "The above exception was the direct cause" in written("failed", error=raised(error))


def test_a_long_value_does_not_make_a_long_line():
    line = written("client id=%s", "x" * 60_000)
    assert len(line) < LINE_CHARACTERS + 200
    assert line.endswith("... (60010 characters)")
    assert len(written("client id=%s", "\u202e" * 60_000)) < LINE_CHARACTERS + 200
    assert len(max(written("failed", error=raised(ValueError("y" * 60_000))).splitlines(), key=len)) < 2_200


def test_a_long_traceback_shows_its_begin_and_its_end():
    text = written("failed", error=raised(ValueError("\n".join(map(str, range(10_000))))))
    assert len(text.splitlines()) == TRACEBACK_LINES + 2
    assert "Traceback" in text
    assert text.endswith(MARK + "9999")


def test_a_text_that_another_handler_has_made_of_the_exception_is_marked():
    one = record("failed")
    one.exc_text = FORGED
    assert LineFormatter().format(one).splitlines()[1:] == [MARK + line for line in FORGED.split("\n")]


def test_what_ends_a_thread_is_a_record(monkeypatch, caplog):
    monkeypatch.setattr(threading, "excepthook", log_lines._thread_ended)

    def fail() -> None:
        raise ValueError(FORGED)

    with caplog.at_level(logging.ERROR):
        thread = threading.Thread(target=fail, name="bad\nname")
        thread.start()
        thread.join()
        quiet = threading.Thread(target=sys.exit)
        quiet.start()
        quiet.join()
    (one,) = caplog.records
    lines = LineFormatter().format(one).splitlines()
    assert "name=bad\\nname" in lines[0]
    assert all(line.startswith(MARK) for line in lines[1:])


def test_json_for_a_terminal_is_the_same_json():
    document = {"topic": "a\x7f\x9b31m\u202e\u2028b", "body": "é"}
    line = json.dumps(document, ensure_ascii=False).encode() + b"\n"
    shown = plain_json(line)
    assert json.loads(shown) == document
    assert not [char for char in shown.decode().rstrip("\n") if ord(char) in UNPRINTABLE]
    assert shown.endswith(b"\n")
