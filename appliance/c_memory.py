"""What the C library keeps of freed memory, and when it goes back to the kernel."""

from __future__ import annotations

import ctypes


def give_memory_back() -> None:
    """Make the C library return large blocks of memory to the kernel. Before the first thread.

    When a block of 16 MiB is freed, as after checking a password, glibc raises its thresholds and keeps such blocks
    from then on: 17 MB for ever. With thresholds that we set it does not. Other C libraries have no such call and no
    such habit.
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
    """What was freed but is held for later goes back to the kernel: imports leave such pieces. Without the GIL."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        pass
