"""The lines of a diagnosis: what was checked, what was found, what to do."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ..engine import plain_text
from ..engine.plain_text import plain

OK, WARN, FAIL = "ok", "warn", "fail"
#: A size as text: 1536 -> "1.5 KiB".
size_text = partial(plain_text.size_text, unit="bytes")


class Line(NamedTuple):
    """level: "ok", "warn" (it runs, but a person should know) or "fail" (it will not start, or something is lost).
    name: what was checked, one word. text: a sentence. advice: what to do, "" for nothing."""

    level: str
    name: str
    text: str
    advice: str = ""

    def __str__(self) -> str:
        line = f"{self.level:<4}  {self.name:<12}  {plain(self.text)}"
        return f"{line}\n{'':20}-> {plain(self.advice)}" if self.advice else line


class Diagnosis:
    """All lines, in the order of the checks."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def ok(self, name: str, text: str, advice: str = "") -> None:
        self.lines.append(Line(OK, name, text, advice))

    def warn(self, name: str, text: str, advice: str) -> None:
        self.lines.append(Line(WARN, name, text, advice))

    def fail(self, name: str, text: str, advice: str) -> None:
        self.lines.append(Line(FAIL, name, text, advice))

    def count(self, level: str) -> int:
        return sum(line.level == level for line in self.lines)
