"""`python -m spark_reports.run DIR`: make the reports of one run's directory, as its plan.json says."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import machine

#: Command of the one-file program, which has no -m.
COMMAND = "make-reports"


def command(*arguments: str) -> list[str]:
    """Return the command line that starts this module with these arguments, in another process."""
    if machine.way() == "one_file":
        return [sys.executable, COMMAND, *arguments]
    return [sys.executable, "-m", "spark_reports.run", *arguments]


def main(argv: Sequence[str] | None = None) -> int:
    """Make the reports; return the exit status, 0 if they were made."""
    parser = argparse.ArgumentParser(prog="spark_reports.run", description=__doc__)
    parser.add_argument("directory", type=Path, help="holds plan.json and snapshot.json")
    parser.add_argument("--parent", type=int, help="end when this process, which started this one, ends")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    place = given.directory.absolute()
    if given.work:
        from .work import work

        return work(place)
    from .keeper import main as keep

    return keep(place, given.parent, command(str(place), "--work"))


if __name__ == "__main__":
    sys.exit(main())
