"""Has the C library return freed memory to the kernel."""

from __future__ import annotations

import ctypes


def give_memory_back() -> None:
    """Make the C library return large blocks of memory to the kernel. Called before the first thread starts.

    When a block of 16 MiB is freed, as after checking a password, glibc raises its thresholds and keeps such blocks
    from then on: 17 MB for ever. With thresholds set here it does not. Other C libraries have no such call and do not
    need it.
    """
    arena_max, mmap_threshold, trim_threshold = -8, -3, -1  # malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(mmap_threshold, 8 << 20)
    mallopt(trim_threshold, 8 << 20)
    mallopt(arena_max, 2)


def give_back_now() -> None:
    """Return freed memory that the C library still holds to the kernel: imports leave such pieces. Without the GIL."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        pass
