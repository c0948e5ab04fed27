"""A cluster that does nothing: no master there, or none of its workers free. Spark itself would wait for ever, or end
after minutes with the name of a Java class."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .failures import RunFailed

#: Without an executor for so long a run ends.
WAIT_S = 120.0
#: Time between two looks at the executors.
EVERY_S = 1.0
CONNECT_S = 10.0


def check_master(master: str, timeout_s: float = CONNECT_S) -> None:
    """Connect to the masters of a standalone cluster, `spark://HOST:PORT,HOST:PORT`. Raises RunFailed if none can be
    reached. Other kinds of masters are left to Spark."""
    if not master.startswith("spark://"):
        return
    reason = ""
    for address in master.removeprefix("spark://").split(","):
        found = re.fullmatch(r"\[?(.+?)\]?:([0-9]{1,5})", address)
        try:
            if found is None:
                raise OSError("it is no HOST:PORT")
            socket.create_connection((found[1], int(found[2])), timeout_s).close()
            return
        except (OSError, OverflowError) as error:
            reason = f"{address}: {getattr(error, 'strerror', None) or error}"
    raise RunFailed("master_unreachable", master=master, text=reason)


@contextmanager
def watched(spark: Any, master: str, wait_s: float = WAIT_S, every_s: float = EVERY_S) -> Iterator[None]:
    """Cancel Spark's jobs in the block if it has no executor for `wait_s`; raises RunFailed then. Only for clusters:
    local Spark is its own executor."""
    if master.startswith("local"):
        yield
        return
    over, given_up = threading.Event(), threading.Event()

    def look() -> None:
        without = 0.0
        while not over.wait(every_s):
            with suppress(Exception):  # the session may be over, or its process
                without = 0.0 if executors(spark) else without + every_s
                if without >= wait_s:
                    given_up.set()
                    spark.sparkContext.cancelAllJobs()

    thread = threading.Thread(target=look, name="executors", daemon=True)
    thread.start()
    try:
        yield
    except Exception as error:
        if given_up.is_set():
            raise RunFailed("no_executor", master=master, minutes=max(1, round(wait_s / 60))) from error
        raise
    finally:
        over.set()
        thread.join(5)


def executors(spark: Any) -> int:
    """Return the number of executors that Spark has now, the driver not among them."""
    return int(spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size()) - 1
