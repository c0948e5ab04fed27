"""Turns options into the input of the network part: access to the servers, queues to read, rows to keep."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ..options import OptionError, Options
from ..topics import is_system
from ..wanted import Wanted
from .access import Access, Credentials, addresses
from .routes import NameServers, Route


def access_of(options: Options) -> Access:
    """Return the settings to reach the servers. Raises OptionError."""
    credentials = None
    if options.access_key is not None and options.secret_key is not None:
        credentials = Credentials(options.access_key, options.secret_key)
    try:
        name_servers = addresses(";".join(options.brokers))
    except ValueError as error:
        raise OptionError(f"The option {error}.") from None
    return Access(
        name_servers,
        credentials,
        tls=options.use_tls,
        tls_ca=_authorities(options.tls_ca_file),
        bytes_per_s=options.max_bytes_per_second or 0,
    )


def rows_of(options: Options, from_ms: int | None, to_ms: int | None) -> Wanted:
    """Return the selection of pulled messages that become rows. Queues and offsets need none: only wanted ones are
    pulled."""
    return Wanted(None, True, from_ms=from_ms, to_ms=to_ms, body=options.body)


def route_of(
    access: Access, options: Options, must_be_there: bool = True, has_topic: Callable[[str], bool] | None = None
) -> Route:
    """Return the queues of the requested topics, or of all topics of users if none was requested. must_be_there: a
    requested topic that is missing is an error. has_topic: selects some of the topics."""
    name_servers = NameServers(access)
    topics = list(options.topics)
    if not topics:
        topics = name_servers.topics()
        if not options.include_system:
            own = name_servers.names_of_brokers()
            topics = [topic for topic in topics if topic not in own and not is_system(topic)]
        if options.topic_pattern is not None:
            fits = re.compile(options.topic_pattern).fullmatch
            topics = [topic for topic in topics if fits(topic)]
    if has_topic is not None:
        topics = [topic for topic in topics if has_topic(topic)]
    must_be_there = must_be_there and bool(options.topics)
    return name_servers.routes(topics, must_be_there, must_exist=options.fail_on_missing_topic)


def _authorities(path: str | None) -> str:
    if not path:
        return ""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"The option tlsCaFile: {path} cannot be read: {error}.") from None
    if "BEGIN CERTIFICATE" not in text:
        raise OptionError(f"The option tlsCaFile: {path} holds no certificate in PEM.")
    return text
