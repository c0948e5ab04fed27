"""Rules for the whole suite."""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.support.effort import NIGHTLY

_SYNCS = {"fsync": os.fsync, "fdatasync": os.fdatasync}


# A busy machine is no fault of an example: neither its time nor that of making it fails a test.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_configure(config):
    if os.environ.get("SLOWED"):
        from tests.support.slowed import SEED  # the import delays threads from now on

        print(f"SLOWED={SEED}")
    config.addinivalue_line("markers", "disk: looks at the page cache, so its syncs wait for the disk")
    config.addinivalue_line("markers", "compiled: is about the compiled twin of the hot path, and needs it")
    config.addinivalue_line("markers", "nightly: needs more time than a commit has; `make nightly` runs it")


def pytest_collection_modifyitems(config, items):
    """Deselect tests of the compiled twin in a run with the pure twin only."""
    if os.environ.get("ROCKETBOX_PURE"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("compiled")])
        items[:] = [item for item in items if not item.get_closest_marker("compiled")]


def _open_and_no_more(fd):
    """Stand in for a sync: fail if the descriptor is closed, and let other threads go on."""
    os.fstat(fd)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    # No test can see whether bytes survive a power cut: recording disks record what was synced, and in what order. Most
    # of an engine's start and stop was waiting for a disk that other tests keep busy. Server processes always sync.
    wait = NIGHTLY or item.get_closest_marker("disk")
    for name, real in _SYNCS.items():
        setattr(os, name, real if wait else _open_and_no_more)

    if item.get_closest_marker("compiled"):
        from appliance.engine.hotpath import WHY_PURE

        if WHY_PURE:
            pytest.skip(WHY_PURE)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Report a skipped test as failed if CI is set: a suite that skips is not green."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.longrepr = f"{item.nodeid} did not run, and CI is set: {reason}"


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    """Do the same for a module that skips itself while it is collected."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was not collected, and CI is set: {report.longrepr}"
