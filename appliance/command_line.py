"""Turns arguments, environment and files into one EngineConfig and the options of `serve` itself.

Later sources win: defaults < configuration files < environment < command line. A value is parsed only if it is used, so
one that is overridden may be wrong; each refusal is one sentence with the source of the value.

A variable is ROCKETBOX_ and the name of an option (ROCKETBOX_BROKER_PORT is --broker-port), or of a table and one of
its keys (ROCKETBOX_STORE_FILE_RESERVED_TIME is fileReservedTime in [store]). Capitals and underscores do not matter.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .engine.config import ENGINE_ROLES, SECTIONS, EngineConfig, check_characters, options_of, parse_int, parse_option
from .engine.config_file import ConfigFile, Entry, read_config_file
from .engine.errors import StartError
from .engine.host_port import parse_advertised, parse_host, parse_told_host, resolved
from .runtime import Place
from .sign_in_options import KEYS as SIGN_IN_KEYS
from .sign_in_options import SignInOptions, of_keys

ENVIRONMENT_PREFIX = "ROCKETBOX_"
# Variables that are not settings: the choice of the hot path's twin, the demand that a build makes the compiled one,
# and the server that commands use.
_NO_SETTINGS = (*("ROCKETBOX_PURE", "ROCKETBOX_COMPILED", "ROCKETBOX_URL", "ROCKETBOX_TOKEN", "ROCKETBOX_TOKEN_FILE"),)
ROLES = ("broker", "namesrv", "console")
#: Most characters of an error about a value: a file passed by mistake would fill the screen.
_SENTENCE = 600


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of `rocketbox serve` that are not the engine's."""

    console: bool
    bind: str
    http_port: int
    ready_file: Path | None
    # Sentences for the operator, logged at start.
    notices: tuple[str, ...]
    # The console's address when it is behind a proxy: https://mq.example.org/rocketbox.
    public_url: str | None = None
    # Source of the address for clients ("--advertise", a file's key ...); None: not configured, so pages may set it.
    advertise_source: str | None = None
    # Ways to sign in to the console besides name and password.
    sign_in: SignInOptions = SignInOptions()
    # Purpose of this installation ("production", "staging"), a badge on every page.
    environment: str | None = None
    # Topics, groups and alert rules that each start makes or changes; None without.
    definitions: Path | None = None
    # For tests of other programs (`serve_for_tests`); own_directory: to be removed at the end, None without one.
    for_tests: bool = False
    own_directory: Path | None = None
    # PEM files of certificate and key if the console speaks HTTPS on `http_port`; None: HTTP.
    https: tuple[str, str] | None = None


