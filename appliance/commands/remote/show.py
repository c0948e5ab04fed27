"""Prints answers for people: tables of lists, differences of changes, names and values of everything else."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from ...engine.plain_text import plain, size_text, span_text

#: Most characters of a value in a table. Names, keys and ids, which have no blanks, are typed again: these have
#: NAME_CELL. The last column has no bound.
LONGEST_CELL, NAME_CELL = 60, 255
#: Values of a list of numbers that are shown.
_MOST_NUMBERS = 12
#: Three years: a longer span is shown as a moment.
NO_SPAN_MS = 100_000_000_000
#: Headings that are clearer than the API's names.
_HEADS = {"consumers": "groups"}
_ASKED = re.compile(r"(time) (\d{1,19})")


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> list[str]:
    """Return lines with the columns side by side, numbers to the right. A number with a reason beside it is the least
    that it can be: "≥ 7"."""
    if not rows:
        return ["(none)"]
    shown = [name.removesuffix("?") for name in columns if name[-1] != "?" or _has(rows[0], name[:-1])]
    names = shown or list(dict.fromkeys(name for row in rows for name in row))[:8]
    found = [[_value(row, name) for name in names] for row in rows]
    cells = [[_least(row, name) + cell(name, _value(row, name)) for name in names] for row in rows]
    heads = [_HEADS.get(head := _label(name.rpartition(".")[2], names), head) for name in names]
    right = [all(isinstance(row[at], int | float | None) for row in found) and not _is_time(name)
             for at, name in enumerate(names)]  # fmt: skip
    return laid_out(heads, cells, right)


def more_of_a_table(rows: Sequence[dict[str, Any]], columns: Sequence[str], widths: list[int]) -> list[str]:
    """Return lines of rows that come bit by bit, with the heads above the first. widths: of the columns so far, which
    grow with what comes; the caller keeps them."""
    cells = [[cell(name, row.get(name)) for name in columns] for row in rows]
    if rows and not widths:
        cells.insert(0, [_label(name, columns) for name in columns])
        widths += [0] * len(columns)
    for row in cells:
        widths[:] = [max(width, len(_cut(text))) for width, text in zip(widths, row, strict=True)]
    return ["  ".join(map(str.ljust, map(_cut, row[:-1]), widths)) + f"  {row[-1]}" for row in cells]


def laid_out(heads: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Return lines with the cells below their heads. right: for each column, whether it is flush right."""
    if not cells:
        return ["(none)"]
    cells = [[*map(_cut, row[:-1]), row[-1]] for row in cells]
    widths = [max(len(row[at]) for row in [heads, *cells]) for at in range(len(heads))]
    return [
        "  ".join(text.rjust(width) if side else text.ljust(width)
                  for text, width, side in zip(row, widths, right, strict=True)).rstrip()
        for row in [heads, *cells]
    ]  # fmt: skip


def _cut(text: str) -> str:
    most = LONGEST_CELL if " " in text else NAME_CELL
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _least(row: dict[str, Any], name: str) -> str:
    return "≥ " if row.get(f"{name}_why") is not None and row.get(name) is not None else ""


def _has(row: dict[str, Any], name: str) -> bool:
    head, dot, rest = name.partition(".")
    return head in row and (not dot or (isinstance(row[head], dict) and _has(row[head], rest)))


def _value(row: dict[str, Any], name: str) -> Any:
    """Return a row's value; "message.tags" is the tags of its message, if it has one."""
    head, dot, rest = name.partition(".")
    value = row.get(head)
    return _value(value, rest) if dot and isinstance(value, dict) else None if dot else value


def facts(answer: dict[str, Any], indent: str = "", columns: Sequence[str] = ()) -> list[str]:
    """Return lines "name: value"; nested ones are indented. columns: of a nested list that has all of them."""
    lines = []
    for wire, value in answer.items():
        if (
            wire == "states" and isinstance(value, dict) and value.keys() == {""}
        ):  # of a preview, in which no item has a state yet
            continue
        if value is None and wire.endswith("_why"):  # the reason why a value is not known, and it is
            continue
        name = _label(wire, answer)
        if isinstance(value, dict) and value and not _is_sentence(value):
            lines += [f"{indent}{name}:", *facts(value, indent + "  ", columns)]
        elif isinstance(value, list) and value and isinstance(value[0], dict) and not _is_sentence(value[0]):
            wanted = columns if set(columns) <= value[0].keys() else ()
            lines += [f"{indent}{name}:", *(f"{indent}  {line}" for line in table(value, wanted))]
        else:
            lines.append(f"{indent}{name}: {cell(wire, value) or '-'}")
    return lines


