"""Directories that several tests share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


def shared_directory(request: pytest.FixtureRequest, name: str) -> Path:
    """Make a new directory for the fixture of `request`. It is removed when the fixture ends.

    pytest keeps what `tmp_path_factory` made to the end of the run, and a store takes a whole log file, 1 GiB by
    default. If a test has failed meanwhile, the directory stays, as `tmp_path` does.
    """
    directory: Path = request.getfixturevalue("tmp_path_factory").mktemp(name)
    failed = request.session.testsfailed

    def remove() -> None:
        if request.session.testsfailed == failed:
            shutil.rmtree(directory, ignore_errors=True)

    request.addfinalizer(remove)  # what the fixture itself does after its yield comes first
    return directory
