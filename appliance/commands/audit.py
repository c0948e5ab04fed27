"""`rocketbox audit check|accept`: checks the audit log for tampering, and accepts it as it is after an
investigation."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .offline_console import open_console, who

USAGE = """\
usage: rocketbox audit check [options of serve, as --data-dir DIR]
       rocketbox audit accept [options of serve, as --data-dir DIR]

check reads the whole audit log; its exit status is 1 when an entry was changed, removed or inserted, or the newest ones
are missing. From then on every check fails, until accept takes the log as it is now and adds an entry that says so: use
it when the reason is known, as after restoring an older copy of the data. The server may be running."""


def run(arguments: Sequence[str]) -> int:
    """Run the command; return the exit status. Raises StartError if it cannot be done."""
    if not arguments or arguments[0] not in ("check", "accept") or {"--help", "-h"} & set(arguments):
        print(USAGE, file=sys.stderr)
        return 0 if {"--help", "-h"} & set(arguments) else 2
    act, *rest = arguments
    open_console(rest)
    from ..console.audit import log as audit

    if act == "check":
        found = audit.check()
        print(found)
        return 0 if found.is_well else 1
    entry = audit.accept(who())
    print("There was nothing to accept." if entry is None else f"Accepted; entry {entry.pk} of the audit log says so.")
    return 0
