"""A stop ends in order or leaves the files as a crash does; there is nothing in between."""

import contextlib
import os
import threading

from appliance.engine import engine as engine_module
from tests.support.engine import Peer, pull_fields, records, send_fields, start_engine
from tests.support.offline import damage, verified
from tests.support.waiting import wait_for


def test_a_peer_that_takes_nothing_leaves_no_descriptor_open(tmp_path, monkeypatch):
    """In a process that goes on, as with the plugin for pytest, each engine would leave some."""
    monkeypatch.setattr(engine_module, "DRAIN_S", 0.1)
    engine = start_engine(tmp_path)
    peer = Peer(engine.broker_address)
    assert peer.ask(310, send_fields("Full"), bytes(1 << 20)).code == 0
    port = peer.sock.getsockname()[1]
    [conn] = [one for one in engine.server.connections.values() if one.remote_host.endswith(f":{port}")]
    for _ in range(50):  # more than the kernel holds for both
        peer.send(11, pull_fields("Full", 0, 0))
    wait_for(lambda: conn.outbox_bytes > 0, "answers that are not taken")
    held = os.readlink(f"/proc/self/fd/{conn.fd}")
    engine.stop()
    assert held not in _descriptors()
    peer.close()


def _descriptors() -> set[str]:
    """Return what the descriptors of this process lead to."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return found


def test_an_io_thread_that_does_not_end_keeps_its_store_to_itself(tmp_path, monkeypatch):
    """When the thread wakes up, it finds no closed file, and no other process that writes beside it."""
    for name in ("LOOP_STOP_S", "LOOP_CALL_S", "ANSWER_S", "UNREGISTER_S"):
        monkeypatch.setattr(engine_module, name, 0.1)
    engine = start_engine(tmp_path)
    peer = Peer(engine.broker_address)
    for number in range(20):
        assert peer.ask(310, send_fields("Stuck"), b"%d" % number).code == 0
    stuck, go_on = threading.Event(), threading.Event()
    engine.loop.call_soon(lambda: (stuck.set(), go_on.wait(60)))
    assert stuck.wait(60)
    for number in range(20, 40):
        peer.send(310, send_fields("Stuck"), b"%d" % number)
    engine.stop()
    assert (tmp_path / "store" / "abort").exists()
    assert engine.loop.alive
    go_on.set()
    assert engine.loop.stop(5)
    store = engine.broker.store
    for service in (store._flush, store._flush_queues, *store.services):
        service.stop()
    store.let_go()
    engine.loop.close()
    peer.close()
    assert not damage(tmp_path)
    assert verified(tmp_path)[0].records >= 20
    monkeypatch.undo()
    engine = start_engine(tmp_path)
    peer = Peer(engine.broker_address)
    answer = peer.ask(11, pull_fields("Stuck", 0, 0))
    assert [record.body for record in records(answer.body)][:20] == [b"%d" % number for number in range(20)]
    peer.close()
    engine.stop()
    assert not (tmp_path / "store" / "abort").exists()
