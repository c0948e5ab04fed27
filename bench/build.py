"""Builds the C programs of the bench with gcc, in the user's cache; nothing is written to the work tree."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
PROGRAMS = {
    "loadgen": ("loadgen.c", "closed_loop.c", "append.c", "long_poll.c", "paced.c", "connection.c", "wire.c", "sign.c"),
    "calibrate": ("calibrate.c", "reply_server.c", "connection.c", "wire.c", "sign.c"),
}


class BuildError(RuntimeError):
    """gcc is missing or refused a source; the message holds what it said."""


def has_openssl() -> bool:
    """True if OpenSSL's headers are here; without them the generator speaks no TLS."""
    look = ["gcc", "-E", "-x", "c", "-", "-o", os.devnull]
    return subprocess.run(look, input=b"#include <openssl/ssl.h>\n", capture_output=True).returncode == 0


def build(program: str, flags: Sequence[str] = ("-O2", "-Wall", "-Wextra")) -> Path:
    """The executable `program` ("loadgen" or "calibrate"), compiled when its sources or flags are new.

    It lies in a cache directory named for the hash of every source, header and flag, so that two work trees never
    run each other's generator.
    """
    digest = hashlib.sha256(repr(tuple(flags)).encode())
    for source in sorted([*SOURCES.glob("*.c"), *SOURCES.glob("*.h")]):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    target = Path(base) / "rocketbox" / "bench" / digest.hexdigest()[:16] / program
    if target.exists():
        return target
    if shutil.which("gcc") is None:
        raise BuildError("gcc is needed to build the load generator and was not found on PATH")
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f"{program}.{os.getpid()}")
    command = ["gcc", *flags, "-o", str(fresh), *(str(SOURCES / name) for name in PROGRAMS[program])]
    if has_openssl():
        command += ["-DWITH_TLS", "-lssl", "-lcrypto"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)}\n{done.stderr}")
    fresh.rename(target)
    return target
