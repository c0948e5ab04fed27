"""`rocketbox serve --test` and the pytest plugin: a server that never outlives the process that started it."""

import json
import os
import signal
import ssl
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from appliance.command_line import load
from appliance.engine.engine import Engine
from appliance.engine.errors import StartError
from appliance.serve_for_tests import make_certificate, server_file
from tests.support.peer import Peer
from tests.support.server import is_running
from tests.support.tcp_relay import TcpRelay
from tests.support.tls import TlsPeer, make_pair
from tests.support.waiting import wait_for

pytest_plugins = ("pytester", "appliance.pytest_rocketbox")

ROOT = Path(__file__).resolve().parents[2]


def test_a_server_for_tests_picks_what_disturbs_nobody():
    config, options = load(["--test"], {})
    assert (config.broker_port, config.namesrv_port, config.bind) == (0, 0, "127.0.0.1")
    assert config.store.mapped_file_size_commit_log == 16 << 20
    assert config.store.flush_disk_type == "ASYNC_FLUSH"
    assert config.store.disk_max_used_space_ratio == 95
    assert not options.console
    assert options.own_directory == config.data_dir
    assert load(["--test"], {})[0].data_dir != config.data_dir


def test_what_is_said_beside_it_counts(tmp_path):
    config, options = load(["--test", "--data-dir", str(tmp_path), "--flush", "sync", "--broker-port", "1234"], {})
    assert config.store.flush_disk_type == "SYNC_FLUSH"
    assert (config.broker_port, config.data_dir, options.own_directory) == (1234, tmp_path, None)
    with pytest.raises(StartError, match="leave console out of --roles"):
        load(["--test", "--roles", "broker,namesrv,console"], {})


def test_the_server_ends_with_its_standard_input_and_leaves_nothing():
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance.main", "serve", "--test"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("ROCKETBOX_")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    ready = json.loads(process.stdout.readline())
    directory = Path(ready["data_dir"])
    assert directory.stat().st_mode & 0o777 == 0o700
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()
    assert not directory.exists()


