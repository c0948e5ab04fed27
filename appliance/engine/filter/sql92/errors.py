"""The error that a filter expression is refused with."""

from __future__ import annotations

from ...errors import RocketBoxError

_TAB = 8


class SqlError(RocketBoxError):
    """An expression that is not SQL92. `str()` is one line for people: the message and where it is.

    line and column: of the first wrong character, both from 1, counted as RocketMQ's parser counts them (a tab goes on
    to the next multiple of 8, a character beyond U+FFFF takes two columns, \\r\\n is one end of a line).
    """

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(f"{message} (line {line}, column {column})")
        self.message = message
        self.line = line
        self.column = column


def error_at(text: str, position: int, message: str) -> SqlError:
    """Return the error for the character at `position`; at or behind the end, for the last one there is."""
    line, column = position_of(text, position)
    return SqlError(message, line, column)


def position_of(text: str, position: int) -> tuple[int, int]:
    """Return line and column of a character. Source: JavaCC `SimpleCharStream.UpdateLineColumn`."""
    if not text:
        return 1, 1
    position = min(position, len(text) - 1)
    start = max(text.rfind("\n", 0, position), text.rfind("\r", 0, position)) + 1
    if start == position and text[position] == "\n" and text[position - 1 : position] == "\r":
        start = max(text.rfind("\n", 0, position - 1), text.rfind("\r", 0, position - 1)) + 1
    before = text[:start]
    line = 1 + before.count("\n") + before.count("\r") - before.count("\r\n")
    column = 0
    for character in text[start : position + 1]:
        if character == "\t":
            column += _TAB - column % _TAB
        else:
            column += 1 if character <= "\uffff" else 2
    return line, column
