"""A request's objects end with its answer: none waits for the collector, which never examines old objects.

Two objects that hold each other stay, with all that they hold. With bodies of megabytes that is the memory of the
machine: the process collects the youngest only (`engine_process`).
"""

from __future__ import annotations

import ast
import gc
import types
from collections import Counter
from contextlib import contextmanager

import pytest

from appliance.engine.protocol.command import RemotingCommand
from appliance.engine.remoting.connection import Connection
from tests.fuzz.hostile_frames import STATUS_REPLIES, Frames
from tests.fuzz.test_hostile_frames import Stranger, served_codes, wait_for_pools
from tests.support.engine import start_engine
from tests.support.server import ROOT

_OURS = "/appliance/engine/"


@contextmanager
def nothing_left(settle):
    """Fail if the block left requests, connections, or frames of the engine's functions to the collector. settle: waits
    until all requests were handled."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        settle()
        gc.collect()
        found = Counter(text for one in gc.garbage if (text := _told(one)))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.collect()
    assert not found, "\n".join(f"{number} x {text}" for text, number in found.most_common(20))


def _told(one):
    """Describe an object of a request; None for one that tests and libraries leave."""
    if isinstance(one, RemotingCommand):
        return f"a {'response' if one.is_response else 'request'} of code {one.code}"
    if isinstance(one, Connection):
        return "a connection"
    if isinstance(one, types.FrameType) and _OURS in one.f_code.co_filename:
        return f"{one.f_code.co_filename.partition(_OURS)[2]}:{one.f_code.co_firstlineno} {one.f_code.co_name}"
    if isinstance(one, types.FunctionType) and _OURS in one.__code__.co_filename:
        return f"{one.__code__.co_filename.partition(_OURS)[2]}:{one.__code__.co_firstlineno} {one.__qualname__}"
    if isinstance(one, (bytes, bytearray, str)) and len(one) > 10_000:
        return f"{len(one)} bytes"
    return None


@pytest.fixture
def engine(tmp_path):
    running = start_engine(tmp_path / "data")
    yield running
    running.stop()


def test_requests_of_any_code_leave_nothing_to_the_collector(engine):
    ports = list(zip((engine.broker_address, engine.namesrv_address), served_codes(engine), strict=True))
    strangers = [Stranger(address, STATUS_REPLIES) for address, _ in ports]
    frames = [iter(Frames(7, codes)) for _, codes in ports]

    def ask(number):
        for stranger, some in zip(strangers, frames, strict=True):
            for _ in range(number):
                stranger.send([next(some)])

    ask(300)  # makes everything that is made once
    with nothing_left(lambda: wait_for_pools(engine)):
        ask(1500)
    for stranger in strangers:
        stranger.close()


def test_no_function_within_another_names_itself():
    """Each call would leave a cycle: its cell holds the function, and the function its cell."""
    found = []
    for path in sorted((ROOT / "appliance").rglob("*.py")):
        tree = ast.parse(path.read_text())
        methods = {id(one) for kind in ast.walk(tree) if isinstance(kind, ast.ClassDef) for one in kind.body}
        for outer in ast.walk(tree):
            if not isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for inner in ast.walk(outer):
                if inner is outer or id(inner) in methods or not isinstance(inner, type(outer)):
                    continue
                if any(isinstance(one, ast.Name) and one.id == inner.name for one in ast.walk(inner)):
                    found.append(f"{path.relative_to(ROOT)}:{inner.lineno} {inner.name}")
    assert found == []
