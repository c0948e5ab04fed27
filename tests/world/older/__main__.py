"""python -m tests.world.older DIRECTORY: play what is kept in `found/` with the engine of commit 4c9568e.

The directory is made if it is missing: a clone with that commit, and its compiled part built.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

COMMIT = "4c9568e"
HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.world.older", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", default="", help="scripts whose name begins so")
    arguments = parser.parse_args()
    directory = arguments.directory.absolute()
    if not directory.exists():
        _check_out(directory)
    missing = 0
    for path in sorted((HERE / "found").glob(f"{arguments.only}*.json")):
        rule = json.loads(path.read_text())["rule"]
        command = [sys.executable, "-m", "tests.world", "--engine", str(directory), "--replay", str(path)]
        played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        is_found = any(f": {rule}" in line for line in played.stdout.splitlines())
        missing += not is_found
        print(f"{path.stem}: {rule if is_found else 'NOT FOUND'}", flush=True)
    return 1 if missing else 0


def _check_out(directory: Path) -> None:
    for command, where in (
        (["git", "clone", "--quiet", str(ROOT), str(directory)], ROOT),
        (["git", "checkout", "--quiet", COMMIT], directory),
        ([sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], directory),
    ):
        subprocess.run(command, cwd=where, check=True, env=os.environ | {"ROCKETBOX_COMPILED": "required"})


if __name__ == "__main__":
    sys.exit(main())
