"""Makes text from outside safe for a log line or a terminal: names in stores, client ids, remarks of peers; and writes
sizes and spans as people read them.

Characters that control a terminal, or that end a line, are written as Python writes them (`\\x1b`, `\\n`,
`\\u202e`): control characters (C0, DEL, C1), line and paragraph separators, marks that change the writing direction
(Unicode UAX 9), and halves of surrogate pairs, which no encoding can hold.
"""

from __future__ import annotations

import re

_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def plain(text: str, limit: int | None = None) -> str:
    """Return the text as one line of printable characters. If longer than `limit`, it is cut and its length follows."""
    shown = _UNPRINTABLE.sub(_escaped, text if limit is None else text[:limit])
    if limit is None or (len(text) <= limit and len(shown) <= limit):
        return shown
    return f"{shown[:limit]}... ({len(text)} characters)"


def plain_json(line: bytes) -> bytes:
    """Return a line of JSON that is safe to print to a terminal and equal for a parser. Ends with a newline."""
    text = line.rstrip(b"\n").decode()
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode() + b"\n"


def size_text(count: float, unit: str = "B") -> str:
    """Return a number of bytes with a unit that leaves few digits before the point: 1536 -> "1.5 KiB". unit: the one
    below 1024. Reports write sizes by `spark_reports.reports.text`, which rounds down and knows larger units."""
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024:
            break
        count, unit = count / 1024, larger
    return f"{count:.1f} {unit}" if unit.endswith("iB") else f"{count:.0f} {unit}"


def span_text(ms: float) -> str:
    """Return a span in its two largest units, without a second one that is 0: "2 d 4 h", "4 min 10 s", "5 min"."""
    seconds = int(ms) // 1000
    for larger, smaller, each, part in (("d", "h", 86_400, 3600), ("h", "min", 3600, 60), ("min", "s", 60, 1)):
        if seconds >= each:
            rest = seconds % each // part
            return f"{seconds // each} {larger}" + (f" {rest} {smaller}" if rest else "")
    return f"{seconds} s"


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _SHORT.get(found[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
