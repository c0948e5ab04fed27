"""Reads the recordings under tests/golden."""

import base64
import gzip
import json
import tarfile
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


def store_names() -> list[tuple[str, str]]:
    """(version, name) of every recorded store directory."""
    paths = sorted((GOLDEN / "store").glob("*/*.tar.xz"))
    return [(path.parent.name, path.name.removesuffix(".tar.xz")) for path in paths]


def store_manifest(version: str, name: str) -> dict[str, Any]:
    """Return the contents of a recorded store. `messages` are in log order; for `torn`, those of `killed` that are
    left."""
    path = GOLDEN / "store" / version / f"{name}.json.gz"
    manifest: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    if "messagesOf" in manifest:
        whole = store_manifest(version, manifest["messagesOf"])["messages"]
        manifest["messages"] = [m for m in whole if m["offset"] < manifest["commitLog"]["maxOffset"]]
    return manifest


def extract_store(version: str, name: str, directory: Path) -> None:
    """Unpack a recorded store into `directory`/store."""
    with tarfile.open(GOLDEN / "store" / version / f"{name}.tar.xz") as archive:
        archive.extractall(directory, filter="data")
