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