def change(answer: dict[str, Any]) -> list[str]:
    """Return lines with the differences of a change, its warnings, a secret that was made, and whether it was
    applied."""
    lines = [f"{one['field']}: {cell('', one['before'])} -> {cell('', one['after'])}" for one in answer["differences"]]
    lines += [f"warning: {plain(one['text'])}" for one in answer["warnings"]]
    lines += [f"in the way: {plain(one['text'])}" for one in answer["blockers"]]
    if answer["applied"]:
        if answer.get("secret"):
            lines.append(f"secret, shown only now: {plain(answer['secret'])}")
        return [*lines, f"{plain(answer['name'])}: done"]
    return [*lines, f"{plain(answer['name'])}: nothing has been changed yet" if lines else "nothing would change"]


def is_change(answer: dict[str, Any]) -> bool:
    return {"applied", "differences", "blockers"} <= answer.keys()


def is_diagnosis(answer: dict[str, Any]) -> bool:
    return {"group", "findings", "looked"} <= answer.keys()


def _given_out(held: dict[str, Any]) -> str:
    if not held["delivered"]:
        return "never" if held["delivered_whole"] else "not known"
    least = "" if held["delivered_whole"] else " or more"
    at = cell("at_ms", held["last_at_ms"])
    return f"{held['delivered']}{least}, last to {cell('', held['last_client'])} at {at}"


def diagnosis(answer: dict[str, Any]) -> list[str]:
    """Return lines with the problems of a group, what to do about each, and the commands for the next step."""
    lines = []
    for one in answer["findings"]:
        lines.append(f"{one['level']}: {plain(one['sentence']['text'])}")
        # An older server has none.
        if one.get("advice"):
            lines.append(f"  what to do: {plain(one['advice'])}")
        held = one["message"]
        if held is not None:
            lines += [
                f"  message: {plain(held['topic'])}/{held['queue_id']}/{held['offset']}, id "
                f"{cell('', held['unique_id'] or held['offset_id'])}, stored {_time(held['stored_at_ms'])}",
                f"  given out: {_given_out(held)}; locked by {cell('', held['held_by'])}",
                f"  look at it: rocketbox message show {held['offset_id']}",
                f"  skip it: rocketbox group reset {_word(answer['group'])} {_reset_options(held['skip'])}",
            ]
    unknown: dict[str, list[str]] = {}
    for one in answer["looked"]:
        if one["state"] == "unknown":
            unknown.setdefault(plain(one["why"]["text"]), []).append(one["kind"].replace("_", " "))
    lines += [f"not known: {', '.join(kinds)}. {why}" for why, kinds in unknown.items()]
    return lines if answer["findings"] else ["Nothing wrong was found.", *lines]


def is_message(answer: dict[str, Any]) -> bool:
    return {"story", "story_notes", "groups", "offset_id"} <= answer.keys()


def message(answer: dict[str, Any]) -> list[str]:
    """Return lines with a message, what happened to it, and why each group has it or not."""
    apart = ("story", "story_notes", "groups")
    lines = facts({name: value for name, value in answer.items() if name not in apart})
    own = f"{answer['topic']}/{answer['queue_id']}/{answer['queue_offset']}"
    lines.append("story:")
    for event in answer["story"]:
        told = [
            f"{_label(name, event['detail'])} {cell(name, value)}"
            for name, value in event["detail"].items()
            if value not in (None, "")
            and value is not True
            and not name.endswith("offset_id")
            and (name, value) not in (("place", own), ("count", 1), ("times", 0))
        ]
        at = "time not known" if event["at_ms"] is None else _time(event["at_ms"])
        lines.append("  " + "  ".join((at, event["what"].replace("_", " "), ", ".join(told))).rstrip())
    lines += [f"  {cell('', note)}" for note in answer["story_notes"]]
    lines.append("groups:")
    for one in answer["groups"]:
        lines.append(f"  {plain(one['group'])}: {one['state']}. {cell('', one['why'])}")
        if one["deliveries"]:
            last = f"{cell('', one['delivered_to'])} at {cell('at_ms', one['delivered_at_ms'])}"
            lines.append(f"    given out: {one['deliveries']}, last to {last}")
        if one["state"] in ("waiting", "delivered"):
            lines.append(f"    more: rocketbox group diagnosis {_word(one['group'])}")
    return lines if answer["groups"] else [*lines, "  (none)"]


