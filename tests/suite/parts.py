"""The parts of the suite: they run side by side, three at a time, the longest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Sources that the packaging tests build and install. While their digest is the recorded one, they are unchanged since
#: those tests last passed, and only a nightly run repeats them.
PACKAGING = (
    "pyproject.toml", "setup.py", "MANIFEST.in", "Dockerfile", ".dockerignore", "binary/*", "requirements/*",
    "script/binary", "script/client-wheel", "script/environment", "script/reports", "script/server", "client_wheel/*",
)  # fmt: skip
PACKAGING_TESTS = (
    "test_binary", "test_client_wheel", "test_container", "test_dockerfile", "test_install", "test_reports_setup",
)  # fmt: skip
_RECORDED = Path(__file__).with_name("packaging.sha256")


@dataclass(frozen=True)
class Part:
    """One pytest process. minutes: measured, to begin with the longest. environment: added to the run's own."""

    name: str
    arguments: tuple[str, ...]
    minutes: float
    environment: Mapping[str, str] = field(default_factory=dict)


def _part(name: str, minutes: float, arguments: str, **environment: str) -> Part:
    return Part(name, tuple(arguments.split()), minutes, environment)


_TOP = " ".join(
    str(path.relative_to(ROOT))
    for path in sorted((ROOT / "tests").glob("test_*.py"))
    if path.stem not in PACKAGING_TESTS
)
_PACKAGING_ARGUMENTS = " ".join(f"tests/{name}.py" for name in PACKAGING_TESTS)

#: The parts that every commit runs, each test once.
EVERYTHING = (
    _part("clients", 9.6, "tests/clients"),
    _part("spark", 7, "tests/spark_reports"),
    _part("broker", 6, "tests/engine/broker"),
    _part("browser", 3.6, "tests/browser"),
    _part("engine", 16.5, "tests/engine --ignore=tests/engine/broker"),
    _part("console", 6, "tests/console"),
    _part("processes", 8.1, f"{_TOP} tests/examples tests/client tests/client_django"),
    _part("api", 3.7, "tests/api tests/commands"),
    _part("sets", 4, "tests/rig tests/exchange"),
    _part("crash", 6.9, "tests/crash"),
    _part("hostile", 2.3, "tests/world tests/fuzz tests/hotpath tests/mutants"),
)
#: Tests of code with a compiled twin, run on the pure Python twin.
PURE = _part(
    "pure",
    1.8,
    """tests/engine/remoting tests/engine/broker/sending tests/engine/broker/pulling tests/engine/broker/test_send.py
    tests/engine/broker/test_batch_queues.py tests/engine/broker/test_delayed_sends.py
    tests/engine/broker/test_queue_entries.py tests/engine/broker/test_sent_and_recovered.py
    tests/engine/broker/test_pull.py tests/engine/broker/test_cold_pull.py tests/engine/broker/test_pull_offsets.py
    tests/engine/broker/test_long_polling.py tests/engine/store/index tests/engine/store/log/test_commit_log.py
    tests/engine/store/test_batches.py tests/engine/store/test_dispatch.py tests/engine/store/test_message_store.py
    tests/engine/store/test_publication.py tests/engine/store/test_settling.py tests/engine/filter/test_sql_filter.py
    tests/engine/filter/test_tags.py tests/engine/test_bad_frames.py tests/engine/test_bad_input.py
    tests/engine/test_gates.py tests/engine/test_hot_path_budget.py tests/engine/access/test_every_code.py
    tests/engine/access/test_heartbeats.py --ignore=tests/engine/store/index/test_index_twins.py""",
    ROCKETBOX_PURE="1",
)
PURE_NIGHTLY = _part(
    "pure",
    15,
    """tests/engine/broker tests/engine/filter tests/engine/protocol tests/engine/remoting tests/engine/replication
    tests/engine/store tests/engine/test_bad_frames.py tests/engine/test_bad_input.py tests/engine/test_gates.py
    tests/engine/test_hot_path_budget.py tests/engine/access
    tests/clients/test_sending.py::test_synchronous_sends_come_back_byte_for_byte
    tests/clients/test_sending.py::test_a_batch_takes_consecutive_places_in_one_queue
    tests/clients/test_consuming.py::test_a_tag_subscription_gets_its_tags_and_nothing_else
    tests/clients/test_cpp.py::test_what_it_sends_java_and_it_receive
    tests/clients/test_cpp.py::test_a_batch_is_stored_message_by_message""",
    ROCKETBOX_PURE="1",
)
#: A repeated run of tests that share a process with threads of the engine, with these threads delayed.
SLOWED = _part(
    "slowed",
    25,
    """tests/engine/broker tests/engine/failover tests/engine/namesrv tests/engine/remoting tests/engine/replication
    tests/engine/store tests/engine/window tests/api tests/commands --ignore=tests/api/test_fuzz.py""",
    SLOWED="any",
)
#: Tests of the benches, which are not part of the product.
BENCH = _part("bench", 4, "tests/bench")
_PACKAGES = _part("packages", 8, _PACKAGING_ARGUMENTS)


def parts_of(nightly: bool, compiled: bool) -> list[Part]:
    """Return the parts of a run, the longest first."""
    parts = [*EVERYTHING, BENCH] if nightly else list(EVERYTHING)
    if nightly or packaging_digest() != recorded_digest():
        parts.append(_PACKAGES)
    if compiled:
        parts += [PURE_NIGHTLY, SLOWED] if nightly else [PURE]
    return sorted(parts, key=lambda part: -part.minutes)


def packaging_digest() -> str:
    digest = sha256()
    for pattern in PACKAGING:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file():
                digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def recorded_digest() -> str:
    return _RECORDED.read_text().strip() if _RECORDED.exists() else ""


def record_packaging() -> None:
    """Record that the packaging tests passed with the present sources; the file is committed."""
    _RECORDED.write_text(packaging_digest() + "\n")
