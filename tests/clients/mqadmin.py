"""mqadmin's printed answers, with what no two runs share replaced, to be held against recorded ones."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.clients.agents import Agent

RECORDED = Path(__file__).resolve().parents[1] / "golden" / "mqadmin"

# In this order: what stands for an address must be gone before single numbers are looked for.
_VARIABLE = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?", "<time>"),
    (r"\bV[45]_\d_\d+\b", "<version>"),
    (r"\b(?:\d{1,3}\.){3}\d{1,3}:\d+", "<address>"),
    (r"\b(?:\d{1,3}\.){3}\d{1,3}@", "<ip>@"),
    (r"\b[0-9A-F]{32,}\b", "<id>"),
    (r"@[0-9a-f]{5,8}\b", "@<hash>"),
    (r"(?:body=\[[^\]]*\]|BODY: .*)", "<body>"),
    (r"\badm\d\b", "adm<n>"),
    (r"\b\d+ms\b", "<n>ms"),
    (r"See https?://\S+", "See <url>"),
    (r"((?:allocateMessageQueueStrategy|messageListener) +:) .*", r"\1 <class>"),
    (r"(?<![\w<])-?\d+(\.\d+)?([eE]-?\d+)?w?\b", "<n>"),
)
_PROPERTIES = re.compile(r"roperties(?:=|: +)\{([^}]*)\}")


def run(agent: Agent, namesrv: str, line: str, **credentials: str) -> str:
    """Run `mqadmin LINE` in the agent; what it printed, without stack frames. Arguments are quoted as in a shell.

    credentials: `access_key` and `secret_key`, which it signs with.
    """
    name, *arguments = shlex.split(line)
    printed: str = agent.do("mqadmin", arguments=[name, "-n", namesrv, *arguments], **credentials)["printed"]
    return re.sub(r"(?m)^\s+(?:at \S+\(|\.\.\. \d+ more).*\n", "", printed)


def recorded(version: str, label: str) -> str:
    """Return what the mqadmin of `version` printed against a server of the same version, without its command line."""
    return (RECORDED / version / f"{label}.txt").read_text().partition("\n")[2]


def form(text: str) -> list[str]:
    """Every different line with numbers, times, ids and addresses replaced, blanks made one; sorted.

    Two tables of any length have the same form when their columns are the same. Stacks of threads are left out, and so
    are three properties that 5.3.3 keeps in a message and 4.9 does not.
    """
    lines = set()
    text = text.partition("#Consumer jstack#")[0].replace("]MessageTrack", "]\nMessageTrack")
    for line in text.splitlines():
        line = _PROPERTIES.sub(_sorted_properties, line)
        for pattern, stands_for in _VARIABLE:
            line = re.sub(pattern, stands_for, line)
        line = " ".join(line.split())
        if line:
            lines.add(line)
    return sorted(lines)


def _sorted_properties(found: re.Match[str]) -> str:
    """The order is that of a Java hash map."""
    kept = [text for text in found[1].split(", ") if not text.startswith(("MSG_REGION=", "WAIT=", "TRACE_ON="))]
    return "roperties={" + ", ".join(sorted(kept)) + "}"


def rows(text: str) -> list[list[str]]:
    """The cells of a table's rows, below its head."""
    return [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
