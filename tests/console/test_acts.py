"""The tables that say who may do what, beside a text that people have read: tests/golden/access.txt.

A line for each page and each operation of the API: its role and grants, the most bytes of its body, whose names it is
about for users who are kept to some, and whether only a master can do it. A change of rights is a change of that text.
"""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

from appliance.console.acts import ACTS, CALLS
from appliance.console.users.access import ACCESS, MASTERS_WORK
from appliance.console.users.scope import NAMES
from appliance.request_bodies import TAKES

from .test_access import PATTERNS

GOLDEN = Path(__file__).parents[1] / "golden" / "access.txt"


def described() -> list[str]:
    """Return the lines of the golden text as the tables have them, sorted."""
    addresses = {name: f"/{route} {name}" for name, route in PATTERNS}
    return sorted(_line(addresses.get(key, key), key) for key in ACCESS)


def _line(address: str, key: str) -> str:
    rule = ACCESS[key]
    said = [", ".join((rule.role or "everyone", *rule.grants))]
    said += [f"door {rule.door}"] if rule.door else []
    said += [f"body {TAKES[key]}"] if key in TAKES else []
    said += [f"names {NAMES[key]}"] if key in NAMES else []
    said += ["master"] if key in MASTERS_WORK else []
    return f"{address}: {'; '.join(said)}"


def test_the_tables_are_what_the_golden_text_says():
    known, here = GOLDEN.read_text(encoding="utf-8").splitlines(), described()
    assert known == here, "\n".join(unified_diff(known, here, "golden/access.txt", "the tables", n=0, lineterm=""))


def test_a_page_and_an_operation_have_one_row_each():
    names = [act.name for act in ACTS]
    assert len(names) == len(set(names))
    said = {(call.operation, page, call.takes) for page, call in CALLS}
    assert len(said) == len({operation for operation, _, _ in said}), "several commands of one operation differ"
