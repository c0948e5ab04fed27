"""A broker in a simulated world, seed by seed; and that the world would see it if a promise were broken."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.replayer import MODES
from tests.support.effort import NIGHTLY, effort
from tests.world.actors import ACTORS
from tests.world.actors.faults import PLACES
from tests.world.actors.replicas import CUTS
from tests.world.disk import WorldDisk
from tests.world.oracle import Commits
from tests.world.planted import PLANTED, ROOT, planted_text
from tests.world.sets import administrators, clients, story, together, users
from tests.world.shrink import told
from tests.world.threads import Killed
from tests.world.world import play, script_of

FOUND = Path(__file__).parent / "found"
#: What an older engine breaks.
OLDER = Path(__file__).parent / "older/found"
#: Acts of a story.
STEPS = 250
SET_STEPS = 80
#: Planted faults that a commit's run looks for, each found within a seed or two.
OFTEN = (
    "a recall handle names", "begin at 0", "beyond the end", "a retry does not count", "goes to whoever asks last",
    "the last of several tags", "only the first key", "is not woken by the next", "a second before it is due",
)  # fmt: skip

#: By day the first seed that is tried, where many before it show nothing.
SOONEST = {"a recall handle names a key up to its first blank": 16, "the last of several tags is not wanted": 13}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.world", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )


@functools.cache
def untried() -> int:
    """A seed that nobody has tried with the engine as it is now. The same code gets the same one, so a story that fails
    fails again."""
    digest = hashlib.sha256()
    for part in ("appliance/engine", "tests/world"):
        for path in sorted((ROOT / part).rglob("*.p[yx]*")):
            if path.suffix in (".py", ".pyx", ".pxi"):
                digest.update(path.read_bytes())
    return int.from_bytes(digest.digest()[:4], "big") >> 1


def keep_every_promise(seed: int) -> None:
    result = play(seed, script_of(seed, STEPS))
    assert result.failure is None, f"{result.failure.text}: python -m tests.world --seed {seed} --steps {STEPS}"


@pytest.mark.parametrize("seed", range(1, 1 + effort(12, 150, 3000)))
def test_every_promise_is_kept(seed):
    keep_every_promise(seed)


def test_every_promise_is_kept_by_seeds_that_nobody_has_tried():
    first = untried()
    print(f"seeds from {first}")
    for seed in range(first, first + effort(6, 60, 600)):
        keep_every_promise(seed)


def keep_every_promise_of_a_set(seed: int) -> None:
    result = story.play(seed, story.script_of(seed, SET_STEPS))
    assert result.failure is None, (
        f"{result.failure.text}: python -m tests.world --set --seed {seed} --steps {SET_STEPS}"
    )


@pytest.mark.parametrize("seed", range(1, 1 + effort(4, 60, 1500)))
def test_a_set_keeps_every_promise(seed):
    keep_every_promise_of_a_set(seed)


def test_a_set_keeps_every_promise_by_seeds_that_nobody_has_tried():
    first = untried()
    print(f"seeds of sets from {first}")
    for seed in range(first, first + effort(2, 30, 300)):
        keep_every_promise_of_a_set(seed)


def test_a_story_of_a_set_can_be_told_twice_in_one_process():
    first, second = ([told(done) for done in story.play(3, story.script_of(3, 40)).done] for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    "path", sorted([*FOUND.glob("*.json"), *(OLDER.glob("*.json") if NIGHTLY else ())]), ids=lambda path: path.stem
)
def test_what_was_found_once_is_mended(path):
    document = json.loads(path.read_text())
    failure = (story.play if document.get("set") else play)(document["seed"], document["script"]).failure
    assert failure is None, f"{failure.text}: python -m tests.world --replay {path}"


def test_a_seed_tells_one_story_whatever_order_sets_have():
    traces = [
        run("--seed", "3", "--steps", "200", "--trace", "--whole", PYTHONHASHSEED=order).stdout for order in ("1", "2")
    ]
    lines = [[line for line in trace.splitlines() if not line.startswith("seed ")] for trace in traces]
    assert len(lines[0]) > 200
    assert lines[0] == lines[1]


def test_a_story_can_be_told_twice_in_one_process():
    first, second = ([told(done) for done in play(7, script_of(7, 120)).done] for _ in range(2))
    assert first == second


def test_acts_do_not_depend_on_those_before_them():
    """Shrinking a failure relies on this."""
    script = script_of(5, 60)
    without = [act for act in script if act["n"] != 10]
    assert [done.act for done in play(5, without).done] == without


def test_power_that_goes_in_a_sync_takes_what_the_sync_was_to_keep():
    path, chance = Path("/a"), random.Random(1)
    disk = WorldDisk(lambda: 0.0, lambda: None)
    fd = disk.open(path, create=True)
    disk.sync_directory(path.parent)
    disk.during_sync = lambda _: disk.pwrite(fd, b"meanwhile", 6)
    disk.pwrite(fd, b"before", 0)
    disk.fdatasync(fd)

    def die(_: str) -> None:
        raise Killed

    disk.during_sync = die
    with pytest.raises(Killed):
        disk.fdatasync(fd)
    assert disk.read(path) == b"beforemeanwhile"
    disk.crash("none", chance)
    assert disk.read(path) == b"before"
    disk.close_all()


def test_an_offset_that_a_kill_may_have_taken_stays_open_however_late_the_next_kill_comes():
    commits = Commits()
    commits.doubt()
    commits.commit(1, 10.0)
    commits.killed(10.1)  # the file may have been saved last before that commit
    commits.killed(140.0)
    assert commits.allowed() == set()
    commits.commit(2, 141.0)
    commits.killed(200.0)
    assert 2 in commits.allowed()


@pytest.mark.parametrize(
    "fault", [one for one in PLANTED if NIGHTLY or any(words in one.name for words in OFTEN)], ids=lambda one: one.name
)
def test_a_planted_fault_is_found_without_being_named(fault):
    story_of = ("--set", "--steps", str(SET_STEPS)) if fault.of_set else ("--steps", "300")
    first = 1 if NIGHTLY else SOONEST.get(fault.name, 1)
    found = run("--seed", str(first), "--seeds", str(fault.seeds), *story_of, "--whole", "--plant", fault.name)
    assert found.returncode == 1, f"{fault.seeds} seeds do not see that {fault.name}\n{found.stdout[-2000:]}"
    assert re.search(r"^seed \d+: .+$", found.stdout, re.M), found.stderr[-2000:]


def test_a_failure_becomes_a_short_script_that_can_be_played_again(tmp_path):
    kept = tmp_path / "found.json"
    fault = "an offset beyond the end is kept"
    found = run("--seed", "1", "--seeds", "5", "--plant", fault, "--keep", str(kept))
    assert found.returncode == 1, found.stderr[-2000:]
    assert len(json.loads(kept.read_text())["script"]) <= 4, found.stdout
    again = run("--replay", str(kept), "--plant", fault)
    assert again.stdout.splitlines()[-1] == found.stdout.splitlines()[-2] or "beyond the end" in again.stdout
    assert run("--replay", str(kept)).returncode == 0


def test_the_matrix_is_whole():
    """Each act and each kind of fault has its place in docs/world.md, and no cell is empty or has a reason that is
    missing."""
    text = (ROOT / "docs/world.md").read_text()
    names = {*ACTORS, *(call for call, _ in PLACES), *MODES, *(cut for cuts in CUTS for cut in cuts), *story.KINDS}
    assert [name for name in sorted(names) if f"`{name}`" not in text] == []
    _, of_one, of_sets = text.split("| feature | acts |")
    used = set()
    for matrix, kinds, columns, least in ((of_one, ACTORS, 6, 15), (of_sets, story.KINDS, 5, 8)):
        rows = [line.strip("|").split("|") for line in matrix.splitlines()[2:] if line.startswith("|")]
        assert len(rows) > least
        for feature, acts, *cells in rows:
            assert set(re.findall("`([^`]+)`", acts)) <= kinds.keys(), feature
            assert len(cells) == columns, feature
            used |= {cell.strip() for cell in cells}
    assert used - {"yes"} == set(re.findall(r"^(\d+)\. ", of_one + of_sets, re.M))


def test_each_act_of_a_set_has_its_row():
    """Faults are columns."""
    text = (ROOT / "docs/world.md").read_text().split("| feature | acts |")[2]
    rows = "".join(line.split("|")[2] for line in text.splitlines() if line.startswith("|"))
    kinds = [kind.name for module in (clients, administrators, users, together) for kind in module.KINDS]
    assert [name for name in kinds if f"`{name}`" not in rows] == []


def test_each_planted_fault_can_be_planted():
    for fault in PLANTED:
        text = (ROOT / Path(fault.file)).read_text()
        assert planted_text(fault, text) != text
