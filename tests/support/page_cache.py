"""A kernel or a file system that answers reads which may not wait with an error, always."""

from __future__ import annotations

import os

import pytest


def refuse_reads_that_never_wait(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """number: the errno, EOPNOTSUPP where there are no such reads, EAGAIN where nothing is ever cached."""
    real = os.preadv

    def preadv(fd: int, buffers: list[memoryview], position: int, flags: int = 0) -> int:
        if flags:
            raise OSError(number, os.strerror(number))
        return real(fd, buffers, position)

    monkeypatch.setattr(os, "preadv", preadv)
