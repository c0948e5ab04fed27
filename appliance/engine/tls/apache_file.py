"""Apache's tls.properties (`tlsConfigFile`): what it says that is served here, and a report of the rest.

Read once, at the start. Source: RocketMQ 5.3.3 `TlsSystemConfig`, `TlsHelper`; a file of Java's `Properties`.
"""

from __future__ import annotations

from ..config_file import parse_properties
from ..errors import StartError
from ..regular_file import open_regular

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
_MODES = {"none": "none", "optional": "optional", "require": "required"}


def read_tls_properties(path: str) -> tuple[dict[str, str], list[str]]:
    """Return option -> value, and a sentence about each key that is not served. Raises StartError for a file that
    cannot be read."""
    try:
        with open_regular(path) as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise StartError(f"tlsConfigFile={path} cannot be read: {error.strerror}.") from None
    if len(raw) > _MOST_BYTES:
        raise StartError(f"tlsConfigFile={path} is longer than {_MOST_BYTES >> 10} KiB, so not Apache's.")
    try:
        given = dict(parse_properties(raw.decode("latin-1")))
    except UnicodeDecodeError:
        raise StartError(f"tlsConfigFile={path} holds half of a surrogate pair, which is not text.") from None
    if any("\0" in value for value in given.values()):
        raise StartError(f"tlsConfigFile={path} holds a value with a NUL, which is in no path.")
    options = {option: given[key] for key, option in _FILES.items() if given.get(key)}
    told = []
    # Apache takes these in any case of letters.
    need, checks = given.get(_NEED, "none").lower(), given.get(_CHECKS, "false").lower() == "true"
    mode = _MODES.get(need or "none")
    if mode in ("optional", "required") and checks:
        options["tlsClientAuth"] = mode
    else:
        options.pop("tlsClientCaFile", None)
        if mode is None:
            told.append(f"{_NEED}={need[:100]!r} is none of Apache's values: clients are asked for no certificate.")
        elif mode != "none":
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