def _reset_options(skip: dict[str, Any]) -> str:
    places = [f"--topic {_word(topic)}" for topic in skip["topics"]] + [f"--queue {queue}" for queue in skip["queues"]]
    return " ".join([*places, f"--to {skip['to']} --offset {skip['offset']}"])


def _word(text: str) -> str:
    return shlex.quote(plain(text))


def cell(name: str, value: Any) -> str:
    """Return a value in one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and (shown := _in_units(name, value)):
        return shown
    if isinstance(value, dict):
        if _is_sentence(value):
            return plain(value["text"])
        if "offset_id" in value and "topic" in value:
            return plain(f"{value['topic']}/{value.get('queue_id')}/{value.get('queue_offset', '')}".rstrip("/"))
        return plain(json.dumps(value, ensure_ascii=False))
    if isinstance(value, list):
        if len(value) > _MOST_NUMBERS and all(isinstance(one, int | float | None) for one in value):
            return f"{cell(name, value[0])} … {cell(name, value[-1])} ({len(value)} values, all of them with --json)"
        return ", ".join(cell(name, one) for one in value) or "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    if name == "asked" and (asked := _ASKED.fullmatch(str(value))):
        return f"{asked[1]} {_time(int(asked[2]))}"
    return plain(str(value))


def _in_units(name: str, value: float) -> str | None:
    """Return a moment, a span, a size, a rate or a share as people read them; None for a plain number."""
    if _is_time(name) or (name.endswith("_ms") and value >= NO_SPAN_MS):
        return _time(int(value))
    if name.endswith("_ms") or name == "ms":
        return f"{value:.0f} ms" if value < 1000 else span_text(value)
    if name.endswith("_mib"):
        return size_text(value * 2**20)
    if name in ("bytes", "bytes_read") or name.endswith("_bytes"):
        return size_text(value)
    if name.endswith("_rate"):
        return f"{size_text(value)}/s" if name.endswith("_bytes_rate") else f"{value:.1f}/s"
    return f"{value:.1f} %" if name.endswith("_percent") else None


def _label(name: str, others: Iterable[str]) -> str:
    """Return a name without its unit, which the value shows."""
    if name in ("at_ms", "ms"):
        return "at" if name == "at_ms" else "time"
    if name.endswith("_ms_why"):
        return f"{_label(name.removesuffix('_why'), others)}_why"
    if name == "peak_mib":
        return "peak"
    short = name.removesuffix("_at_ms").removesuffix("_ms")
    return f"{short}_time" if short != name and short in others else short


def series(answer: dict[str, Any]) -> list[str]:
    """Return lines of a figure over time, one step each."""
    unit = plain(str(answer.get("unit") or ""))
    rows = [
        f"{_time(at)}  {cell('', value)}" for at, value in zip(answer["times_at_ms"], answer["values"], strict=True)
    ]
    return [f"{plain(answer['name'])} ({unit})" if unit else plain(answer["name"]), *rows]


def is_series(answer: dict[str, Any]) -> bool:
    return {"name", "times_at_ms", "values"} <= answer.keys()


def _is_time(name: str) -> bool:
    return name == "at_ms" or name.endswith("_at_ms")


def _is_sentence(value: dict[str, Any]) -> bool:
    return value.keys() == {"code", "text", "args"}


def _time(at_ms: int) -> str:
    """Return a time in this machine's zone, as `--from` and `--at` take it."""
    try:
        found = datetime.fromtimestamp(at_ms // 1000).astimezone()
        return found.isoformat(" ", "seconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
