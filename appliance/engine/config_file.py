"""Reads a configuration file: RocketBox's TOML, or Apache's broker.conf and namesrv.conf as they are.

A file's entries are a list of `(table, key, value)`. In TOML the tables are [broker], [store], [namesrv], [console] and
[reports], "" stands for keys above the first table, and values keep TOML's types. For Java properties the table is
"broker" or "namesrv", whichever the file was written for, and every value is text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .errors import StartError
from .named_tuple import NamedTuple

Entry = tuple[str, str, Any]


class ConfigFile(NamedTuple):
    """is_apaches: True for a properties file: Apache's servers ignore unknown keys in it."""

    entries: list[Entry]
    is_apaches: bool


TABLES = ("broker", "store", "namesrv", "console", "reports")

# Keys of Apache's name server only: a properties file with one of them is a namesrv.conf, whatever its name.
_NAMESRV_ONLY = {"kvConfigPath", "orderMessageEnable", "scanNotActiveBrokerInterval", "returnOrderTopicConfigToBroker"}


def read_config_file(path: Path) -> ConfigFile:
    """Read a file; its entries are in its order. Raises StartError if it cannot be read or is of neither kind."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise StartError(f"The configuration file {path} cannot be read: {error.strerror}.") from None
    try:
        text = raw.decode("utf-8-sig")  # with the mark that some editors put before it
    except UnicodeDecodeError:
        # Java reads each byte of a properties file as a character, so comments in any encoding do no harm there.
        text = raw.decode("latin-1")
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")) or path.suffix == ".toml" or _is_toml(text):
            raise StartError(f"The configuration file {path} is not UTF-8 text.") from None
    if path.suffix == ".toml" or _is_toml(text):
        return ConfigFile(_toml_entries(path, text), False)
    try:
        pairs = parse_properties(text)
    except UnicodeDecodeError:
        raise StartError(f"The configuration file {path} holds half of a surrogate pair, which is not text.") from None
    namesrv = "namesrv" in path.name.lower() or any(key in _NAMESRV_ONLY for key, _ in pairs)
    return ConfigFile([("namesrv" if namesrv else "broker", key, value) for key, value in pairs], True)


def _is_toml(text: str) -> bool:
    return re.search(r"^\s*\[[A-Za-z]+\]\s*(#.*)?$", text, re.MULTILINE) is not None


def _toml_entries(path: Path, text: str) -> list[Entry]:
    import tomllib

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StartError(f"The configuration file {path} is not TOML: {error}.") from None
    except RecursionError:
        raise StartError(f"The configuration file {path} is not TOML: it is nested too deeply.") from None
    entries: list[Entry] = []
    for key, value in document.items():
        if not isinstance(value, dict):
            entries.append(("", key, value))
        elif key not in TABLES:
            known = ", ".join(f"[{table}]" for table in TABLES)
            raise StartError(f"{path.name}: there is no table [{key}]; the tables are {known}.")
        else:
            entries.extend((key, inner, inner_value) for inner, inner_value in value.items())
    return entries


def parse_properties(text: str) -> list[tuple[str, str]]:
    """Return (key, value) of each line of a Java properties text, in order, as java.util.Properties.load reads it.

    Comments start with # or !. A key ends at =, : or a blank that is not escaped. A line that ends in an odd number of
    backslashes continues in the next one, without that one's leading blanks. Raises UnicodeDecodeError for an escape
    that is half of a surrogate pair.
    """
    pairs = []
    lines = iter(re.split(r"\r\n|\r|\n", text))
    for raw in lines:
        line = raw.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        if _ends_in_escape(line):
            parts = []
            while _ends_in_escape(line):
                parts.append(line[:-1])
                line = next(lines, "").lstrip(" \t\f")
            line = "".join([*parts, line])
        match = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", line, re.DOTALL)
        assert match is not None  # every part of the pattern may be empty
        pairs.append((_unescape(match[1]), _unescape(line[match.end() :]).strip()))
    return pairs


def _ends_in_escape(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    """Replace escapes; as in Java, each is one UTF-16 unit. Raises UnicodeDecodeError for half of a surrogate pair."""

    def one(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _ESCAPES.get(match[2], match[2])

    text = re.sub(r"\\(?:u([0-9A-Fa-f]{4})|(.))", one, text, flags=re.DOTALL)
    return text.encode("utf-16", "surrogatepass").decode("utf-16")
