"""Lines of RocketBox's journals: a text without newlines, with a checksum before it. PURE.

    6f0a7c1e {"table":"topics", ...}\\n        CRC-32 of the text as eight hex digits, a blank, the text

Each journal decides what a torn or damaged line means. Formats: docs/formats/config.md, offset-resets.md,
replay-job.md.
"""

from __future__ import annotations

from zlib import crc32

_CRC_BYTES = 9  # eight digits and the blank


def line_of(text: bytes) -> bytes:
    """Return the line of a text with its newline."""
    return b"%08x %b\n" % (crc32(text), text)


def only_text(data: bytes) -> bytes:
    """Return the text of a file of one line. Raises ValueError if it is damaged."""
    text = text_of(data[:-1]) if data.endswith(b"\n") else None
    if text is None:
        raise ValueError("its checksum does not match")
    return text


def text_of(line: bytes) -> bytes | None:
    """Return the text of a line (without its newline); None if the line is damaged."""
    text = line[_CRC_BYTES:]
    return text if line[:_CRC_BYTES] == b"%08x " % crc32(text) else None
