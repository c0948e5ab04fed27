"""`rocketbox certificate make|show`: a certificate of one's own for TLS, and the facts of any."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from ..command_line import load
from ..engine.config import EngineConfig, parse_int
from ..engine.errors import StartError
from ..engine.host_port import EVERYWHERE, parse_told_host
from ..engine.plain_text import plain
from ..engine.tls.self_signed import Shown, make_pair, show
from ..runtime import is_loopback

USAGE = """\
usage: rocketbox certificate make [NAME ...] [--cert FILE] [--key FILE] [--days N] [--replace] [options of serve]
       rocketbox certificate show [FILE] [--json] [options of serve, as -c FILE]

make writes a new key, which only this user may read, and a self-signed certificate for these host names and addresses,
and prints its fingerprint. Without names it is for --advertise, --bind and this machine's name. The files are
tlsCertFile and tlsKeyFile of the options of serve, else rocketbox.pem and rocketbox.key; those that exist stay unless
--replace is given. It is valid for 365 days unless --days says otherwise.
show prints the first certificate of a file, without a name that of tlsCertFile."""

#: Certificates for longer are refused: they are forgotten, and some clients do not take them.
_MOST_DAYS = 3650
_VALUES = ("--cert", "--key", "--days")
#: Names in one certificate.
_MOST_NAMES = 64


def run(arguments: Sequence[str]) -> int:
    """Run the command; return the exit status. Raises StartError if it cannot be done."""
    if not arguments or arguments[0] not in ("make", "show") or {"--help", "-h"} & set(arguments):
        asked = bool({"--help", "-h"} & set(arguments))
        print(USAGE, file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    verb, *rest = arguments
    given, words, options = _read(rest, _VALUES if verb == "make" else ())
    config = load(options, os.environ)[0]
    if verb == "make":
        _make(config, given, words)
        return 0
    if len(words) > 1:
        raise StartError("show takes one file.")
    path = Path(words[0] if words else config.broker.tls_cert_file)
    if not str(path) or path == Path():
        raise StartError("Name a file, or the options of serve with tlsCertFile.")
    _print(path, show(path), "--json" in given)
    return 0


def _read(arguments: Sequence[str], values: Sequence[str]) -> tuple[dict[str, str], list[str], list[str]]:
    """Return (own options, words, options of serve). Raises StartError."""
    from ..command_line import OPTIONS

    given: dict[str, str] = {}
    words: list[str] = []
    options: list[str] = []
    left = iter(arguments)
    for argument in left:
        name, equals, value = argument.partition("=")
        if name in values:
            following = value if equals else next(left, None)
            if not following:
                raise StartError(f"{name} needs a value.")
            given[name] = following
        elif argument in ("--replace", "--json"):
            given[argument] = ""
        elif not argument.startswith("-"):
            words.append(argument)
        else:
            options.append(argument)
            if not equals and OPTIONS.get(name, ("",))[0] and (following := next(left, None)) is not None:
                options.append(following)
    return given, words, options


def _make(config: EngineConfig, given: dict[str, str], words: list[str]) -> None:
    certificate = Path(given.get("--cert") or config.broker.tls_cert_file or "rocketbox.pem").absolute()
    key = Path(given.get("--key") or config.broker.tls_key_file or "rocketbox.key").absolute()
    if certificate == key:
        raise StartError("Key and certificate need two files.")
    try:
        days = parse_int(given.get("--days", "365"), 1, _MOST_DAYS)
    except ValueError as error:
        raise StartError(f"--days {error}.") from None
    for path in (certificate, key):
        if not path.parent.is_dir():
            raise StartError(f"{path} cannot be written: there is no directory {path.parent}.")
        if path.exists() and not path.is_file():
            raise StartError(f"{path} is no file.")
        if path.exists() and "--replace" not in given:
            raise StartError(f"{path} exists: --replace writes a new pair in place of it.")
    names = _names(words) if words else _own_names(config)
    make_pair(certificate, key, names, days)
    print(f"Made {certificate}, and its key {key}, which only this user may read.")
    found = show(certificate)
    _print(certificate, found, False)
    print(_TRUST.format(file=certificate, key=key, name=names[0]))


def _names(words: list[str]) -> list[str]:
    try:
        names = list(dict.fromkeys(parse_told_host(word).rstrip(".") for word in words))
    except ValueError as error:
        raise StartError(f"A name {error}.") from None
    if not all(name.isascii() for name in names) or len(names) > _MOST_NAMES:
        raise StartError(f"A certificate is for at most {_MOST_NAMES} names, of ASCII characters.")
    return names


def _own_names(config: EngineConfig) -> list[str]:
    """Return the names by which clients find this machine, as far as they are configured."""
    told = [config.advertise, config.bind if config.bind not in EVERYWHERE else None]
    names = [name for name in told if name]
    if not names or not all(is_loopback(name) for name in names):
        names.append(socket.gethostname())
    return _names([*names, "localhost", "127.0.0.1"])


def _print(path: Path, found: Shown, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"file": str(path), **found._asdict()}, indent=1))
        return
    left = found.days_left
    state = f"{left} days left" if left >= 0 else "it has expired"
    lines = [
        ("subject", found.subject),
        ("issuer", "itself" if found.issuer == found.subject else found.issuer),
        ("names", ", ".join(found.names) or "none"),
        ("valid", f"{found.begins} to {found.ends}, {state}"),
        ("SHA-256", found.fingerprint),
    ]
    print(plain(str(path)))
    for name, text in lines:
        print(f"  {name:<8} {plain(text)}")


_TRUST = """
Serve it with tlsMode=permissive (or enforcing), tlsCertFile={file} and tlsKeyFile={key}.
A server that serves these two files already takes the new pair within 5 s.

It is signed by itself, so give the certificate, never the key, to the clients:
  Java, mqadmin  -Dtls.enable=true encrypts and checks nothing. To check the certificate add
                 -Dtls.test.mode.enable=false -Dtls.client.authServer=true -Dtls.client.trustCertPath={file}
  C++            setEnableSsl(true), and the certificate as /etc/rocketmq/ca.pem
  Go             WithTls(true), which 2.1.2 does not have yet; it checks no certificate
  curl           --cacert {file} https://{name}:...
  rocketbox      SSL_CERT_FILE={file}; commands on this machine trust the file that is served
  browsers       compare the SHA-256 above with the page's certificate, or import the file as trusted"""
