"""The support bundle of the running process: figures, checks and the log in addition to what `rocketbox bundle` has."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ... import runtime
from ...doctor.bundle import Bundle, about, files_of
from ...doctor.scrubbing import Scrubber, secrets_of
from .. import reports
from ..alerts.models import AlertChannel
from ..models import ApiToken, RecoveryCode, SetPasswordLink, User

LOG_LINES = 2000
MOST_NAMES = 2000


def gather() -> Bundle:
    """Return the bundle with all parts of this process."""
    from ...doctor.reports import reports_machine  # imported late: most processes never need it

    admin = runtime.window()
    bundle = Bundle(Scrubber(_secrets(), User.objects.values_list("username", flat=True)))
    info = asdict(admin.system())
    bundle.add_json("about.json", "the program and the machine", about(os.environ) | {"process": info})
    bundle.add_json("reports.json", "Spark, Java and memory for reports", reports_machine())
    last = next(iter(reports.runs()), None)
    if last is not None:
        bundle.add_json("report-run.json", "the last run of the reports", asdict(last))
        bundle.add_text("report-run.txt", "the end of what it said", reports.log_tail(last.id))
    checks = [{"name": one.name, "level": one.level, "text": str(one.sentence)} for one in admin.checks()]
    bundle.add_json("checks.json", "the checks of the page System", checks)
    options = {f"{one.section}.{one.name}": [one.value, one.default] for one in admin.options.listing().options}
    bundle.add_json("options.json", "the options in force, and their defaults", options)
    bundle.add_json("metrics.json", "the figures of /metrics", admin.metrics())
    listed: tuple[Any, ...] = admin.topics.page(show="user", page_size=500).rows
    topics = [
        {"name": one.name, "kind": one.kind, "queues": one.write_queues, "messages": one.messages, "bytes": one.bytes}
        for one in listed[:MOST_NAMES]
    ]
    bundle.add_json("topics.json", "topics: names, queues, how many messages", topics)
    rows: tuple[Any, ...] = admin.groups.page(page_size=500).rows
    groups = [{"name": one.name, "lag": one.lag, "clients": one.clients} for one in rows[:MOST_NAMES]]
    bundle.add_json("groups.json", "consumer groups: names, lag, clients", groups)
    store = runtime.window().system().store_dir
    directories = {"store": Path(store), "rocketbox": runtime.place().directory}
    bundle.add_json("files.json", "names, lengths and times of files, no contents", files_of(directories))
    lines = admin.log.lines("INFO", limit=LOG_LINES)
    text = "\n".join(f"{one.at_ms} {one.level} {one.logger} [{one.thread}] {one.text}" for one in lines)
    bundle.add_text("log.txt", "the newest lines of the log", text)
    return bundle


def _secrets() -> list[str]:
    """Return all known secrets, so that the scrubber removes them wherever they occur."""
    found = secrets_of(os.environ)
    for user in User.objects.all():
        found += [user.password, user.totp_secret, user.identity]
    for channel in AlertChannel.objects.all():
        found += [channel.address, channel.secret, *(str(value) for value in channel.mail.values())]
    found += ApiToken.objects.values_list("digest", flat=True)
    found += SetPasswordLink.objects.values_list("digest", flat=True)
    found += RecoveryCode.objects.values_list("digest", flat=True)
    for name in ("secret-key", "audit-key"):
        try:
            data = (runtime.place().directory / name).read_bytes()
        except OSError:
            continue
        found += [data.hex(), data.decode("utf-8", "ignore").strip()]
    return [one for one in found if one]
