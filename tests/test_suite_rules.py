"""Rules of the suite: under CI a test that does not run has failed, and no test measures the machine's speed."""

import ast
import os
from pathlib import Path

import pytest

from tests.support.effort import NIGHTLY

pytest_plugins = "pytester"

SUITE = """
import pytest

@pytest.mark.skip(reason="marked")
def test_marked(): ...

def test_inside():
    pytest.skip("inside")

@pytest.mark.xfail
def test_expected():
    assert False

def test_runs(): ...
"""


@pytest.fixture
def suite(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text())
    pytester.makepyfile(SUITE)
    return pytester


def test_a_skipped_test_fails_under_ci(suite, monkeypatch):
    monkeypatch.setenv("CI", "true")
    result = suite.runpytest_subprocess("-p", "no:django")
    result.assert_outcomes(passed=1, failed=1, errors=1, xfailed=1)
    result.stdout.fnmatch_lines(["*test_inside did not run, and CI is set: Skipped: inside*"])


def test_a_module_that_skips_itself_fails_under_ci(suite, monkeypatch):
    monkeypatch.setenv("CI", "true")
    suite.makepyfile(test_whole='import pytest\npytest.skip("no tool", allow_module_level=True)')
    result = suite.runpytest_subprocess("-p", "no:django", "test_whole.py")
    assert result.ret != 0
    result.assert_outcomes(errors=1)


def test_elsewhere_a_skipped_test_is_only_skipped(suite, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    suite.runpytest_subprocess("-p", "no:django").assert_outcomes(passed=1, skipped=2, xfailed=1)


def test_a_test_waits_for_no_disk_but_at_night(tmp_path):
    assert (os.fsync is os.fdatasync) is not NIGHTLY
    with (tmp_path / "file").open("wb") as file:
        os.fdatasync(file.fileno())
        closed = file.fileno()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fdatasync(closed)


@pytest.mark.disk
def test_one_that_says_so_waits_for_it():
    assert os.fsync is not os.fdatasync


def test_directories_that_tests_share_go_with_their_fixture():
    """`tmp_path_factory` keeps its directories to the end of the run: tests/support/directories.py does not."""
    tests = Path(__file__).parent
    own = tests / "support" / "directories.py"
    found = [path for path in sorted(tests.rglob("*.py")) if path != own and ".mktemp" + "(" in path.read_text()]
    assert not found


SHARED = """
import pytest
from tests.support.directories import shared_directory

@pytest.fixture(scope="module")
def place(request):
    directory = shared_directory(request, "place")
    yield directory
    assert directory.exists(), "it goes when the fixture is done with it"

def test_first(place):
    (place / "file").touch()

def test_second(place):
    assert (place / "file").exists() is EXPECTED
"""


@pytest.mark.parametrize(("expected", "left"), [(True, 0), (False, 1)])
def test_a_shared_directory_stays_only_when_a_test_failed(pytester, monkeypatch, expected, left):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    pytester.makepyfile(SHARED.replace("EXPECTED", str(expected)))
    pytester.runpytest_subprocess("-p", "no:django")
    assert len(list(pytester.path.rglob("place[0-9]"))) == left


CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns"}


def measured(source):
    """Yield the lines with an `assert` that two readings of a clock differ little, which depends on the machine."""
    if "assert" not in source or not any(f"{name}(" in source for name in CLOCKS):
        return
    tree = ast.parse(source)
    differences = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and is_difference(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assert):
            continue
        for compare in (one for one in ast.walk(node.test) if isinstance(one, ast.Compare)):
            sides = [compare.left, *compare.comparators]
            for operator, left, right in zip(compare.ops, sides, sides[1:], strict=False):
                small = {ast.Lt: left, ast.LtE: left, ast.Gt: right, ast.GtE: right}.get(type(operator))
                if small is not None and any(is_difference(one, differences) for one in ast.walk(small)):
                    yield node.lineno


def is_difference(node, names=frozenset()):
    if isinstance(node, ast.Name):
        return node.id in names
    if not isinstance(node, ast.BinOp):
        return False
    if not isinstance(node.op, ast.Sub):
        return is_difference(node.left, names) or is_difference(node.right, names)
    # A clock's reading minus a constant is a moment, not a duration.
    is_ago = all(isinstance(one, ast.Constant | ast.operator | ast.BinOp) for one in ast.walk(node.right))
    return not is_ago and any(map(reads_a_clock, ast.walk(node)))


def reads_a_clock(node):
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return name in CLOCKS and (owner is None or (isinstance(owner, ast.Name) and owner.id == "time"))


MEASURES = """
begin = time.monotonic()
assert time.monotonic() - begin < 2
assert 0.1 < time.perf_counter() - begin <= 2, "why"
assert 2 > (time.time() - begin) / 10
took = monotonic() - begin
assert took < 3
"""
WAITS = """
deadline = time.monotonic() + 60
assert time.monotonic() < deadline, "it hangs"
assert time.monotonic() - deadline >= 0.3
assert count <= 2 + 4 * (time.monotonic() - deadline)
assert time.thread_time() - deadline < 3
assert clock.monotonic() - deadline < 3
old = time.time() - 60 * 3600
assert old < first
"""


def test_no_test_measures_how_fast_the_machine_is():
    """A machine that runs other work may be arbitrarily slow. Instead of a bound on time a test checks an event, an
    order, a count, processor time, or an injected clock; tests/support/waiting.py waits, and names what hangs."""
    assert list(measured(MEASURES)) == [3, 4, 5, 7]
    assert not list(measured(WAITS))
    tests = Path(__file__).parent
    found = {
        f"{path.relative_to(tests)}:{line}"
        for path in sorted(tests.rglob("*.py"))
        for line in measured(path.read_text())
    }
    assert not found
