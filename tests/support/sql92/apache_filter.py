"""Verdicts of Apache's own filter module on expressions: `SqlVerdicts.java` run on the jars of a version.

with ApacheFilter() as apache:
    apache.verdicts([("a > 5", {"a": "6"}), ("a > 5", {"a": "x"}), ("a >", {})])
    # ["TRUE", "THROWS RuntimeException", "REFUSED ParseException 1 3"]
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.apache import ApacheError, server_jars

_PROGRAM = Path(__file__).with_name("SqlVerdicts.java")
# Lines on their way at once: their answers fit a pipe, so neither side waits for the other.
_AT_ONCE = 500


class _Program:
    """The Java program in one mode; a line in, a line out."""

    def __init__(self, *arguments: str, version: str = "5.3.3") -> None:
        command = ["java", "-Xmx512m", "-cp", f"{server_jars(version)}/*", str(_PROGRAM), *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="ascii", errors="strict"
        )

    def ask(self, lines: Sequence[str]) -> list[str]:
        sink, source = self._process.stdin, self._process.stdout
        assert sink is not None
        assert source is not None
        answers: list[str] = []
        for start in range(0, len(lines), _AT_ONCE):
            part = lines[start : start + _AT_ONCE]
            sink.write("".join(f"{line}\n" for line in part))
            sink.flush()
            for _ in part:
                answer = source.readline()
                if not answer:
                    raise ApacheError(f"the Java program ended with status {self._process.wait()}")
                answers.append(answer.rstrip("\n"))
        return answers

    def close(self) -> None:
        # It ends at the end of its input.
        self._process.communicate(timeout=60)


class _Asked:
    """A JVM of its own until the `with` ends."""

    def __init__(self, *arguments: str, version: str = "5.3.3") -> None:
        self._program = _Program(*arguments, version=version)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._program.close()


class ApacheFilter(_Asked):
    """Verdicts of the module of one version."""

    def __init__(self, version: str = "5.3.3") -> None:
        super().__init__("verdicts", version=version)

    def verdicts(self, pairs: Sequence[tuple[str, Mapping[str, str]]]) -> list[str]:
        """For each expression and map TRUE, FALSE, NULL, `THROWS class` or `REFUSED class line column`."""
        return self._program.ask(
            [_line(text, [part for pair in properties.items() for part in pair]) for text, properties in pairs]
        )


class ApacheRates(_Asked):
    """Its speed. Each answer takes `milliseconds`, after as long a warm-up, a second at least."""

    def __init__(self, milliseconds: int, version: str = "5.3.3") -> None:
        super().__init__("rates", str(milliseconds), version=version)

    def rate(self, text: str, properties: Sequence[str]) -> tuple[int, int]:
        """Evaluations a second over properties texts in turn, and how many of the texts match."""
        [answer] = self._program.ask([_line(text, properties)])
        rate, matched = answer.split()
        return int(rate), int(matched)


def _line(text: str, others: Sequence[str]) -> str:
    return " ".join(part.encode("utf-16-be", "surrogatepass").hex() for part in (text, *others))
