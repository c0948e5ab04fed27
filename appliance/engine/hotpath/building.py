"""Checks if the compiled twin can be built here, and if it was built from the sources beside it.

`setup.py` and `script/environment` run this file by itself, before anything is installed: it imports only Python's own
modules, and nothing of this package.
"""

from __future__ import annotations

import os
import zlib

_SOURCES = (".pyx", ".pxi")


def mark_of_sources(directory: str | os.PathLike[str]) -> int | None:
    """Return a number for the text of all Cython sources in a directory; None if there are none, as in a wheel.

    The compiled twin contains the number of its own sources. If a source was edited but not built, the pure twin runs,
    and never old code unnoticed. Time stamps would not do, since a checkout sets them arbitrarily.
    """
    try:
        with os.scandir(directory) as entries:
            paths = sorted(entry.path for entry in entries if entry.name.endswith(_SOURCES))
    except OSError:
        return None
    mark = 0
    for path in paths:
        with open(path, "rb") as file:
            text = file.read()
        mark = zlib.crc32(b"%b %d\n" % (os.path.basename(path).encode(), len(text)), mark)
        mark = zlib.crc32(text, mark)
    return mark if paths else None


def what_is_missing() -> str:
    """Return why nothing can be compiled for this Python, without a full stop; "" if it can. Runs the compiler once."""
    import shlex
    import shutil
    import subprocess
    import sysconfig

    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        return f"there is no C compiler {compiler[0]}"
    places = {sysconfig.get_path(name) for name in ("include", "platinclude")}
    if not any(os.path.exists(os.path.join(place, "Python.h")) for place in places):
        return "Python.h is missing, on Debian in the package python3-dev"
    include = [f"-I{place}" for place in sorted(places)]
    try:
        ran = subprocess.run(
            [*compiler, *include, "-fsyntax-only", "-x", "c", "-"],
            input=b"#include <Python.h>\n",
            capture_output=True,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"the C compiler {compiler[0]} cannot be run: {error}"
    if ran.returncode == 0:
        return ""
    lines = ran.stderr.decode(errors="replace").splitlines()
    first = next((line.strip() for line in lines if "error" in line), f"it ends with status {ran.returncode}")
    return f"the C compiler {compiler[0]} does not work: {first}"


if __name__ == "__main__":
    print(what_is_missing())
