"""Every page, operation of the API and command, said once: one row an act, a module for each subject.

Of these rows are made: the console's addresses (`urls`), the access table (`access`), the bounds of bodies
(`request_bodies`), what users with patterns may see (`scope`), what a slave refuses, the command lines that pages show
(`curl`), and the commands of `rocketbox` (`commands/remote`). What has no row is refused. tests/golden/access.txt lists
what follows from them, for reviews. The order of rows is that of the commands in the help.
"""

from __future__ import annotations

from . import messages, reports, system, topics, users
from .row import Act, Call

_ROWS = (*topics.ROWS, *messages.ROWS, *reports.ROWS, *users.ROWS, *system.ROWS)

ACTS: tuple[Act, ...] = tuple(row for row in _ROWS if isinstance(row, Act))
#: (Name of its page, call).
CALLS: tuple[tuple[str, Call], ...] = tuple((row.name, call) for row in _ROWS for call in row.calls)
