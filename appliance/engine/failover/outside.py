"""A set as seen from outside the member's process: the content of its leader store, and the member's own files.

For commands that report when no console answers. Reads only; reads the store with the settings of the member.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import NamedTuple

from ..config import EngineConfig
from ..crc_lines import text_of
from ..errors import CorruptFile
from ..store_tools.inspection import inspect
from ..store_tools.offline_store import OfflineStore
from .leader_store import StoreUnavailable
from .member_files import DIRECTORY, MARK, decode_epochs
from .set_state import Announcement, EpochStart, SetState, decode_announcement, decode_state
from .settings import store_settings
from .stores import open_store, shortage

#: Time-out of a call here: a person waits longer than a beat may take.
ASK_S = 3.0


class StoreLook(NamedTuple):
    """why: "" when the store answered; else what is wrong, and the other fields are empty. state: None without a key,
    and for one that is not understood; `odd` gives the reason then. shortage: as `stores.shortage`."""

    why: str = ""
    state: SetState | None = None
    odd: str = ""
    announced: tuple[Announcement, ...] = ()
    shortage: str = ""


class OwnLook(NamedTuple):
    """The member's files and log on this machine's disk. uuid: "" before the member's first start. end: of the log;
    None if it cannot be determined."""

    uuid: str = ""
    slot: int = 0
    seen: int = 0
    epochs: tuple[EpochStart, ...] = ()
    end: int | None = None


def ask_store(config: EngineConfig) -> StoreLook:
    """Read the set's keys in the leader store. Raises StartError for settings that cannot work."""
    settings = store_settings(config)
    store = open_store(config.store.ha_store, settings.access._replace(timeout_s=ASK_S))
    try:
        value, _ = store.read(f"{settings.root}/state")
        found = store.list(f"{settings.root}/member/")
        lacks = shortage(store)
    except StoreUnavailable as error:
        return StoreLook(why=str(error))
    finally:
        store.close()
    state, odd = None, ""
    try:
        state = None if value is None else decode_state(value)
    except CorruptFile as error:
        odd = str(error)
    announced = []
    for data in found.values():
        with contextlib.suppress(CorruptFile):
            announced.append(decode_announcement(data))
    return StoreLook("", state, odd, tuple(announced), lacks)


def look_at_own(config: EngineConfig) -> OwnLook:
    """Read the member's own files and the end of its log. Missing or damaged ones are left out, and raise nothing."""
    own = config.data_dir / "rocketbox"
    directory = own / DIRECTORY
    identity = _line(directory / "identity")
    uuid, slot = "", 0
    with contextlib.suppress(ValueError, KeyError, TypeError):
        found = json.loads(identity)
        uuid, slot = str(found["uuid"]), int(found["slot"])
    if _line(config.store_dir / MARK).decode(errors="replace") != uuid:
        uuid, slot = "", 0
    seen = 0
    epochs: tuple[EpochStart, ...] = ()
    with contextlib.suppress(ValueError):
        seen = int(_line(directory / "seen"))
    with contextlib.suppress(OSError, CorruptFile):
        epochs = decode_epochs((directory / "epochs").read_bytes())
    return OwnLook(uuid, slot, seen, epochs, _log_end(config.store_dir, own))


def _line(path: Path) -> bytes:
    try:
        return text_of(path.read_bytes().removesuffix(b"\n")) or b""
    except OSError:
        return b""


def _log_end(store_dir: Path, own: Path) -> int | None:
    if not (store_dir / "commitlog").is_dir():
        return None
    try:
        store = OfflineStore(store_dir, own)
    except Exception:  # whatever the store looks like: the rest is worth reporting
        return None
    try:
        end: int | None = inspect(store)["log"]["max_offset"]
        return end
    except Exception:
        return None
    finally:
        store.close()
