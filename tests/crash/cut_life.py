"""A member's store whose log's end is cut off because the set went on without it; and crashes at every step of that.

A store that a crash left is opened as a member does at its start: a cut that was noted is finished first. Then
either nothing was cut, and everything is there, or all of the tail is gone, and everything before is there.
Nothing in between.
"""

from __future__ import annotations

import random
from pathlib import Path

from appliance.engine.failover.member_files import MemberFiles, Place
from appliance.engine.failover.set_state import EpochStart
from appliance.engine.failover.truncation import LeaderLog, StoreCut
from appliance.engine.store.checkpoint import RecoveryPosition, RecoveryPositionFile
from appliance.engine.store.index.index_file import HEADER, IndexHeader
from appliance.engine.store.paths import StorePaths
from appliance.engine.store.queues.consume_queue import ENTRY
from tests.crash.crashes import Crashes, nothing
from tests.crash.life import GONE, Expected, Recovered, Violation
from tests.crash.recording_disk import Image, RecordingDisk
from tests.crash.replayer import MODES, CrashedDisk, fingerprint
from tests.crash.services_life import ServicesLife

PATHS = StorePaths(Path("/store"), Path("/rocketbox"))
HERE = Place("machine", "/rocketbox", 1, "boot")
#: Epochs of the member and of the leader. The place where an own epoch began does not matter here.
OWN = (EpochStart(1, 0), EpochStart(2, 0))
LEADERS = (EpochStart(1, 0), EpochStart(3, 0))


class CutLife(ServicesLife):
    """Each start finishes what was noted, then opens the store."""

    #: True if the life begins with an empty disk.
    first = False
    #: Physical offset where the log was cut; -1 if it is not known.
    point = -1

    def open(self) -> None:
        self.disk.make_directory(PATHS.own)
        self.members = MemberFiles(PATHS, self.disk, "set", HERE)
        if self.first:
            self.members.adopt_epochs(OWN)
        #: True if a cut was finished just now: no recovery has mended anything behind it.
        self.finished = self.cutter().finish()
        if self.finished and self.was_cut and self.point >= 0:
            judge_files(self.disk, self.point)
        super().open()

    def cutter(self) -> StoreCut:
        return StoreCut(PATHS, self.disk, self.settings, self.members, lambda: 1)

    @property
    def was_cut(self) -> bool:
        return self.members.epochs == LEADERS

    @property
    def was_set_aside(self) -> bool:
        return not self.members.epochs

    def cut(self, point: int) -> None:
        """On the closed store."""
        self.members = MemberFiles(PATHS, self.disk, "set", HERE)
        cutter = self.cutter()
        cutter.begin(point, LeaderLog("leader", 3, LEADERS, point), "a test")
        self.noted_at = len(self.disk.record)
        cutter.finish()
        if self.was_cut:
            judge_files(self.disk, self.point)


