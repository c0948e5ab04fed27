"""Walks a large JSON object entry by entry, so that no C call sees more than 64 KiB of it (D10). PURE.

A broker's table of 100,000 topics is one JSON object of some 20 MB. json.loads would hold the GIL for as long as it
takes, and with it the I/O thread. The walker finds each key and each value's end itself, and hands the C decoder one
value at a time: a slice of the text, decoded as far as the value goes. Most values are a few hundred characters, so the
first slice nearly always holds all of one.

fastjson's bare integer keys (`{0:"a"}`) are quoted first, in the slice only; where the value ends in the text is then
counted back by the quotes that were put in.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterator
from typing import Any

from .. import fastjson

#: The longest value, in characters: one topic, one version, one mapping.
MAX_VALUE_CHARS = 64 * 1024
#: What a topic's entry usually fits into; cheap to slice.
FIRST_LOOK_CHARS = 1024
#: Values with bare keys, and longer ones: four times as much is tried each time, so that a table of many such values
#: takes time in proportion to its length.
_LOOKS_CHARS = (128, 512, 2048, 8192, MAX_VALUE_CHARS)

BLANK = " \t\r\n"
_BLANKS = re.compile(r"[ \t\r\n]*+")
#: A string, skipped whole, or a bare integer key. Possessive, and a string may lack its end: no text makes it look at a
#: character twice.
_BARE_KEY = re.compile(r'"(?:[^"\\]|\\.)*+"?|(?<=[{,])[ \t\r\n]*+(-?[0-9]++)(?=[ \t\r\n]*+:)', re.DOTALL)

raw_decode = fastjson.PEER_DECODER.raw_decode


def quote_bare_keys(text: str) -> tuple[str, list[int]]:
    """fastjson's `{0:"a"}` as standard JSON `{"0":"a"}`, and where the quoted keys begin in the result."""
    pieces: list[str] = []
    begins: list[int] = []
    done = 0
    for match in _BARE_KEY.finditer(text):
        if match[1] is not None:
            start, end = match.span(1)
            pieces += (text[done:start], f'"{match[1]}"')
            begins.append(start + 2 * len(begins))
            done = end
    pieces.append(text[done:])
    return "".join(pieces), begins


class JsonWalker:
    """A position in a JSON text that only moves forward.

    The caller takes turns: `entries()` gives a key, `value()` takes what belongs to it. Only values that are asked for
    are built, each of `MAX_VALUE_CHARS` at most. Errors are json.JSONDecodeError, a ValueError.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def _skip_blanks(self) -> str:
        """The next character that is not blank, without taking it; "" at the end."""
        while (end := _BLANKS.match(self._text, self._at, self._at + MAX_VALUE_CHARS).end()) > self._at:  # type: ignore[union-attr]
            self._at = end
        return self._text[end : end + 1]

    def _take(self, wanted: str) -> str:
        char = self._skip_blanks()
        if not char or char not in wanted:
            raise json.JSONDecodeError(f"expected one of {wanted}", self._text, self._at)
        self._at += 1
        return char

    def entries(self) -> Iterator[str]:
        """The keys of the object that begins here, none for null; take each key's value before the next key."""
        if self._skip_blanks() == "n":
            self.value()
            return
        self._take("{")
        if self._skip_blanks() == "}":
            self._at += 1
            return
        while True:
            key = self.value()
            self._take(":")
            yield key if type(key) is str else str(key)
            if self._take(",}") == "}":
                return

    def value(self) -> Any:
        """The value that begins here."""
        self._skip_blanks()
        text, at = self._text, self._at
        try:
            value, end = raw_decode(text[at : at + FIRST_LOOK_CHARS])
            if end < FIRST_LOOK_CHARS:
                self._at = at + end
                return value
        except json.JSONDecodeError:
            pass
        for size in _LOOKS_CHARS:
            piece = text[at : at + size]
            cut = len(piece) == size
            quoted, begins = quote_bare_keys(piece)
            try:
                value, end = raw_decode(quoted)
            except json.JSONDecodeError as error:
                if cut and size < MAX_VALUE_CHARS:
                    continue
                raise json.JSONDecodeError(error.msg, text, at) from None
            end -= 2 * bisect.bisect_left(begins, end)  # two quotes for each bare key before the end
            assert 0 < end <= len(piece), "a value ends within the piece it was read from"
            if end < len(piece) or not cut:
                self._at = at + end
                return value
        raise json.JSONDecodeError(f"a value longer than {MAX_VALUE_CHARS} characters", text, at)

    def finish(self) -> None:
        """Nothing but blanks may be left."""
        if self._skip_blanks():
            raise json.JSONDecodeError("extra data", self._text, self._at)
