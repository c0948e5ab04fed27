"""Rules for the whole suite."""

import os

import pytest


def pytest_configure(config):
    config.addinivalue_line("markers", "compiled: is about the compiled twin of the hot path, and needs it")
    config.addinivalue_line("markers", "nightly: needs more time than a commit has; `make nightly` runs it")


def pytest_collection_modifyitems(config, items):
    """A run that is told to do with the pure twin has nothing to say of the other."""
    if os.environ.get("ROCKETBOX_PURE"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("compiled")])
        items[:] = [item for item in items if not item.get_closest_marker("compiled")]


def pytest_runtest_setup(item):
    if item.get_closest_marker("compiled"):
        from appliance.engine.hotpath import WHY_PURE

        if WHY_PURE:
            pytest.skip(WHY_PURE)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Where CI is set a test that cannot run has failed: a suite that skips is not green."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.longrepr = f"{item.nodeid} did not run, and CI is set: {reason}"


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    """The same for a module that skips itself while it is collected."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was not collected, and CI is set: {report.longrepr}"
