"""Apache's tls.properties (`tlsConfigFile`): what it says that is served here, and a report of the rest.

Read once, at the start. Source: RocketMQ 5.3.3 `TlsSystemConfig`, `TlsHelper`; a file of Java's `Properties`.
"""

from __future__ import annotations

import re
from pathlib import Path

from ..errors import StartError

_MOST_BYTES = 64 << 10
#: Key of Apache's -> option of the same meaning.
_FILES = {
    "tls.server.certPath": "tlsCertFile",
    "tls.server.keyPath": "tlsKeyFile",
    "tls.server.trustCertPath": "tlsClientCaFile",
}
_NEED, _CHECKS = "tls.server.need.client.auth", "tls.server.authClient"
_TEST = "tls.test.mode.enable"
_NOT_SERVED = {
    "tls.server.keyPassword": "a key with a password is not served: store it without one, readable by the server alone",
    "tls.server.mode": "Apache reads the mode from the command line alone: say tlsMode",
}
_PAIR = re.compile(r"((?:\\.|[^\\=:\s])+)\s*[=:\s]?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


def read_tls_properties(path: str) -> tuple[dict[str, str], list[str]]:
    """Return option -> value, and a sentence about each key that is not served. Raises StartError for a file that
    cannot be read."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise StartError(f"tlsConfigFile={path} cannot be read: {error.strerror}.") from None
    if len(raw) > _MOST_BYTES:
        raise StartError(f"tlsConfigFile={path} is longer than {_MOST_BYTES >> 10} KiB, so not Apache's.")
    given = _pairs(raw.decode("latin-1"))
    options = {option: given[key] for key, option in _FILES.items() if given.get(key)}
    told = []
    need, checks = given.get(_NEED, "none"), given.get(_CHECKS, "false").lower() == "true"
    if need in ("optional", "require") and checks:
        options["tlsClientAuth"] = "required" if need == "require" else "optional"
    else:
        options.pop("tlsClientCaFile", None)
        if need in ("optional", "require"):
            told.append(
                f"{_NEED}={need} without {_CHECKS}=true is not served: Apache takes any certificate then; here "
                "clients are asked for none."
            )
    if given.get(_TEST, "true").lower() == "true":
        told.append(f"{_TEST} is not served: no certificate is made at the start; the files that are named count.")
    for key in sorted(given):
        if key in _NOT_SERVED:
            told.append(f"{key} is not served: {_NOT_SERVED[key]}.")
        elif key.startswith("tls.client."):
            told.append(f"{key} has no effect: as a client of other brokers this one shows its own certificate.")
        elif key not in _FILES and key not in (_NEED, _CHECKS, _TEST):
            told.append(f"{key[:100]!r} is none of Apache's keys.")
    return options, [f"tlsConfigFile={path}: {sentence}" for sentence in told]


def _pairs(text: str) -> dict[str, str]:
    """Return the pairs of a file of Java's Properties."""
    found = {}
    line = ""
    for part in text.splitlines():
        part = part.lstrip()
        if not line and part[:1] in ("#", "!"):
            continue
        line += part
        if (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1]  # it goes on in the next one
            continue
        match = _PAIR.match(line)
        if match:
            found[_plain(match[1])] = _plain(match[2]).strip()
        line = ""
    return found


def _plain(text: str) -> str:
    controls = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
    return _ESCAPE.sub(lambda m: chr(int(m[1][1:], 16)) if len(m[1]) > 1 else controls.get(m[1], m[1]), text)
