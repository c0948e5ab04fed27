"""Reasons for which a run can fail, each as one sentence with a key, so that it can be translated."""

from __future__ import annotations

import errno
import re
from typing import Any

from appliance.engine.translatable import gettext_noop as _

#: key -> the sentence, with placeholders for values as in Python's %.
SENTENCES = {
    "spark_missing": _("Spark cannot be used here: %(text)s"),
    "spark_not_started": _("Spark did not start; the log says why."),
    "master_unreachable": _("The Spark master %(master)s cannot be reached: %(text)s"),
    "master_refused": _("The Spark master %(master)s did not start a session: %(text)s"),
    "no_executor": _(
        "The Spark master %(master)s had no executor for this run for %(minutes)d minutes: no worker is there, or all "
        "are busy, or a worker has less memory than an executor needs."
    ),
    "store_missing": _("The data directory is not on every node of the cluster: %(text)s"),
    "spark_died": _("Spark's process ended before it was done; the log may say why. Most often memory ran out."),
    "killed": _("A process of the run was killed (%(signal)s); most often memory ran out."),
    "crashed": _("The run ended by an error of RocketBox's own: %(text)s"),
    "memory": _("The run took %(took)d MiB of memory, more than the %(limit)d MiB that it may have, and was ended."),
    "timeout": _("The run was not done after %(minutes)d minutes, and was ended."),
    "no_space": _("There is no space left on the disk of %(place)s."),
    "disk_low": _(
        "The run was ended, since only %(free)d MiB were free on the disk of %(place)s, and the broker needs them."
    ),
    "cancelled": _("The run was cancelled."),
    "broker_ended": _("The broker ended while the run went on."),
    "interrupted": _("RocketBox ended while the run went on."),
    "vanished": _("The run's processes were killed, and it is not known by whom. The log may say more."),
    "store_changed": _("The store was changed while it was read: %(text)s"),
    "pandas": _("This version of pandas does not fit: %(text)s"),
    "low_memory": _("The run was not begun: it needs %(needed)d MiB of free memory, and there are %(free)d."),
    "low_disk": _("The run was not begun: it needs %(needed)d MiB of free disk in %(place)s, and there are %(free)d."),
    "not_started": _("The run could not be started: %(text)s"),
    "data_gone": _("The log holds no messages of %(day)s."),
    "no_broker": _("No broker runs here."),
    "busy": _("Another run is making reports of the same data directory. Try again when it has ended."),
    "stopped": _("RocketBox was stopped while the run went on."),
}


class RunFailed(Exception):
    """A run cannot go on, for a reason that has a sentence."""

    def __init__(self, why: str, **values: Any) -> None:
        self.why = why
        self.values = values
        super().__init__(sentence(why, values))


def sentence(why: str, values: dict[str, Any]) -> str:
    """Return the sentence in English."""
    return SENTENCES[why] % values


def of_exception(error: BaseException, place: str) -> RunFailed:
    """Return the failure for an exception that ended the work. place: the run's directory, for a full disk."""
    if isinstance(error, RunFailed):
        return error
    text = _text_of(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunFailed("no_space", place=place)
    if isinstance(error, MemoryError):
        return RunFailed("killed", signal="MemoryError")
    whole = f"{type(error).__name__}: {error}"
    if "No space left on device" in whole or "Disk quota exceeded" in whole:
        return RunFailed("no_space", place=place)
    if "OutOfMemoryError" in whole or "Java heap space" in whole:
        return RunFailed("spark_died")
    if type(error).__name__ in ("Py4JNetworkError", "Py4JError", "ConnectionRefusedError", "ConnectionResetError"):
        return RunFailed("spark_died")
    if "JAVA_GATEWAY_EXITED" in whole:
        return RunFailed("spark_not_started")
    missing = re.search(r"StoreMissing: (.{1,300})", whole)
    if missing is not None:
        return RunFailed("store_missing", text=missing[1].strip())
    if type(error).__name__ == "DataLoss" or "failOnDataLoss" in whole:
        return RunFailed("store_changed", text=text)
    if isinstance(error, ImportError) and "pandas" in whole.lower():
        return RunFailed("pandas", text=text)
    return RunFailed("crashed", text=text)


def _text_of(error: BaseException) -> str:
    """Return an exception's type and the first line of its text, 300 characters at most."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:300]
