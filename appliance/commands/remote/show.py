"""Prints answers for people: tables of lists, differences of changes, names and values of everything else."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ...engine.plain_text import plain

LONGEST_CELL = 60


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> list[str]:
    """Columns side by side, numbers to the right."""
    if not rows:
        return ["(none)"]
    names = list(columns) or list(dict.fromkeys(name for row in rows for name in row))[:8]
    found = [[_value(row, name) for name in names] for row in rows]
    cells = [[cell(name, value)[:LONGEST_CELL] for name, value in zip(names, row, strict=True)] for row in found]
    heads = ["at" if name == "at_ms" else name.rpartition(".")[2].removesuffix("_at_ms") for name in names]
    widths = [max(len(row[at]) for row in [heads, *cells]) for at in range(len(names))]
    right = [all(isinstance(row[at], int | float | None) for row in found) and not _is_time(name)
             for at, name in enumerate(names)]  # fmt: skip
    return [
        "  ".join(text.rjust(width) if side else text.ljust(width)
                  for text, width, side in zip(row, widths, right, strict=True)).rstrip()
        for row in [heads, *cells]
    ]  # fmt: skip


def _value(row: dict[str, Any], name: str) -> Any:
    """A row's value; "message.tags" is the tags of its message, if it has one."""
    head, dot, rest = name.partition(".")
    value = row.get(head)
    return _value(value, rest) if dot and isinstance(value, dict) else None if dot else value


def facts(answer: dict[str, Any], indent: str = "", columns: Sequence[str] = ()) -> list[str]:
    """name: value, one a line; what is nested is indented. columns: of a nested list that has all of them."""
    lines = []
    for name, value in answer.items():
        if isinstance(value, dict) and value and not _is_sentence(value):
            lines += [f"{indent}{name}:", *facts(value, indent + "  ", columns)]
        elif isinstance(value, list) and value and isinstance(value[0], dict) and not _is_sentence(value[0]):
            wanted = columns if set(columns) <= value[0].keys() else ()
            lines += [f"{indent}{name}:", *(f"{indent}  {line}" for line in table(value, wanted))]
        else:
            lines.append(f"{indent}{name}: {cell(name, value)}")
    return lines


def change(answer: dict[str, Any]) -> list[str]:
    """What differs, and what that would do."""
    lines = [f"{one['field']}: {cell('', one['before'])} -> {cell('', one['after'])}" for one in answer["differences"]]
    lines += [f"warning: {plain(one['text'])}" for one in answer["warnings"]]
    lines += [f"in the way: {plain(one['text'])}" for one in answer["blockers"]]
    if answer["applied"]:
        return [*lines, f"{plain(answer['name'])}: done"]
    return [*lines, f"{plain(answer['name'])}: nothing has been changed yet" if lines else "nothing would change"]


def is_change(answer: dict[str, Any]) -> bool:
    return {"applied", "differences", "blockers"} <= answer.keys()


def is_diagnosis(answer: dict[str, Any]) -> bool:
    return {"group", "findings", "looked"} <= answer.keys()


def diagnosis(answer: dict[str, Any]) -> list[str]:
    """What is wrong with a group, and the commands that go on from there."""
    lines = []
    for one in answer["findings"]:
        lines.append(f"{one['level']}: {plain(one['sentence']['text'])}")
        held = one["message"]
        if held is not None:
            least = "" if held["delivered_whole"] else " or more"
            lines += [
                f"  message: {plain(held['topic'])}/{held['queue_id']}/{held['offset']}, id "
                f"{cell('', held['unique_id'] or held['offset_id'])}, stored {_time(held['stored_at_ms'])}",
                f"  given out: {held['delivered']}{least}, last to {cell('', held['last_client'])} "
                f"at {cell('at_ms', held['last_at_ms'])}; locked by {cell('', held['held_by'])}",
                f"  look at it: rocketbox message show {held['offset_id']}",
                f"  skip it: rocketbox group reset {_word(answer['group'])} {_reset_options(held['skip'])}",
            ]
    lines += [
        f"not known: {one['kind']}: {plain(one['why']['text'])}"
        for one in answer["looked"]
        if one["state"] == "unknown"
    ]
    return lines if answer["findings"] else ["Nothing wrong was found.", *lines]


def _reset_options(skip: dict[str, Any]) -> str:
    places = [f"--topic {_word(topic)}" for topic in skip["topics"]] + [f"--queue {queue}" for queue in skip["queues"]]
    return " ".join([*places, f"--to {skip['to']} --offset {skip['offset']}"])


def _word(text: str) -> str:
    return shlex.quote(plain(text))


def cell(name: str, value: Any) -> str:
    """A value in one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _is_time(name) and isinstance(value, int):
        return _time(value)
    if isinstance(value, dict):
        if _is_sentence(value):
            return plain(value["text"])
        if "offset_id" in value and "topic" in value:
            return plain(f"{value['topic']}/{value.get('queue_id')}/{value.get('queue_offset', '')}".rstrip("/"))
        return plain(json.dumps(value, ensure_ascii=False))
    if isinstance(value, list):
        return ", ".join(cell("", one) for one in value) or "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    return plain(str(value))


def _is_time(name: str) -> bool:
    return name == "at_ms" or name.endswith("_at_ms")


def _is_sentence(value: dict[str, Any]) -> bool:
    return value.keys() == {"code", "text", "args"}


def _time(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
