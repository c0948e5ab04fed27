"""Cuts an expression into tokens, one at a time, as RocketMQ's token manager does.

One at a time matters: text behind a complete expression is never read, so it is never refused either.
Source: the tokens of `SelectorParser.jj` (filter module of RocketMQ 5.3.3); the longest match wins, then the keyword.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .errors import SqlError, error_at

WORD = "word"  # an identifier; keywords have their own kind, in capitals
STRING = "string"
WHOLE = "whole"
FLOAT = "float"
END = "end"

#: Keywords, in any case; none of them can name a property.
KEYWORDS = frozenset(
    "NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH".split()
)  # fmt: skip

_BLANKS = re.compile(r"[ \t\n\r\f]*+")
_LINE_COMMENT = re.compile(r"--[^\n\r]*+(?:\r\n|\n|\r)")
# A doubled quote is a quote inside. Backtracking is wanted: in 'abc'' the longest match is 'abc'.
_TOKEN = re.compile(
    r"""
      (?P<word>[A-Za-z_$][A-Za-z0-9_$]*+)
    | (?P<float>(?:[0-9]++\.[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+|[0-9]++[eE][+-]?[0-9]++)
    | (?P<whole>0|[1-9][0-9]*+[lL]?)
    | (?P<string>'[^']*+(?:''[^']*+)*')
    | (?P<sign><>|<=|>=|[=<>(),+-])
    """,
    re.VERBOSE,
)


class Token(NamedTuple):
    """kind: one of the above, a keyword or the sign itself. text: as written. start: its first character's place."""

    kind: str
    text: str
    start: int


class Lexer:
    """The tokens of one text. `next` returns END for ever at the end, and raises SqlError where no token begins."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._at = 0
        # A comment of one line needs the line's end: without it `--` is two minus signs.
        self._last_line_end = max(text.rfind("\n"), text.rfind("\r"))

    def next(self) -> Token:
        text = self.text
        at = self._skip()
        if at >= len(text):
            return Token(END, "", len(text))
        found = _TOKEN.match(text, at)
        if found is None:
            raise self._no_token(at)
        self._at = found.end()
        kind = found.lastgroup or ""
        image = found[0]
        if kind == "word":
            upper = image.upper()
            return Token(upper if upper in KEYWORDS else WORD, image, at)
        return Token(image if kind == "sign" else kind, image, at)

    def _skip(self) -> int:
        """Skip blanks and comments; return the place behind them."""
        text, at = self.text, self._at
        while True:
            found = _BLANKS.match(text, at)
            assert found is not None
            at = found.end()
            if text.startswith("--", at) and at < self._last_line_end:
                comment = _LINE_COMMENT.match(text, at)
                assert comment is not None
                at = comment.end()
            elif text.startswith("/*", at):
                end = text.find("*/", at + 2)
                if end < 0:
                    raise error_at(text, at, "The comment /* has no */")
                at = end + 2
            else:
                self._at = at
                return at

    def _no_token(self, at: int) -> SqlError:
        character = self.text[at]
        if character == "'":
            return error_at(self.text, at, "The string has no closing quote")
        shown = character if character.isprintable() else f"U+{ord(character):04X}"
        return error_at(self.text, at, f"Nothing of SQL92 begins with {shown}")


def string_value(image: str) -> str:
    """Return the text of a string token: without its quotes, doubled ones once."""
    return image[1:-1].replace("''", "'")