class Cuts(Crashes):
    """Lives that end in a cut, and what follows from each crash in it."""

    def __init__(self) -> None:
        super().__init__(nothing, CutLife)
        #: For each cut below a recovery position: True if the store still had a recovery position after it.
        self.positions: list[bool] = []

    def closed(self, seed: str, synchronous: bool, steps: int) -> Image:
        """A store that was stopped, killed, or whose machine lost its power."""
        life = CutLife(seed, None, synchronous, nothing)
        life.first = True
        life.open()
        life.work(steps)
        chance = random.Random("close " + seed)
        if chance.random() < 0.5:
            life._stop()
        crashed = CrashedDisk(None, life.disk.kinds)
        for operation in life.disk.record:
            crashed.follow(operation)
        return crashed.image(chance.choice(("all", "all", "some", "none")), chance)

    def run_cut(self, seed: str, synchronous: bool, steps: int) -> None:
        """Raises Violation."""
        chance = random.Random("cut " + seed)
        image = self.closed(seed, synchronous, steps)
        whole = self._life(f"{seed} whole", image, synchronous)
        whole.open()
        before = whole.recovered()
        places = sorted(place for known in before.places.values() for place in known if place >= 0)
        if not places:
            return
        point = chance.choice([place for place in places if place > before.log_begin] or places)
        kind, within = chance.random(), 0
        if kind < 0.15:
            point = before.log_begin
        elif kind < 0.3 and point > before.log_begin:
            within = chance.randrange(1, 90)  # a record, whose beginning counts then
        elif kind < 0.45:
            point = max(point // 4096 * 4096, before.log_begin)
        self.cut_and_crash(f"{seed} at {point + within}", image, synchronous, point, within, before, chance)

    def _life(self, seed: str, image: Image, synchronous: bool) -> CutLife:
        return CutLife(seed, image, synchronous, nothing)

    def cut_and_crash(
        self,
        seed: str,
        image: Image,
        synchronous: bool,
        point: int,
        within: int,
        before: Recovered,
        chance: random.Random,
    ) -> None:
        life = self._life(seed, image, synchronous)
        life.point = point
        had = position_of(life.disk)
        try:
            life.cut(point + within)
            if had is not None and had.offset > point > before.log_begin:
                self.positions.append(position_of(life.disk) is not None)
        except Exception as error:
            raise Violation(f"{error!r} (life {seed}, the cut)") from error
        crashed = CrashedDisk(image, life.disk.kinds)
        for index, operation in enumerate(life.disk.record):
            crashed.follow(operation)
            for mode in MODES:
                self._look(life, crashed, mode, point, before, index, chance)

    def _look(
        self,
        life: CutLife,
        crashed: CrashedDisk,
        mode: str,
        point: int,
        before: Recovered,
        index: int,
        chance: random.Random,
    ) -> None:
        image = crashed.image(mode, chance)
        seen = fingerprint(image)
        if seen in self.seen:
            return
        self.seen.add(seen)
        self.recoveries += 1
        following = self._life(f"{life.seed}/{index}{mode[0]}", image, life.settings.synchronous)
        following.point = point
        try:
            following.open()
            done = following.was_cut or following.was_set_aside
            if index >= life.noted_at and not done:
                raise Violation("what was noted was forgotten")
            found = following.recovered()
            if following.was_set_aside:
                judge_aside(following, image, found)
            else:
                judge_cut(before, found, point if done else 1 << 62)
            if done:
                judge_gone(following, point)
        except Violation as error:
            raise Violation(f"{error} (life {life.seed}, crash at {index}, {mode})") from None
        except Exception as error:
            raise Violation(f"{error!r} (life {life.seed}, crash at {index}, {mode})") from error
        if chance.random() < 0.03:  # it goes on with other records in the place of those, and crashes again
            following.work(8)
            self._crash(following, image, Expected.all_of(found), Expected.all_of(found), chance, 1)


def judge_cut(before: Recovered, found: Recovered, point: int) -> None:
    """Every message below the point is where it was, and no other is there."""
    for queue in before.keys() | found.keys():
        left = [
            body
            for body, place in zip(before.get(queue, ()), before.places.get(queue, ()), strict=True)
            if place < point
        ]
        there = found.get(queue, [])
        # Messages behind the point that were deleted with their topic are there again.
        again = [body if was == GONE else GONE for body, was in zip(there, left, strict=False)]
        if any(body != GONE for body in again):
            kept = [GONE if one != GONE else body for body, one in zip(there, again, strict=False)]
            there = kept + there[len(again) :]
        if [body for body in left if body != GONE] != [body for body in there if body != GONE]:
            raise Violation(f"{queue} cut at {point}: {len(there)} messages are there instead of {len(left)}")
        if len(there) != len(left) and any(body != GONE for body in left):
            raise Violation(f"{queue} cut at {point}: ends at {len(there)} instead of {len(left)}")


def judge_gone(life: CutLife, point: int) -> None:
    """Raise Violation if a byte of RocketBox's or Apache's files names what was cut off."""
    store, disk = life.store, life.disk
    if store.log.written > point:
        raise Violation(f"the log ends at {store.log.written}, {point} was asked for")
    for segment in store.log.segments:
        data = disk.pread(segment.fd, segment.end - segment.start, 0)[max(0, store.log.written - segment.start) :]
        if data.strip(b"\0"):
            raise Violation(f"{segment.path.name} has bytes behind {store.log.written}")
    for file in store.index.files:
        if file.count > 1 and file.end_offset >= point:
            raise Violation(f"the index names {file.end_offset}")


def position_of(disk: RecordingDisk) -> RecoveryPosition | None:
    file = RecoveryPositionFile(PATHS.recovery_position, disk)
    file.close()
    return file.position


def judge_files(disk: RecordingDisk, point: int) -> None:
    """Check what the cut itself has left, before a start looks at it."""

    def files(directory: Path) -> list[tuple[Path, bytes]]:
        if not disk.is_directory(directory):
            return []
        found = []
        for name in disk.names(directory):
            path = directory / name
            if disk.is_directory(path):
                found += files(path)
            else:
                found.append((path, bytes(disk.files[disk._node(path)])))
        return found

    for path, data in files(PATHS.consume_queues):
        for physical, size, _ in ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size]):
            if size > 0 and physical >= point:
                raise Violation(f"{path} names {physical}, {point} was asked for")
    for path, data in files(PATHS.index):
        header = IndexHeader(*HEADER.unpack(data[: HEADER.size]))
        if header.next_number > 1 and header.end_offset >= point:
            raise Violation(f"{path} names {header.end_offset}, {point} was asked for")
    for path, _ in files(PATHS.own / "blocks"):
        if path.name.isdigit() and int(path.name) + 4096 > point:
            raise Violation(f"{path} is the seal of a file that was cut")
    position = position_of(disk)
    if position is not None and position.offset > point:
        raise Violation(f"the recovery position is {position.offset}, {point} was asked for")


def judge_aside(life: CutLife, image: Image, found: Recovered) -> None:
    """The store is empty, and the log that was there lies beside it."""
    if found:
        raise Violation(f"a store that was set aside holds {list(found)}")
    aside = life.disk.names(Path("/store.aside-1/commitlog"))
    for prefix in ("/store.aside-1/commitlog/", "/store/commitlog/"):
        logs = {path.removeprefix(prefix): data for path, data in image.items() if path.startswith(prefix)}
        if logs and set(logs) <= set(aside):
            return
    raise Violation(f"of the log that was there {aside} is left")
