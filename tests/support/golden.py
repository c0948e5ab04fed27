"""Reads the recordings under tests/golden."""

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
VERSIONS = ("4.9.8", "5.3.3")


def transcripts(version: str) -> list[Path]:
    """Every recorded conversation of one version."""
    return sorted((GOLDEN / "wire" / version).glob("*.jsonl.gz"))


def frames(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """(line without its frame, the frame) for each line of a transcript."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for text in file:
            line = json.loads(text)
            yield line, base64.b64decode(line.pop("frame_b64"), validate=True)
