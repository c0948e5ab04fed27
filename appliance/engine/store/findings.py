"""List of damage found by recovery, a scrub or a reader, and where the bytes are kept: `quarantine/findings.jsonl`.

One JSON object a line, in the order found, appended and synced; a torn last line is ignored. The newest are kept.
"""

from __future__ import annotations

import json
import logging
import threading

from .. import fastjson
from ..disk import Disk
from ..journal_file import AppendedLines
from ..named_tuple import NamedTuple
from .paths import StorePaths

logger = logging.getLogger(__name__)

NAME = "findings.jsonl"
#: Lines kept; twice as many may be in the file before it is rewritten.
KEPT = 1000


class Finding(NamedTuple):
    """time_ms: when it was found. kind: torn (cut off the log's end), damage (a bad range of the log, stepped over),
    blocks (changed bytes of a sealed file), queues (all queues rebuilt), queue (one rebuilt), file (one set aside).
    file: path below the store directory. begin, end: the range in it, or of physical offsets in the log; -1 for all of
    it. copy: path of the kept bytes, "" if none were needed. reason: one sentence."""

    time_ms: int
    kind: str
    file: str
    begin: int
    end: int
    copy: str
    reason: str


class Findings:
    """The list, on disk. Any thread."""

    def __init__(self, paths: StorePaths, disk: Disk) -> None:
        self._directory = paths.quarantine
        self._path = paths.quarantine / NAME
        self._disk = disk
        self._lock = threading.Lock()

    def add(self, finding: Finding) -> None:
        """Append a finding, unless the same damage is listed already. Raises OSError."""
        with self._lock:
            known = self._load()
            if finding.kind in ("damage", "blocks") and any(finding[1:5] == other[1:5] for other in known):
                return
            if len(known) >= 2 * KEPT:
                self._rewrite(known[-KEPT:])
            file = AppendedLines("findings", self._path, self._disk)
            try:
                # Begins with a line end, in case the last line is torn.
                file.append(b"\n" + json.dumps(finding._asdict()).encode() + b"\n")
            finally:
                file.close()
            self._disk.sync_directory(self._directory)

    def all(self) -> list[Finding]:
        """Return the findings, oldest first. Works on a store that is not open, too."""
        with self._lock:
            return self._load()[-KEPT:]

    def _load(self) -> list[Finding]:
        try:
            raw = self._disk.read(self._path)
        except OSError:
            return []
        found = []
        for line in raw.splitlines():
            try:
                found.append(Finding(**fastjson.loads_plain(line)))
            except (ValueError, TypeError):
                if line.strip():
                    logger.warning("store: a line of %s cannot be read", NAME)
        return found

    def _rewrite(self, findings: list[Finding]) -> None:
        self._disk.replace(self._path, b"".join(json.dumps(f._asdict()).encode() + b"\n" for f in findings))
