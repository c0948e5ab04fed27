"""A member's own state in its broker set: small files in DATA/rocketbox/ha/ (docs/formats/ha.md).

    identity    uuid of the store, name and id of the set, slot     epochs    where in the log each epoch began
    seen        the highest epoch known to exist                last-run  where this directory was used last
    key         who was in sync when the set's key was last seen
    turn        counts up while the member runs

The uuid stands in the store's own directory, too (`STORE/rocketbox-member`). A store that was emptied, exchanged, or
copied without it is a stranger: it gets a new uuid and no epochs, so that it does not pass for the one that was there.
Every file is replaced whole and durable before a call returns. A damaged one is reported in `damage`, and makes the
member not electable; nothing is guessed from it.
"""

from __future__ import annotations

import json
import logging
import os
import uuid as uuids
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar
from zlib import crc32

from ..crc_lines import line_of, only_text
from ..disk import Disk
from ..errors import CorruptFile, StartError
from ..store.paths import StorePaths
from .parts import Known
from .set_state import EpochStart

logger = logging.getLogger(__name__)

DIRECTORY = "ha"
#: In the store's directory; Apache's brokers leave it alone.
MARK = "rocketbox-member"
#: Epochs that are kept: the newest. A log that begins before them all is a stranger's.
MAX_EPOCHS = 10_000
#: Largest file that is read; RocketBox's own are smaller.
MAX_BYTES = 1024 * 1024
_T = TypeVar("_T")


class Place(NamedTuple):
    """The place where a data directory is used. machine: its id, "" if it has none. inode: of the directory; a copy
    has another one. boot: the kernel's boot id, "" if there is none."""

    machine: str
    directory: str
    inode: int
    boot: str


def place_of(directory: Path) -> Place:
    """Return the place of a directory on this machine. Raises OSError when it does not exist."""
    return Place(
        _first_line(Path("/etc/machine-id")),
        str(directory.absolute()),
        os.stat(directory).st_ino,
        _first_line(Path("/proc/sys/kernel/random/boot_id")),
    )


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()[:100]
    except (OSError, ValueError):
        return ""


def encode_epochs(epochs: Iterable[EpochStart]) -> bytes:
    """Encode as Apache's epoch files do: count, CRC-32 of the lines that follow, then one line "epoch-start" each."""
    lines = [f"{epoch}-{start}\n" for epoch, start in epochs]
    return f"{len(lines)}\n{crc32(''.join(lines).encode())}\n{''.join(lines)}".encode()


def decode_epochs(data: bytes) -> tuple[EpochStart, ...]:
    """Decode such a text. Raises CorruptFile."""
    try:
        head, checksum, text = data.decode("ascii").split("\n", 2)
        lines = text.splitlines()
        if len(lines) != int(head) or crc32(text.encode()) != int(checksum):
            raise ValueError("its checksum does not match")
        found = []
        for line in lines:
            epoch, _, start = line.partition("-")
            found.append(EpochStart(int(epoch), int(start)))
        check_epochs(found)
    except ValueError as error:
        raise CorruptFile(f"the list of epochs is damaged: {error}") from None
    return tuple(found)


def check_epochs(epochs: Iterable[EpochStart]) -> None:
    """Raise ValueError when epochs do not grow, or one begins at a lower offset than the one before it."""
    last = EpochStart(0, 0)
    for one in epochs:
        if one.epoch <= last.epoch or one.start < last.start:
            raise ValueError(f"epoch {one.epoch} at {one.start} cannot follow epoch {last.epoch} at {last.start}")
        last = one


def with_epoch(epochs: tuple[EpochStart, ...], new: EpochStart) -> tuple[EpochStart, ...]:
    """Return the list of a member that leads the new epoch, which begins at the end of its log.

    Epochs that it adopted from a leader without having a byte of them are not in its log, and are left out. Raises
    ValueError when the epoch is not newer; adding the same one again changes nothing.
    """
    if epochs[-1:] == (new,):
        return epochs
    if epochs and new.epoch <= epochs[-1].epoch:
        raise ValueError(f"epoch {new.epoch} at {new.start} cannot follow epoch {epochs[-1].epoch}")
    return (*(one for one in epochs if one.start <= new.start), new)