def test_with_tls_and_no_certificate_it_makes_one_for_itself_and_a_server_that_is_not_for_tests_never_does(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance.main", "serve", "--test", "--data-dir", str(tmp_path / "data")],
        cwd=ROOT,
        env={**os.environ, "ROCKETBOX_BROKER_TLS_MODE": "enforcing"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        ready = json.loads(process.stdout.readline())
        certificate = tmp_path / "data" / "rocketbox-test.pem"
        peer = TlsPeer(ready["broker"], ssl.create_default_context(cafile=certificate), server_hostname="127.0.0.1")
        peer.sock.close()
        process.stdin.close()
        assert process.wait(60) == 0
    assert certificate.with_suffix(".key").stat().st_mode & 0o777 == 0o600
    for given in (["--test", "--data-dir", str(tmp_path)], ["--data-dir", str(tmp_path)]):
        config, _ = load(given, {"ROCKETBOX_BROKER_TLS_MODE": "enforcing"})
        assert bool(config.broker.tls_cert_file) == ("--test" in given)
    with pytest.raises(StartError, match="needs tlsCertFile"):
        Engine(config).start()


def test_a_certificate_of_its_own_that_ends_within_a_week_is_made_anew_at_the_start(tmp_path):
    config, _ = load(["--test", "--data-dir", str(tmp_path)], {"ROCKETBOX_BROKER_TLS_MODE": "enforcing"})
    certificate, _ = make_pair(tmp_path, "rocketbox-test", days=1)
    old = certificate.read_bytes()
    make_certificate(config)
    made = certificate.read_bytes()
    assert made != old
    make_certificate(config)
    assert certificate.read_bytes() == made


def advertise(*arguments):
    """Run the command; return (its status, what it says)."""
    command = [sys.executable, "-m", "appliance.main", "advertise", *map(str, arguments)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    return ran.returncode, (ran.stdout + ran.stderr).strip()


def test_clients_are_told_the_address_at_which_a_container_is_mapped(tmp_path):
    from appliance.pytest_rocketbox import RocketBox

    server = RocketBox(tmp_path)
    server.start()
    data = server_file(tmp_path / "data").parent
    relay = TcpRelay(server.broker)
    try:
        with server.client(timeout=60) as client:
            assert client.producer().send("orders", "before").queue_offset == 0
            assert advertise(relay.address, "--data-dir", data) == (0, f"clients get {relay.address}")
            with closing(Peer(server.namesrv)) as peer:
                routed = peer.ask(105, {"topic": "orders", "acceptStandardJsonOnly": "true"})
            assert [one["brokerAddrs"] for one in json.loads(routed.body)["brokerDatas"]] == [{"0": relay.address}]
        with server.client(timeout=60) as client:
            client.producer().send("orders", "through the map")
            assert relay._pairs
            found = []
            consumer = client.pull_consumer("billing", start="first").subscribe("orders")
            wait_for(lambda: found.extend(consumer.poll(1.0)) or len(found) == 2, "both messages")
        for address in ("nowhere", "0.0.0.0:80", "127.0.0.1:0"):
            status, said = advertise(address, "--data-dir", data)
            assert (status, said.startswith("rocketbox: HOST:PORT must be ")) == (2, True)
        assert advertise(server.broker, "--data-dir", data) == (0, f"clients get {server.broker}")
        assert advertise(relay.address, "--data-dir", data) == (0, f"clients get {relay.address}")
        server.restart()
        os.kill(server.pid, signal.SIGHUP)
        wait_for(lambda: "a hang-up brought no new address" in server.log(1000), "its end without an effect")
        with closing(Peer(server.namesrv)) as peer:
            routed = peer.ask(105, {"topic": "orders", "acceptStandardJsonOnly": "true"})
        assert [one["brokerAddrs"] for one in json.loads(routed.body)["brokerDatas"]] == [{"0": server.broker}]
    finally:
        relay.close()
        server.kill()
    status, said = advertise("127.0.0.1:10911", "--data-dir", data)
    assert (status, said.split("; ")[0]) == (
        2,
        f"rocketbox: No server of `rocketbox serve --test` runs with the directory {data}",
    )


DIES = """
import os, signal

pytest_plugins = ("appliance.pytest_rocketbox",)

def test_dies(rocketbox):
    with open("pid", "w") as file:
        file.write(str(rocketbox.pid))
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_leaves_no_server(pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(DIES)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:django", "-p", "no:schemathesis"]
    run = subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert run.wait(120) == -9
    pid = int((pytester.path / "pid").read_text())
    wait_for(lambda: not is_running(pid), "the end of the server")


def test_a_message_that_does_not_come_is_told_with_what_did(produce, consumed, rocketmq_topic):
    produce(rocketmq_topic, "one")
    with pytest.raises(pytest.fail.Exception, match=r"2 messages were wanted of .*, and 1 came"):
        consumed(rocketmq_topic, 2, timeout=0.1)
    with pytest.raises(pytest.fail.Exception, match="was to stay empty"):
        consumed.none(rocketmq_topic, within=0.0)
    assert consumed(rocketmq_topic, 1, timeout=60)[0].text == "one"
    with pytest.raises(pytest.fail.Exception, match="the topic does not exist"):
        consumed(f"{rocketmq_topic}-2", 1, timeout=0.0)


def test_a_group_is_idle_when_it_has_committed_all(rocketbox, produce, group_idle, rocketmq_topic, rocketmq_group):
    with pytest.raises(pytest.fail.Exception, match="produce sent nothing"):
        group_idle(rocketmq_group)
    produce(rocketmq_topic, "one")
    with pytest.raises(pytest.fail.Exception, match=r"committed \S+ of 1"):
        group_idle(rocketmq_group, timeout=0.0)
    with pytest.raises(pytest.fail.Exception, match="the topic no-such-topic does not exist"):
        group_idle(rocketmq_group, "no-such-topic", timeout=0.0)
    handled = []
    with rocketbox.client(timeout=60) as client:
        consumer = client.push_consumer(rocketmq_group, start="first")
        consumer.subscribe(rocketmq_topic, handler=handled.append)
        consumer.start()
        wait_for(lambda: handled, "the message")
    group_idle(rocketmq_group)


def test_dead_letters_are_found(rocketbox, produce, dead_letters, rocketmq_topic, rocketmq_group):
    from appliance.client import Reject

    produce(rocketmq_topic, "poison")
    with rocketbox.client(timeout=60) as client:
        consumer = client.push_consumer(rocketmq_group, start="first")

        @consumer.subscribe(rocketmq_topic)
        def refuse(message):
            raise Reject("no such customer")

        consumer.start()
        (letter,) = dead_letters(rocketmq_group, timeout=60)
    assert letter.text == "poison"
    assert letter.properties["RETRY_TOPIC"] == rocketmq_topic


@pytest.fixture
def one_queue(request):
    """The mark, which is known only once the plugin is loaded: here by the module itself."""
    request.node.add_marker(pytest.mark.rocketmq(queues=1))


def test_a_topic_has_the_queues_that_its_test_wants(rocketbox, one_queue, rocketmq_topic):
    with rocketbox.client(timeout=60) as client:
        assert [queue.queue_id for queue in client.reader().queues(rocketmq_topic)] == [0]


def test_further_servers_are_of_their_own(rocketbox, rocketbox_factory):
    other = rocketbox_factory("--cluster-name", "other")
    assert other.namesrv != rocketbox.namesrv
    with other.client(timeout=60) as client:
        assert client.producer().send("orders", "x").queue_offset == 0


def test_what_is_tested_finds_the_server_by_the_environment(rocketbox, rocketbox_env, consumed, rocketmq_topic):
    from appliance.client import Client

    with Client(timeout=60) as client:
        client.producer().send(rocketmq_topic, "x")
    assert rocketbox_env == rocketbox.namesrv
    assert len(consumed(rocketmq_topic, 1, timeout=60)) == 1
