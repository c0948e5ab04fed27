"""Amount of work for a test that could go on for ever: rounds of faults, seeds, frames."""

import os
from typing import TypeVar

Amount = TypeVar("Amount")

TORTURE = os.environ.get("ROCKETBOX_TORTURE") == "1"
#: Without the prefix of settings: a server that a bench starts in this environment refuses those that it does not know.
NIGHTLY = TORTURE or os.environ.get("NIGHTLY") == "1"


def effort(commit: Amount, nightly: Amount, torture: Amount) -> Amount:
    """`commit` in every run, `nightly` in `make nightly`, `torture` in `make torture`, which takes hours."""
    return torture if TORTURE else nightly if NIGHTLY else commit
