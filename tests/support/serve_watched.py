"""`rocketbox serve` under umask 0 that notes every file and directory it makes, with its mode; stands before
the command as a prefix of `support.server.Server`.

WATCH_LOG names the file that receives `<mode> <path>` for each; mode "-" for a file made without one, as `open()` does.
"""

import os
import sys
from typing import Any

_LOG = os.open(os.environ["WATCH_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
_open, _mkdir = os.open, os.mkdir
# True if the next audited "open" comes from os.open, which has noted it with its mode.
_noted = False


def note(mode: str, path: Any) -> None:
    os.write(_LOG, f"{mode} {os.path.abspath(os.fsdecode(path))}\n".encode())


def watched_open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    global _noted
    if flags & os.O_CREAT:
        note(f"{mode:o}", path)
    _noted = True
    return _open(path, flags, mode, dir_fd=dir_fd)


def watched_mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
    _mkdir(path, mode, dir_fd=dir_fd)
    note(f"{mode:o}", path)


def audited(event: str, arguments: tuple[Any, ...]) -> None:
    global _noted
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        if not _noted and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT:
            note("-", arguments[0])
        _noted = False


if __name__ == "__main__":
    os.umask(0)
    os.open, os.mkdir = watched_open, watched_mkdir
    sys.addaudithook(audited)
    from appliance.main import main

    sys.exit(main(sys.argv[sys.argv.index("serve") :]))