class MemberFiles:
    """Fulfils parts.MemberFiles. Written by the thread `failover`, read by anyone: values are replaced whole."""

    def __init__(self, paths: StorePaths, disk: Disk, set_name: str, here: Place) -> None:
        """Read the files that exist, and make the missing ones. Raises StartError when they cannot be written, or when
        the directory belongs to another set."""
        self.directory = paths.own / DIRECTORY
        self._paths = paths
        self._disk = disk
        self._set_name = set_name
        self.uuid = ""
        self.slot = 0
        self.set_id = ""
        self.seen = 0
        self.epochs: tuple[EpochStart, ...] = ()
        #: The set's key as last noted: one that says less was restored from a backup.
        self.known = Known()
        self.turn = 0
        #: Reason why this member cannot be elected, a sentence for each damaged file; "" while all are whole.
        self.damage = ""
        #: Reason why the store counts as a new one though these files were here before; "".
        self.stranger = ""
        #: Sentence that says why this directory looks like a copy of another one; "".
        self.copied = ""
        #: True if the machine has been up since this directory was used last.
        self.same_boot = False
        try:
            self._open(here)
        except OSError as error:
            raise StartError(f"The directory {self.directory} cannot be used: {error.strerror or error}.") from None

    def _open(self, here: Place) -> None:
        self._disk.make_directory(self._paths.root)
        self._disk.make_directory(self.directory)
        for directory in (
            self.directory,
            self._paths.root,
        ):  # a process that died may have left names it had not synced
            self._disk.sync_directory(directory)
        self.seen = self._load("seen", lambda raw: int(only_text(raw)), 0)
        self.epochs = self._load("epochs", decode_epochs, ())
        if self.epochs and self.epochs[-1].epoch > self.seen:
            self.seen = self.epochs[-1].epoch
        self.known = self._load("key", _known, Known())
        self.turn = self._load("turn", lambda raw: int(only_text(raw)), 0)
        identity = self._load("identity", _identity, None)
        mark = self._read_mark()
        if identity is not None:
            name, slot, uuid, self.set_id = identity
            if name != self._set_name:
                raise StartError(
                    f"{self.directory} belongs to a store of the set {name!r}, but haSet is {self._set_name!r}: set it "
                    f"back, or move that directory away to have this store join the other set as a new member."
                )
            if uuid == mark:
                self.uuid, self.slot = uuid, slot
        if not self.uuid:
            if identity is not None:
                self.stranger = (
                    "the store directory is not the one that these files were made for: it was emptied or exchanged"
                )
            elif mark or self.damage or self.epochs:
                self.stranger = "it is no longer known which member of the set this store was"
            if self.stranger:
                logger.warning("fail-over: this store is a new member of its set: %s", self.stranger)
            if not mark:
                self.set_id = ""  # a store that was in no set joins the one that is there
            self.renew()
        self._look_at_last_run(here)

    def _look_at_last_run(self, here: Place) -> None:
        last = self._load("last-run", _place, None)
        if last is not None:
            self.same_boot = bool(here.boot) and here.boot == last.boot
            if (last.machine, last.inode) != (here.machine, here.inode):
                self.copied = (
                    f"this data directory was used last as {last.directory}"
                    f"{' on another machine' if last.machine != here.machine else ''}: if that one is still there, two "
                    f"brokers pass for the member {self.uuid}, and one of them must be emptied"
                )
                logger.warning("fail-over: %s", self.copied)
        if last != here:
            self._replace("last-run", line_of(json.dumps(here._asdict()).encode()))

    # --- reading

    def _load(self, name: str, decode: Callable[[bytes], _T], without: _T) -> _T:
        """Return a file's content, `without` if there is none. Also if it is damaged: that is logged, and added to
        `damage`."""
        try:
            data = self._disk.read_if_any(self.directory / name, MAX_BYTES)
            return without if data is None else decode(data)
        except (CorruptFile, ValueError, TypeError, KeyError) as error:
            logger.error("fail-over: %s is damaged: %s", self.directory / name, error)
            if name != "last-run":
                self.damage += f"{' ' if self.damage else ''}{self.directory / name} is damaged."
            return without

    def _read_mark(self) -> str:
        """Return the uuid in the store's own directory, "" without one."""
        try:
            data = self._disk.read_if_any(self._paths.root / MARK, MAX_BYTES)
            return "" if data is None else only_text(data).decode("ascii")
        except (CorruptFile, ValueError) as error:
            logger.error("fail-over: %s is damaged: %s", self._paths.root / MARK, error)
            return ""

    # --- writing; each raises OSError, and nothing counts then

    def _replace(self, name: str, data: bytes) -> None:
        self._disk.replace(self.directory / name, data)

    def _save_identity(self, uuid: str, slot: int) -> None:
        found = {"uuid": uuid, "set": self._set_name, "id": self.set_id, "slot": slot}
        self._replace("identity", line_of(json.dumps(found).encode()))

    def renew(self) -> None:
        """Make the store a new member: another uuid, no slot, no epochs. `seen` stays: those epochs do exist.

        A crash on the way leaves an identity that does not fit the store, and the next start does it again.
        """
        uuid = str(uuids.uuid4())
        self._replace("epochs", encode_epochs(()))
        self.epochs = ()
        if self.known != Known():
            self.note(Known())  # it was about the log of the old store
        self._disk.replace(self._paths.root / MARK, line_of(uuid.encode()))
        self._save_identity(uuid, 0)
        self.uuid, self.slot = uuid, 0
        self._mend()

    def take_slot(self, slot: int) -> None:
        if slot < 1:
            raise ValueError(f"slot {slot}")
        self._save_identity(self.uuid, slot)
        self.slot = slot

    def note(self, known: Known) -> None:
        found = known._asdict() | {"may": sorted(known.may)}
        self._replace("key", line_of(json.dumps(found).encode()))
        self.known = known

    def join(self, set_id: str) -> None:
        """Make this store belong to that set from now on, and to no other of its name."""
        before, self.set_id = self.set_id, set_id
        try:
            self._save_identity(self.uuid, self.slot)
        except OSError:
            self.set_id = before
            raise

    def advance(self) -> None:
        self._replace("turn", line_of(str(self.turn + 1).encode()))
        self.turn += 1

    def is_older_than(self, turn: int) -> bool:
        return self.turn < turn and not self.damage  # a damaged member is not elected as it is

    def see(self, epoch: int) -> None:
        """Raise `seen` to `epoch`; a smaller one changes nothing."""
        if epoch > self.seen:
            self._save_seen(epoch)

    def _save_seen(self, epoch: int) -> None:
        self._replace("seen", line_of(str(epoch).encode()))
        self.seen = epoch

    def begin_epoch(self, epoch: int, start: int) -> None:
        """Note that this store leads `epoch` from the offset `start` on. Doing it twice changes nothing. Raises
        ValueError when that epoch cannot follow, CorruptFile while a file is damaged."""
        if self.damage:
            raise CorruptFile(self.damage)
        epochs = with_epoch(self.epochs, EpochStart(epoch, start))
        if epochs != self.epochs:
            self._save_epochs(epochs)

    def adopt_epochs(self, epochs: Iterable[EpochStart]) -> None:
        """Take the leader's list over, as the log is the leader's from now on. A damaged member is whole again then:
        the list replaces what could not be read. Raises ValueError."""
        found = tuple(epochs)
        if found != self.epochs or self.damage:
            self._save_epochs(found)
            self._mend()

    def _save_epochs(self, epochs: tuple[EpochStart, ...]) -> None:
        check_epochs(epochs)
        if epochs:
            self.see(epochs[-1].epoch)
        self._replace("epochs", encode_epochs(epochs[-MAX_EPOCHS:]))
        self.epochs = epochs[-MAX_EPOCHS:]

    def _mend(self) -> None:
        if self.damage:
            self._save_seen(self.seen)
            self.note(self.known)
            self.advance()
            self.damage = ""


def _identity(data: bytes) -> tuple[str, int, str, str]:
    found = json.loads(only_text(data))
    return str(found["set"]), int(found["slot"]), str(found["uuid"]), str(found.get("id", ""))


def _known(data: bytes) -> Known:
    found = json.loads(only_text(data))
    return Known(int(found["epoch"]), int(found["beat"]), frozenset(map(str, found["may"])), bool(found["led"]))


def _place(data: bytes) -> Place:
    return Place(**json.loads(only_text(data)))
