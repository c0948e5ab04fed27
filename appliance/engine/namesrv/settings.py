"""The name server's settings while it runs: request 318 changes them, 319 shows them.

Apache's takes over whatever it is sent but for a few names; CVE-2023-37582 wrote files that way. Here only a few
switches may change, each checked by its type. They are kept in `namesrv.properties` beside the KV configuration and
override the configuration at the next start, as Apache's saved file does.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..config import EngineConfig, NamesrvConfig, namesrv_properties, options_of, parse_option
from ..config_file import parse_properties
from ..disk import Disk
from ..errors import RefusedRequest
from ..json_file import save_json_atomically
from ..protocol.codes import ResponseCode
from ..upstream_options import NAMESRV as UPSTREAM_NAMES

logger = logging.getLogger(__name__)

#: Switches that are read again for each request.
CHANGEABLE = frozenset(
    {
        "clusterTest",  # Apache's reads it at its start only
        "deleteTopicWithBrokerRegistration",
        "enableAllTopicList",
        "enableTopicList",
        "orderMessageEnable",
        "returnOrderTopicConfigToBroker",
        "supportActingMaster",
    }
)
#: Apache's `configBlackList`, and the names that it adds itself.
BLACK_LIST = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})
#: A properties text is a few lines.
_MAX_BODY_BYTES = 64 * 1024


class NamesrvSettings:
    """The current NamesrvConfig. Changed by one thread (`pool-namesrv`), read by any."""

    def __init__(self, config: EngineConfig) -> None:
        # Constant after construction.
        self._engine = config
        self._path: Path = config.namesrv.kv_config_path.with_name("namesrv.properties")
        # Written by one thread; frozen values.
        self.current: NamesrvConfig = config.namesrv
        self._changed: dict[str, str] = {}

    def load(self) -> None:
        """Apply the changes of earlier requests. A line that is no longer valid is logged and left out."""
        try:
            text = self._path.read_bytes().decode(errors="replace")
        except FileNotFoundError:
            return
        try:
            pairs = parse_properties(text)
        except UnicodeDecodeError as error:
            logger.warning("namesrv: ignored %s: %s", self._path, error)
            return
        for name, value in pairs:
            try:
                self._apply({name: self._parse(name, value)})
            except RefusedRequest as refusal:
                logger.warning("namesrv: ignored %s in %s: %s", name, self._path, refusal)
                continue
            self._changed[name] = value
            logger.info("namesrv: setting %s=%s from %s", name, value, self._path)

    def update(self, body: bytes) -> None:
        """Apply a properties text (318), all of it or nothing; unknown names are ignored, as in Apache's.

        Raises RefusedRequest: 16 for a name that may not change, 1 for a value of the wrong type. Raises OSError when
        the change could not be saved; nothing has changed then.
        """
        if len(body) > _MAX_BODY_BYTES:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "the properties text is too long")
        try:
            pairs = dict(parse_properties(body.decode()))
        except UnicodeDecodeError:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, "the properties text is not UTF-8") from None
        if not BLACK_LIST.isdisjoint(pairs):
            raise RefusedRequest(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        known = {name: value for name, value in pairs.items() if name in self.texts or name in UPSTREAM_NAMES}
        values = {name: self._parse(name, value) for name, value in known.items()}
        if not values:
            return
        changed = self._changed | {name: _text(value) for name, value in values.items()}
        text = "".join(f"{name}={changed[name]}\n" for name in sorted(changed))
        save_json_atomically(self._path, text, Disk(self._path.parent))
        self._changed = changed
        self._apply(values)
        logger.info("namesrv: settings changed %s", known)

    @property
    def texts(self) -> dict[str, str]:
        """Apache's names of the settings -> the values in force."""
        return namesrv_properties(replace(self._engine, namesrv=self.current)) | {
            "configBlackList": "configBlackList;configStorePath;kvConfigPath",
            "configStorePath": str(self._path),
        }

    def properties_text(self) -> bytes:
        """The body of 319: one line for each setting, sorted."""
        return "".join(f"{name}={value}\n" for name, value in sorted(self.texts.items())).encode()

    def _parse(self, name: str, value: str) -> bool:
        if name not in CHANGEABLE:
            raise RefusedRequest(ResponseCode.NO_PERMISSION, f"{name} can not be changed while the name server runs.")
        try:
            return bool(parse_option(options_of("namesrv")[name], value))
        except ValueError as error:
            raise RefusedRequest(ResponseCode.SYSTEM_ERROR, f"{name} {error}") from None

    def _apply(self, values: dict[str, bool]) -> None:
        options = options_of("namesrv")
        changes: dict[str, Any] = {options[name].name: value for name, value in values.items()}
        self.current = replace(self.current, **changes)


def _text(value: bool) -> str:
    return "true" if value else "false"
