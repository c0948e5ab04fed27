"""`rocketbox audit check|accept`: the audit log's seals, and going on after somebody has looked at what was found."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .offline_console import open_console, who

USAGE = """\
usage: rocketbox audit check [options of serve, as --data-dir DIR]
       rocketbox audit accept [options of serve, as --data-dir DIR]

check reads every entry of the audit log; exit status 1 when one was changed, removed or put in, or the newest are
missing. accept goes on from the log as it is now, and says so in it: after an older copy of the data was restored on
purpose, or when the reason is known. Until then every check fails. The server may run meanwhile."""


def run(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status. Raises StartError for what cannot be done."""
    if not arguments or arguments[0] not in ("check", "accept") or {"--help", "-h"} & set(arguments):
        print(USAGE, file=sys.stderr)
        return 0 if {"--help", "-h"} & set(arguments) else 2
    act, *rest = arguments
    open_console(rest)
    from ..console import audit

    if act == "check":
        found = audit.check()
        print(found)
        return 0 if found.is_well else 1
    entry = audit.accept(who())
    print("Nothing was broken." if entry is None else f"Accepted; entry {entry.pk} of the audit log says so.")
    return 0
