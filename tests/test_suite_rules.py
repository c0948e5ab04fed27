"""The rule of conftest.py: where CI is set, what does not run has failed."""

from pathlib import Path

import pytest

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
def suite(pytester):
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


def test_directories_that_tests_share_go_with_their_fixture():
    """`tmp_path_factory` keeps what it made to the end of the run: tests/support/directories.py does not."""
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