# Option -> (placeholder, help, the setting it sets). A setting is "<table>.<RocketMQ's name>", or RocketBox's own name.
# An option without a placeholder takes no value.
OPTIONS: dict[str, tuple[str, str, str]] = {
    "--data-dir": ("DIR", "where RocketBox keeps everything (./data)", "dataDir"),
    "--store-dir": ("DIR", "Apache's storePathRootDir (DATA/store)", "storeDir"),
    "--bind": ("ADDR", "address to listen on (127.0.0.1)", "bind"),
    "--broker-port": ("N", "broker port; uses N-2 and N+1, too; 0 picks one (10911)", "brokerPort"),
    "--namesrv-port": ("N", "name server port; 0 picks one (9876)", "namesrvPort"),
    "--http-port": ("N", "console port; 0 picks one (8080)", "httpPort"),
    "--https-port": ("N", "serve the console by HTTPS, on this port alone; 0 picks one", "httpsPort"),
    "--https-cert": ("FILE", "PEM certificate of the console, and those that signed it (tlsCertFile)", "httpsCertFile"),
    "--https-key": ("FILE", "PEM key of that certificate (tlsKeyFile)", "httpsKeyFile"),
    "--roles": ("LIST", "which of broker,namesrv,console to run (all)", "roles"),
    "--broker-name": ("S", "brokerName (the host name)", "broker.brokerName"),
    "--broker-id": ("N", "brokerId (0)", "broker.brokerId"),
    "--cluster-name": ("S", "brokerClusterName (DefaultCluster)", "broker.brokerClusterName"),
    "--namesrv-addr": ("LIST", "name servers to register with, host:port;... (our own)", "broker.namesrvAddr"),
    "--advertise": ("HOST[:PORT]", "what clients are told (the bind address and broker port)", "advertise"),
    "--wire-admin": (
        "loopback|all|off",
        "who may administer over the broker and name server ports (loopback)",
        "wireAdmin",
    ),
    "--access-control": (
        "off|report|enforce",
        "whether requests are signed and allowed (off)",
        "broker.accessControl",
    ),
    "--tls-mode": ("disabled|permissive|enforcing", "TLS on every port of broker and name server", "broker.tlsMode"),
    "--tls-cert": ("FILE", "PEM certificate of these ports, and those that signed it", "broker.tlsCertFile"),
    "--tls-key": ("FILE", "PEM key of that certificate", "broker.tlsKeyFile"),
    "--tls-client-auth": ("none|optional|required", "certificates of clients (none)", "broker.tlsClientAuth"),
    "--tls-client-ca": ("FILE", "PEM certificates that sign those of clients", "broker.tlsClientCaFile"),
    "--proxy-protocol-from": ("LIST", "balancers that send PROXY headers, address;...", "broker.proxyProtocolFrom"),
    "--ha-bootstrap": ("", "make a new set of brokers in haStore; this one leads it first", "haBootstrap"),
    "--flush": ("sync|async", "acknowledge messages when synced to disk, or when written (sync)", "flush"),
    "--public-url": ("URL", "the console's address behind a reverse proxy, with its path", "console.publicUrl"),
    "--environment": ("NAME", "a badge on every page of the console, as production", "console.environment"),
    "--definitions": ("FILE", "topics, groups and alert rules, as YAML, that each start makes", "console.definitions"),
    "--ready-file": ("FILE", "JSON, written when all roles accept connections", "readyFile"),
    "--test": (
        "",
        "for tests: picks ports, small files, its own directory, ends with its standard input",
        "test",
    ),
    "-c": ("FILE", "settings: TOML, or Apache's broker.conf or namesrv.conf", "config"),
}

# RocketMQ's options that are settings of the whole process here.
_SETTING_OF_UPSTREAM = {
    "broker": {
        "listenPort": "brokerPort",
        "bindAddress": "bind",
        "brokerIP1": "advertise",
        "storePathRootDir": "storeDir",
        "storePathCommitLog": "storePathCommitLog",
    },
    "namesrv": {"listenPort": "namesrvPort", "bindAddress": "bind"},
    "console": {
        "httpPort": "httpPort",
        "httpsPort": "httpsPort",
        "httpsCertFile": "httpsCertFile",
        "httpsKeyFile": "httpsKeyFile",
        "publicUrl": "console.publicUrl",
        "environment": "console.environment",
        "definitions": "console.definitions",
        **{key: f"console.{key}" for key in SIGN_IN_KEYS},
    },
}
_TOP_LEVEL_KEYS = ("dataDir", "storeDir", "bind", "roles", "advertise", "wireAdmin", "readyFile")

# Setting -> (raw value, its source). Filled source by source.
Settings = dict[str, tuple[Any, str]]


def help_text() -> str:
    """Return the usage of `rocketbox serve`."""
    lines = ["usage: rocketbox serve [options]", ""]
    for name, (placeholder, text, _) in OPTIONS.items():
        lines.append(f"  {f'{name} {placeholder}':<22}  {text}")
    lines += ["", "Defaults < -c FILE < environment (ROCKETBOX_DATA_DIR ...) < command line."]
    return "\n".join(lines)


