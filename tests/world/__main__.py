"""python -m tests.world --seed N --steps M: the story of a seed; of a failure the shortest one that still fails."""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
from pathlib import Path

from tests.world import planted
from tests.world.older import engine


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__)
    parser.add_argument("--seed", type=int, help="without it a new one each time")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--replay", type=Path, help="play the script in this file")
    parser.add_argument("--keep", type=Path, help="write the script of a failure there")
    parser.add_argument("--whole", action="store_true", help="do not shorten a failure")
    parser.add_argument("--trace", action="store_true", help="print every act")
    parser.add_argument("--set", action="store_true", help="the story of a set whose members fail over")
    parser.add_argument("--plant", help="with the fault of planted.py whose name has these words")
    parser.add_argument("--only", type=_names, help="leave out all acts but these, by name, with commas between")
    parser.add_argument("--without", type=_names, default=set(), help="leave these acts out")
    parser.add_argument("--go-on", action="store_true", help="with the next seed when one fails")
    parser.add_argument("--engine", type=Path, help="with the engine of a checkout of commit 4c9568e")
    parser.add_argument("--anew", action="store_true", help="there: queues of a topic that is made again begin at 0")
    arguments = parser.parse_args()
    document = {} if arguments.replay is None else json.loads(arguments.replay.read_text())
    if arguments.engine is not None:
        engine.use(arguments.engine, arguments.anew or document.get("anew", False))
        arguments.without |= engine.WITHOUT
    if arguments.plant is not None:
        planted.plant(arguments.plant)
    from tests.world import world  # the engine comes behind the fault
    from tests.world.sets import story
    from tests.world.threads import engine_modules

    engine_modules()  # no story pays for imports
    gc.freeze()
    if arguments.replay is not None:
        arguments.set = document.get("set", False)
        return _one(arguments, document["seed"], document["script"], whole=True)
    script_of = story.script_of if arguments.set else world.script_of
    first = random.SystemRandom().randrange(1 << 31) if arguments.seed is None else arguments.seed
    failed = 0
    for seed in range(first, first + arguments.seeds):
        script = [act for act in script_of(seed, arguments.steps) if _is_wanted(arguments, act["act"])]
        failed |= _one(arguments, seed, script, arguments.whole)
        gc.collect()  # a story collects nothing, and the next one is slower in what it left
        if failed and not arguments.go_on:
            break
    return failed


def _names(text: str) -> set[str]:
    return set(text.split(","))


def _is_wanted(arguments: argparse.Namespace, name: str) -> bool:
    return name not in arguments.without and (arguments.only is None or name in arguments.only | {"begin", "settle"})


def _one(arguments: argparse.Namespace, seed: int, script: list[dict[str, object]], whole: bool) -> int:
    from tests.world.sets import story
    from tests.world.shrink import shrink, told
    from tests.world.world import play

    if arguments.set:
        play = story.play
    printed = (lambda done: print(told(done), flush=True)) if arguments.trace else None
    result = play(seed, script, printed)
    acts = len(result.done)
    rate = acts / max(result.seconds, 0.001)
    print(f"seed {seed}: {acts} acts in {result.seconds:.1f} s, {rate:.0f} a second; {result.figures}", flush=True)
    if result.failure is None:
        return 0
    failure = result.failure
    if not whole:
        print(f"seed {seed}: {failure.text}\nshortening ...", flush=True)
        script, failure = shrink(seed, [done.act for done in failure.done], failure, play)
    for done in failure.done:
        print(told(done))
    print(f"seed {seed}: {failure.text}")
    if arguments.keep is not None:
        document = {"seed": seed, **({"set": True} if arguments.set else {}), "script": script}
        arguments.keep.write_text(json.dumps(document, indent=1) + "\n")
        print(f"--replay {arguments.keep} plays it again")
    return 1


if __name__ == "__main__":
    sys.exit(main())