def load(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[EngineConfig, ServeOptions]:
    """Read all sources. Raises StartError, one sentence, for anything unknown, malformed or contradictory."""
    from_argv = _read_argv(argv)
    from_environ = _read_environ(environ)
    files, origin = from_argv.get("config") or from_environ.get("config") or ((), "")
    if isinstance(files, str):
        files = [files]
    settings: Settings = {}
    without_effect: list[str] = []
    notices: list[str] = []
    for name in files:
        path = Path(_text(name, origin))
        notices += _take_file(read_config_file(path), path.name, settings, without_effect)
    settings.update(from_environ)
    settings.update(from_argv)
    if without_effect:
        notices.append(f"These settings have no effect here: {', '.join(without_effect)}.")
    return _build(settings, notices)


def _read_argv(argv: Sequence[str]) -> Settings:
    settings: Settings = {}
    arguments = iter(argv)
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name == "--config":
            name = "-c"
        if name not in OPTIONS:
            raise StartError(f"There is no option {name}{_nearest(name, OPTIONS)}.")
        if not OPTIONS[name][0]:
            if equals:
                raise StartError(f"{name} takes no value.")
            value = "true"
        elif not equals:
            following = next(arguments, None)
            if following is None:
                raise StartError(f"{name} needs a value: {OPTIONS[name][0]}.")
            value = following
        setting = OPTIONS[name][2]
        if setting == "config":  # may be given more than once: a broker.conf and a namesrv.conf
            settings[setting] = ([*settings.get(setting, ([], ""))[0], value], name)
        else:
            settings[setting] = (value, name)
    return settings


def _read_environ(environ: Mapping[str, str]) -> Settings:
    ours = {
        name: value
        for name, value in environ.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name not in _NO_SETTINGS
    }
    if not ours:
        return {}
    names = environment_names()
    settings: Settings = {}
    for variable, value in ours.items():
        setting = names.get(_folded(variable.removeprefix(ENVIRONMENT_PREFIX)))
        if setting is None:
            known = {_variable(name): name for name in names}
            raise StartError(f"The variable {variable} is not a setting{_nearest(variable, known)}.")
        settings[setting] = (value, variable)
    return settings


def environment_names() -> dict[str, str]:
    """Return folded name of each variable, without the prefix -> its setting. Options win over keys of that name."""
    names = {}
    for section in SECTIONS:
        for upstream in options_of(section):
            names[_folded(section + upstream)] = f"{section}.{upstream}"
    for key in SIGN_IN_KEYS:
        names[_folded("console" + key)] = f"console.{key}"
    for option, (_, _, setting) in OPTIONS.items():
        names["config" if option == "-c" else _folded(option)] = setting
    return names


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _variable(folded: str) -> str:
    return ENVIRONMENT_PREFIX + folded.upper()


def _take_file(file: ConfigFile, origin: str, settings: Settings, without_effect: list[str]) -> list[str]:
    """Apply a file's entries; return sentences about it for the operator. Raises StartError.

    Apache's servers ignore unknown keys and keys without a value, so files that served them for years have such lines.
    In a file of RocketBox's they are errors.
    """
    if not file.is_apaches:
        for entry in file.entries:
            _take_entry(entry, origin, settings, without_effect, is_apaches=False)
        return []
    unknown: list[str] = []
    empty: list[str] = []
    for table, key, value in file.entries:
        if _home_of(table, key) is None:
            close = _similar(key, _known_names(table)) if len(unknown) < _NAMES_TOLD else []
            unknown.append(f"{key} (similar: {', '.join(close)})" if close else key)
        elif not value:
            empty.append(key)
        else:
            _take_entry((table, key, value), origin, settings, without_effect, is_apaches=True)
    told = []
    if unknown:
        told.append(f"{origin} has unknown settings, which are ignored: {_some(unknown)}.")
    if empty:
        told.append(f"{origin} has settings without a value, which are ignored: {_some(empty)}.")
    return told


#: Most names in one line of the log.
_NAMES_TOLD = 40


def _some(names: list[str]) -> str:
    more = len(names) - _NAMES_TOLD
    return ", ".join(names[:_NAMES_TOLD]) + (f" and {more} more" if more > 0 else "")


def _take_entry(entry: Entry, origin: str, settings: Settings, without_effect: list[str], *, is_apaches: bool) -> None:
    """Apply one entry of a file: to the settings, or to the list of those without effect. Raises StartError."""
    table, key, value = entry
    where = f"{origin}: {key}"
    if table == "":
        if key not in _TOP_LEVEL_KEYS:
            raise StartError(f"{origin} has an unknown setting {key} above its tables{_nearest(key, _TOP_LEVEL_KEYS)}.")
        settings[key] = (value, where)
        return
    home = _home_of(table, key)
    if home is None:
        raise StartError(f"{origin} has an unknown setting {key}{_nearest(key, _known_names(table))}.")
    if home == "":
        _check_refused(key, value, where)
        without_effect.append(key)
        return
    section = home.partition(".")[0]
    if section in SECTIONS:
        # Apache's broker.conf contains the settings of two tables here, [broker] and [store].
        if section != table and not is_apaches:
            raise StartError(f"{origin}: {key} belongs to the table [{section}], not to [{table}].")
        if not options_of(section)[key].metadata["effect"]:
            without_effect.append(key)
    settings[home] = (value, where)


def _home_of(table: str, key: str) -> str | None:
    """Return the setting that a file's key sets, "" if the key is known without effect, None if it is unknown."""
    special = _SETTING_OF_UPSTREAM.get("broker" if table == "store" else table, {}).get(key)
    if special:
        return special
    for section in (table, "broker", "store") if table in ("broker", "store") else (table,):
        if section in SECTIONS and key in options_of(section):
            return f"{section}.{key}"
    from .engine import upstream_options

    names = {"broker": upstream_options.BROKER, "store": upstream_options.BROKER, "namesrv": upstream_options.NAMESRV}
    return "" if key in names.get(table, ()) else None


def _check_refused(key: str, value: Any, where: str) -> None:
    from .engine.upstream_options import REFUSED

    if key in REFUSED:
        accepted, reason = REFUSED[key]
        text = str(value).lower() if isinstance(value, bool) else str(value).strip()
        if text.lower() not in {one.lower() for one in accepted}:
            only = " or ".join(sorted(accepted))
            raise StartError(f"{where}={text} is not possible: {reason}. The only value here is {only}.")


def _known_names(table: str) -> list[str]:
    from .engine import upstream_options

    names = list(_SETTING_OF_UPSTREAM.get(table, ()))
    if table in ("broker", "store"):
        names += [*options_of("broker"), *options_of("store"), *upstream_options.BROKER]
    elif table == "namesrv":
        names += [*options_of("namesrv"), *upstream_options.NAMESRV]
    return names


def _nearest(name: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    close = _similar(name, known)
    return f"; similar ones are {', '.join(close)}" if close else ""


def _similar(name: str, known: Sequence[str] | Mapping[str, Any]) -> list[str]:
    from difflib import get_close_matches

    folded = {_folded(one): one for one in known}
    return [folded[one] for one in get_close_matches(_folded(name), folded, n=3, cutoff=0.6)]


def _build(settings: Settings, told: list[str]) -> tuple[EngineConfig, ServeOptions]:
    """Make the configuration of the settings. told: sentences from reading the files, for the operator."""
    for_tests = _taken(settings, "test", _yes, False)
    if "broker.tlsConfigFile" in settings:
        told = told + _read_tls_properties(settings)
    own_directory = _set_up_for_tests(settings) if for_tests else None
    flush = _taken(settings, "flush", _flush, None)
    if flush is not None:
        settings["store.flushDiskType"] = (flush, settings["flush"][1])
    sections: dict[str, Any] = {}
    for section, kind in SECTIONS.items():
        values = {}
        for upstream, option in options_of(section).items():
            setting = f"{section}.{upstream}"
            if setting in settings:
                values[option.name] = _taken(settings, setting, partial(parse_option, option))
        sections[section] = kind(**values)

    bind, bind_name = _taken(settings, "bind", _bind, ("127.0.0.1", None))
    roles = _taken(settings, "roles", _roles, frozenset(ROLES))
    engine_roles = roles & ENGINE_ROLES
    if not engine_roles:
        raise StartError("The console does not run alone: add broker or namesrv to --roles.")
    data_dir = Path(os.path.abspath(_taken(settings, "dataDir", _path, Path("data"))))
    advertise_source = settings["advertise"][1] if "advertise" in settings else None
    notices: list[str] = []
    saved = Place(data_dir).saved_advertise()
    try:
        saved = saved and parse_told_host(saved)
    except ValueError as error:
        # If a value that was saved on a page made the start fail, it could not be corrected on that page.
        notices.append(f"The address for clients that was set in the console is ignored: it {error}.")
        saved = None
    told_host, told_port = _taken(settings, "advertise", _advertised, (None, 0))
    config = EngineConfig(
        data_dir=data_dir,
        store_dir=_taken(settings, "storeDir", _path, Path()),
        bind=bind,
        broker_port=_taken(settings, "brokerPort", _broker_port, 10_911),
        namesrv_port=_taken(settings, "namesrvPort", _port, 9_876),
        roles=engine_roles,
        advertise=told_host or saved or bind_name,
        advertise_port=told_port,
        wire_admin=_taken(settings, "wireAdmin", _wire_admin, "loopback"),
        ha_bootstrap=_taken(settings, "haBootstrap", _yes, False),
        **sections,
    )
    config.check()
    if config.store.ha_store and "broker" in config.roles:
        notices += _check_member(config, "broker.brokerName" in settings)
    _check_commit_log_place(settings, config)
    notices += told
    ready_file = _taken(settings, "readyFile", _path, None)
    public_url = _taken(settings, "console.publicUrl", _public_url)
    definitions = _taken(settings, "console.definitions", _path, None)
    if definitions is not None and "console" not in roles:
        raise StartError(f"{settings['console.definitions'][1]} needs the console: add it to --roles.")
    https = _https(settings, config) if "console" in roles else None
    return config, ServeOptions(
        console="console" in roles,
        bind=bind,
        http_port=_taken(settings, "httpPort" if https is None else "httpsPort", _port, 8_080),
        https=https,
        ready_file=ready_file and Path(os.path.abspath(ready_file)),
        notices=tuple(notices),
        public_url=public_url,
        advertise_source=advertise_source,
        sign_in=_sign_in(settings, public_url),
        environment=_taken(settings, "console.environment", _environment),
        definitions=definitions and Path(os.path.abspath(definitions)),
        for_tests=for_tests,
        own_directory=own_directory,
    )


def _https(settings: Settings, config: EngineConfig) -> tuple[str, str] | None:
    """Return the files of the console's certificate and key; None if it speaks HTTP. Raises StartError."""
    given = [settings[name][1] for name in ("httpsCertFile", "httpsKeyFile") if name in settings]
    if "httpsPort" not in settings:
        if given:
            raise StartError(f"{given[0]} needs httpsPort, the port on which the console speaks HTTPS.")
        return None
    origin = settings["httpsPort"][1]
    if "httpPort" in settings:
        raise StartError(f"{origin} and {settings['httpPort'][1]} do not go together: the console has one port.")
    if len(given) == 1:
        raise StartError(f"{given[0]} is given alone: certificate and key go together.")
    if given:
        certificate, key = (_taken(settings, name, _path) for name in ("httpsCertFile", "httpsKeyFile"))
        return os.path.abspath(certificate), os.path.abspath(key)
    if not config.broker.tls_cert_file or not config.broker.tls_key_file:
        raise StartError(
            f"{origin} needs a certificate: httpsCertFile and httpsKeyFile, or tlsCertFile and tlsKeyFile of [broker]. "
            "rocketbox certificate make makes one."
        )
    return config.broker.tls_cert_file, config.broker.tls_key_file


def _set_up_for_tests(settings: Settings) -> Path | None:
    """Fill in the defaults of a server for tests; return its directory if it gets a temporary one."""
    from .serve_for_tests import DEFAULTS, ORIGIN, pair_in, temporary_directory

    for name, value in DEFAULTS.items():
        settings.setdefault(name, (value, ORIGIN))
    if "console" in _taken(settings, "roles", _roles):
        raise StartError("--test serves without a console: leave console out of --roles.")
    own = None
    if "dataDir" not in settings:
        settings["dataDir"] = (temporary_directory(), ORIGIN)
        own = Path(settings["dataDir"][0])
    if _taken(settings, "broker.tlsMode", str, "disabled") != "disabled" and "broker.tlsCertFile" not in settings:
        directory = _taken(settings, "dataDir", _path)
        for name, file in zip(("broker.tlsCertFile", "broker.tlsKeyFile"), pair_in(directory), strict=True):
            settings[name] = (str(file), ORIGIN)
    return own


def _read_tls_properties(settings: Settings) -> list[str]:
    """Fill in what Apache's tls.properties says and no option does; return what it says that is not served."""
    from .engine.tls.apache_file import read_tls_properties

    file = _taken(settings, "broker.tlsConfigFile", _nonempty)
    options, told = read_tls_properties(file)
    for name, value in options.items():
        settings.setdefault(f"broker.{name}", (value, f"{name} of {file}"))
    return told


def _check_member(config: EngineConfig, is_named: bool) -> tuple[str, ...]:
    """Return warnings about a member's settings. Raises StartError for settings that cannot work."""
    from .engine.failover.settings import member_settings, store_settings, warnings_of

    if not is_named:
        raise StartError("haStore needs brokerName: all members of a set have the same, and the host name is not.")
    member_settings(config)
    store_settings(config)
    return warnings_of(config)


def _sign_in(settings: Settings, public_url: str | None) -> SignInOptions:
    given = {key: parse for key, parse in SIGN_IN_KEYS.items() if f"console.{key}" in settings}
    try:
        return of_keys({key: _taken(settings, f"console.{key}", parse) for key, parse in given.items()}, public_url)
    except ValueError as error:
        raise StartError(str(error)) from None


def _taken(settings: Settings, name: str, parse: Callable[[Any], Any], default: Any = None) -> Any:
    """Return the parsed value of a setting, or its default. Raises StartError, which names the value's source."""
    if name not in settings:
        return default
    value, origin = settings[name]
    try:
        return parse(value)
    except ValueError as error:
        why = str(error)
        raise StartError(f"{origin} {why if len(why) <= _SENTENCE else f'{why[:_SENTENCE]}...'}.") from None


def _check_commit_log_place(settings: Settings, config: EngineConfig) -> None:
    place = _taken(settings, "storePathCommitLog", _path)
    if place is not None and Path(os.path.abspath(place)) != config.store_dir / "commitlog":
        raise StartError(
            f"{settings['storePathCommitLog'][1]} is {place}, but the commit log is always in "
            f"{config.store_dir / 'commitlog'}."
        )


def _text(value: Any, origin: str) -> str:
    if not isinstance(value, str) or not value:
        raise StartError(f"{origin} must name a file.")
    try:
        check_characters(value)
    except ValueError as error:
        raise StartError(f"{origin} {error}.") from None
    return value


def _nonempty(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be text, not {value!r}")
    check_characters(value)
    return value.strip()


def _advertised(value: Any) -> tuple[str, int]:
    return parse_advertised(_nonempty(value))


def _bind(value: Any) -> tuple[str, str | None]:
    """Return (an address to listen on, the name that leads to it). An address is needed, since a name does not show
    whether only this machine can reach it."""
    host = parse_host(_nonempty(value))
    found = resolved(host)
    if not found:
        raise ValueError(f"is {host}, and that name has no address on this machine")
    return found[0], None if found[0] == host else host


def _path(value: Any) -> Path:
    return Path(_nonempty(value))


def _public_url(value: Any) -> str:
    text = _nonempty(value).rstrip("/")
    parts = urlsplit(text)
    plain_path = re.fullmatch(r"(/[A-Za-z0-9._~-]+)*", parts.path)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain_path or parts.query or parts.fragment:
        raise ValueError(f"must be like https://mq.example.org/rocketbox, not {value!r}")
    return text


def _environment(value: Any) -> str:
    text = _nonempty(value)
    if len(text) > 24 or not text.isprintable():
        raise ValueError(f"must be a word or two, 24 characters at most, not {value!r}")
    return text


def _port(value: Any) -> int:
    return parse_int(value, 0, 65_535)


def _broker_port(value: Any) -> int:
    port = _port(value)
    if port and not 3 <= port <= 65_534:
        raise ValueError(f"must leave room for the ports N-2 and N+1, and {port} does not")
    return port


def _wire_admin(value: Any) -> str:
    if value not in ("loopback", "all", "off"):
        raise ValueError(f"must be loopback, all or off, not {value!r}")
    return str(value)


def _yes(value: Any) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise ValueError(f"must be true or false, not {value!r}")
    return str(value).lower() == "true"


def _flush(value: Any) -> str:
    if value not in ("sync", "async"):
        raise ValueError(f"must be sync or async, not {value!r}")
    return f"{value.upper()}_FLUSH"


def _roles(value: Any) -> frozenset[str]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"must be a list of {', '.join(ROLES)}, not {value!r}")
    roles = {name.strip() for name in names if name.strip()}
    unknown = sorted(roles - set(ROLES))
    if unknown or not roles:
        raise ValueError(f"must be a list of {', '.join(ROLES)}, not {value!r}")
    return frozenset(roles)
