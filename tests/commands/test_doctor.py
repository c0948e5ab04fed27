"""`rocketbox doctor`: one check of an installation that reports each problem with advice."""

import errno
import json
import os
import socket
import subprocess
import sys
import time

import pytest

from appliance.commands import doctor as doctor_command
from appliance.doctor import machine, place
from appliance.doctor.diagnosis import Diagnosis
from appliance.engine import disk, hotpath, own_files
from appliance.engine.hotpath import pure
from appliance.engine.hotpath.choice import Choice
from appliance.engine.store.findings import Finding
from tests.support.golden import extract_store
from tests.support.offline import change, contents
from tests.support.page_cache import refuse_reads_that_never_wait
from tests.support.ports import reserve_port
from tests.support.store import StoreUnderTest


def told(options, name=None, level=None):
    lines = doctor_command.examine(options).lines
    return [line for line in lines if name in (None, line.name) and level in (None, line.level)]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in [name for name in os.environ if name.startswith("ROCKETBOX_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def ours(tmp_path):
    """(a data directory whose store has files of the configured size, the options for it)."""
    store = StoreUnderTest(tmp_path / "data", segment_bytes=131072).open()
    store.write("T", 0, b"one", b"two")
    store.wait_recovery_position()
    store.stop()
    settings = tmp_path / "settings.toml"
    settings.write_text(
        "[store]\nmappedFileSizeCommitLog = 131072\nmappedFileSizeConsumeQueue = 2000\nmaxMessageSize = 4096\n"
    )
    options = ["-c", str(settings), "--data-dir", str(tmp_path / "data")]
    return tmp_path / "data", [*options, "--broker-port", str(reserve_port()), "--roles", "broker"]


def test_a_healthy_installation_has_no_failure(ours, capsys):
    directory, options = ours
    before = contents(directory)
    assert told(options, level="fail") == []
    for name in ("config", "packages", "data-dir", "port", "lock", "sizes", "files", "findings"):
        assert {line.level for line in told(options, name)} == {"ok"}, name
    assert doctor_command.run(options) == 0
    assert "0 failed" in capsys.readouterr().out
    assert contents(directory) == before


def test_which_twin_of_the_hot_path_runs_is_told(ours):
    _, options = ours
    (line,) = told(options, "hot-path")
    assert line.text == f"The hot path is {hotpath.CHOICE.text}."


@pytest.mark.parametrize(
    ("reason", "level", "text"),
    [
        ("", "ok", "compiled"),
        ("pure_asked", "ok", "pure Python (ROCKETBOX_PURE is set)"),
        ("pure_not_built", "warn", "pure Python (the compiled part was not built)"),
    ],
)
def test_a_pure_twin_that_nobody_asked_for_is_a_warning(reason, level, text):
    found = Diagnosis()
    machine.look_at_hot_path(found, Choice(pure, reason))
    (line,) = found.lines
    assert (line.level, line.text) == (level, f"The hot path is {text}.")


def test_what_the_compiled_part_lacks_is_the_advice(monkeypatch):
    monkeypatch.setenv("CC", "/nowhere/cc")
    found = Diagnosis()
    machine.look_at_hot_path(found, Choice(pure, "pure_not_built"))
    assert "there is no C compiler /nowhere/cc: install it, then" in found.lines[0].advice


def test_every_failure_and_warning_says_what_to_do(ours, capsys):
    directory, options = ours
    (directory / "store" / "abort").write_text("1")
    change(directory / "rocketbox" / "recovery-position", 3, b"\xff")
    assert doctor_command.run(["--json", *options]) == 0
    lines = json.loads(capsys.readouterr().out)
    assert {"level", "name", "text", "advice"} == lines[0].keys()
    assert all(line["advice"] for line in lines if line["level"] != "ok")


def test_sizes_that_do_not_fit_the_store_are_a_failure(tmp_path):
    extract_store("4.9.8", "mixed", tmp_path)
    (line,) = told(["--data-dir", str(tmp_path), "--broker-port", str(reserve_port()), "--roles", "broker"], "sizes")
    assert (line.level, line.advice) == ("fail", "set mappedFileSizeCommitLog to 131072")


def test_a_killed_broker_is_told_from_a_running_one(ours):
    directory, options = ours
    (directory / "store" / "abort").write_text("1")
    (line,) = told(options, "lock")
    assert (line.level, "abort" in line.text) == ("warn", True)
    store = StoreUnderTest(directory, segment_bytes=131072).open()
    command = [sys.executable, "-m", "appliance.main", "doctor", "--json", *options]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    store.stop()
    lines = {line["name"]: line for line in json.loads(answer.stdout)}
    assert lines["lock"]["text"] == f"Process {os.getpid()} has the store open."
    assert "does not listen on" in lines["port"]["text"], "this test has no broker around its store"
    assert answer.returncode == 0


def test_the_port_of_another_process_is_not_taken_for_the_brokers(ours):
    directory, options = ours
    port = options[options.index("--broker-port") + 1]
    code = "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); print(); sys.stdin.read()"
    store = StoreUnderTest(directory, segment_bytes=131072).open()
    command = [sys.executable, "-m", "appliance.main", "doctor", "--json", *options]

    def told_of_ports():
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return [line["text"] for line in json.loads(answer.stdout) if line["name"] == "port"]

    try:
        with subprocess.Popen([sys.executable, "-c", code, port], stdin=-1, stdout=-1) as other:
            other.stdout.readline()
            assert f"The broker of process {os.getpid()} does not listen on {port}" in told_of_ports()[0]
            other.stdin.close()
        with socket.create_server(("127.0.0.1", int(port))):
            assert told_of_ports()[0] == f"The broker answers on 127.0.0.1:{port}."
    finally:
        store.stop()


def test_a_file_with_the_number_of_anothers_socket_is_no_socket(tmp_path, monkeypatch):
    """Sockets have numbers of their own, so a file of a store may have the same one."""
    with socket.create_server(("127.0.0.1", 0)) as other, (tmp_path / "file").open("w") as file:
        status = os.stat(file.fileno())
        same = os.stat_result((status.st_mode, os.stat(other.fileno()).st_ino, *status[2:]))
        port = other.getsockname()[1]
        assert port in place.listening_ports(os.getpid())
        monkeypatch.setattr(place, "_open_files", lambda pid: [same])
        assert place.listening_ports(os.getpid()) == set()


def test_a_taken_port_is_named(ours):
    _, options = ours
    port = int(options[options.index("--broker-port") + 1])
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        (line,) = told(options, "port", "fail")
    assert str(port) in line.text


def test_a_wrong_setting_is_said_in_serves_words(ours):
    _, options = ours
    (line,) = told([*options, "--flush", "never"], "config")
    assert (line.level, line.text) == ("fail", "--flush must be sync or async, not 'never'.")


def test_a_setting_without_effect_is_told(ours, tmp_path):
    _, options = ours
    settings = tmp_path / "broker.conf"
    settings.write_text("transientStorePoolEnable=true\n")
    lines = told([*options, "-c", str(settings)], "config")
    assert [line.level for line in lines] == ["warn"]
    assert "transientStorePoolEnable" in lines[0].text


def test_directories_that_cannot_be_used(tmp_path, monkeypatch):
    base = ["--roles", "namesrv", "--namesrv-port", "0"]
    (line,) = told([*base, "--data-dir", str(tmp_path / "new" / "data")], "data-dir")
    assert (line.level, line.text) == ("ok", f"{tmp_path / 'new' / 'data'} does not exist yet and will be made.")
    (tmp_path / "file").write_text("")
    (line,) = told([*base, "--data-dir", str(tmp_path / "file")], "data-dir")
    assert (line.level, line.text) == ("fail", f"{tmp_path / 'file'} is not a directory.")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (line,) = told([*base, "--data-dir", str(tmp_path)], "data-dir")
    assert line.level == "fail"
    assert "not writable" in line.text


def test_a_disk_that_is_full_or_filling(ours, monkeypatch):
    _, options = ours
    for free, used, level in ((1 << 20, 99.0, "fail"), (1 << 40, 80.0, "warn"), (1 << 27, 20.0, "ok")):
        figures = place.disk_figures("/")._replace(free_bytes=free, used_percent=used, failure=None)
        monkeypatch.setattr(place, "disk_figures", lambda path, figures=figures: figures)
        assert [line.level for line in told(options, "disk")] == [level], free


def test_files_of_a_run_of_spark_are_not_warned_of_but_the_directory_around_them_is(ours):
    directory, options = ours
    scratch = directory / "rocketbox" / "reports" / "scratch"
    (scratch / "run" / "spark").mkdir(parents=True)
    own_files.tighten(directory / "rocketbox")
    for path in (scratch / "run", scratch / "run" / "spark"):
        path.chmod(0o755)  # Spark gives its directories this mode, whatever the umask
    assert [line.level for line in told(options, "own-files")] == ["ok"]
    scratch.chmod(0o755)
    (line,) = told(options, "own-files")
    assert (line.level, str(scratch / "run") in line.text) == ("warn", False)
    assert f"{scratch} (mode 0755)" in line.text


def test_few_descriptors_and_a_clock_of_1970(ours, monkeypatch):
    _, options = ours
    for limit, level in ((1024, "fail"), (20_000, "warn"), (1 << 20, "ok"), (-1, "ok")):
        monkeypatch.setattr(machine.resource, "getrlimit", lambda which, limit=limit: (limit, limit))
        assert [line.level for line in told(options, "descriptors")] == [level]
    monkeypatch.setattr(machine.time, "time", lambda: 1000.0)
    assert told(options, "clock")[0].level == "fail"


def test_a_clock_behind_the_newest_message(ours):
    directory, options = ours
    ahead = int(time.time() * 1000) + 3_600_000
    change(directory / "store" / "checkpoint", 0, ahead.to_bytes(8, "big"))
    lines = told(options, "clock", "warn")
    assert any("s behind the store time of the newest message" in line.text for line in lines)


def served(directory):
    """Open the fixture's store; return (its bodies, True if its reads never wait, True if it sends from the page
    cache)."""
    store = StoreUnderTest(directory, segment_bytes=131072).open()
    bodies = store.bodies("T", 0)
    found = bodies, store.disk.reads_without_waiting, store.store.log.resident(0, 91) is not None
    store.stop()
    return found


def test_an_old_kernel_is_only_slower(ours, monkeypatch):
    """A kernel without cachestat(2): doctor and the store both try it."""
    directory, options = ours
    monkeypatch.setattr(disk, "_cached_pages", lambda fd, position, size: -1)
    (line,) = told(options, "kernel")
    assert (line.level, "does not say here what is in the page cache" in line.text) == ("warn", True)
    bodies, _, sends_from_cache = served(directory)
    assert (bodies, sends_from_cache) == ([b"one", b"two"], False)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL], ids=errno.errorcode.get)
def test_a_file_system_that_cannot_tell_what_is_cached_is_only_slower(ours, monkeypatch, number):
    """Doctor and the store try the same call, and the store behaves as doctor predicts."""
    directory, options = ours
    refuse_reads_that_never_wait(monkeypatch, number)
    (line,) = told(options, "reads")
    assert (line.level, "except for the newest 64.0 MiB" in line.text) == ("warn", True)
    bodies, waits_never, _ = served(directory)
    assert (bodies, waits_never) == ([b"one", b"two"], False)


def test_doctor_and_store_agree_about_this_file_system(ours):
    """On the file system that the tests run on; for tmpfs see tests/engine/test_on_tmpfs.py."""
    directory, options = ours
    (line,) = told(options, "reads")
    bodies, waits_never, _ = served(directory)
    assert (bodies, waits_never) == ([b"one", b"two"], line.level == "ok")


def test_reads_are_tried_before_there_is_a_store_and_nothing_is_left_of_it(tmp_path, caplog):
    base = ["--data-dir", str(tmp_path), "--broker-port", str(reserve_port()), "--roles", "broker"]
    (line,) = told(base, "reads")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_bytes(b"x")
    with open(tmp_path / "file", "rb") as file:
        assert (line.level == "ok") is place._Trial().find_out_about_reads(file.fileno())
    assert not caplog.records
    assert told(["--data-dir", str(tmp_path), "--roles", "namesrv", "--namesrv-port", "0"], "reads") == []


def test_findings_and_what_was_set_aside_are_told(ours):
    directory, options = ours
    store = StoreUnderTest(directory, segment_bytes=131072)
    store.open()
    now = int(time.time() * 1000)
    for kind in ("torn", "damage", "blocks"):
        store.store.files.add_finding(Finding(now, kind, "commitlog/0", 10, 20, "/q/copy", f"because of {kind}."))
    store.store.files.add_finding(Finding(now - 40 * 86_400_000, "file", "config/topics.json", -1, -1, "", "old."))
    store.stop()
    (directory / "store" / "config").mkdir(exist_ok=True)
    (directory / "store" / "config" / "topics.json.damaged").write_text("{")
    (directory / "rocketbox" / "quarantine" / "commitlog-0-1.torn").write_bytes(b"x" * 100)
    lines = told(options, "findings")
    assert [line.level for line in lines] == ["warn", "fail", "fail", "warn"]
    assert "commitlog/0 [10, 20). because of damage." in lines[1].text
    assert lines[3].text == "1 more were found earlier."
    (line,) = told(options, "quarantine")
    assert line.text.startswith("2 files with 101 bytes were set aside")


def test_damaged_configuration_with_and_without_a_good_copy(ours):
    directory, options = ours
    config = directory / "store" / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_text('{"a":')
    assert [line.level for line in told(options, "config") if "topics" in line.text] == ["fail"]
    (config / "topics.json.bak").write_text("{}")
    assert [line.level for line in told(options, "config") if "topics" in line.text] == ["warn"]


def test_a_log_with_a_gap_and_a_foreign_file(ours):
    directory, options = ours
    log = directory / "store" / "commitlog"
    (log / f"{131072 * 5:020d}").write_bytes(bytes(131072))
    (log / "notes").write_text("hello")
    levels = {line.text.split()[0]: line.level for line in told(options, "files")}
    assert levels == {f"commitlog/{131072 * 5:020d}": "fail", "commitlog/notes": "warn", "Checkpoint,": "ok"}


def test_a_newer_versions_files_are_a_failure(ours):
    directory, options = ours
    (directory / "rocketbox" / "format").write_text("rocketbox 99\n")
    (line,) = told(options, "format")
    assert line.level == "fail"
    assert "newer version" in line.text


def test_batch_topics_of_apache_are_named(ours):
    directory, options = ours
    config = directory / "store" / "config"
    config.mkdir(exist_ok=True)
    (config / "topics.json").write_text(
        '{"topicConfigTable":{"B":{"attributes":{"queue.type":"BatchCQ"}},"N":{"attributes":{}}}}'
    )
    (line,) = told(options, "topics")
    assert line.text == "Topics with queue.type=BatchCQ are not served here: B."


def test_a_file_system_that_forgets(ours, monkeypatch):
    _, options = ours
    monkeypatch.setattr(place, "file_system", lambda path: "tmpfs")
    assert told(options, "file-system")[0].level == "warn"


def test_the_kind_of_a_file_system_is_the_deepest_mounts():
    assert place.file_system(place.existing(place.Path("/proc/self/nothing"))) == "proc"


def test_the_usage_and_the_exit_status(ours, capsys):
    _, options = ours
    assert doctor_command.run(["--help"]) == 0
    assert "rocketbox doctor" in capsys.readouterr().out
    assert doctor_command.run([*options, "--no-such-option", "1"]) == 1


def test_a_reader_that_has_gone_is_no_error(tmp_path):
    """`rocketbox doctor | head -1` prints no traceback."""
    command = f"{sys.executable} -m appliance.main doctor --data-dir {tmp_path} | true"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert ran.stderr == ""


def test_an_address_for_clients_on_which_nobody_listens_is_told(tmp_path):
    options = ["--data-dir", str(tmp_path / "data"), "--broker-port", str(reserve_port()), "--namesrv-port", "0"]
    [line] = told([*options, "--advertise", "10.1.2.3"], "address", "warn")
    assert "10.1.2.3" in line.text
    assert "--bind" in line.advice
    assert not told([*options, "--advertise", "10.1.2.3", "--bind", "127.0.0.1"], "address", "ok")
    assert all("so they cannot connect" not in one.text for one in told([*options, "--bind", "0.0.0.0"], "address"))
    assert not told(options, "address")


def test_replication_is_told_of_where_there_is_any(tmp_path):
    options = ["--data-dir", str(tmp_path), "--broker-port", str(reserve_port()), "-c"]
    settings = tmp_path / "broker.conf"

    def lines(text, *more):
        settings.write_text(text)
        return [(line.level, line.text) for line in told([*options, str(settings), *more], "replication")]

    assert lines("") == []
    master = "haListenPort=0\nbrokerRole=SYNC_MASTER\n"
    assert lines(master) == [
        ("ok", "Slaves may follow from this machine only."),
        ("ok", "A send is acknowledged when so many slaves have it: 1."),
    ]
    [(level, text)] = lines("haListenPort=20912\nhaSlaveAddresses=all\n", "--bind", "0.0.0.0")
    assert (level, "may read every message" in text) == ("warn", True)
    slave = "brokerRole=SLAVE\nbrokerId=1\n"
    with socket.create_server(("127.0.0.1", 0)) as there:
        [(level, text)] = lines(f"{slave}haMasterAddress=127.0.0.1:{there.getsockname()[1]}\n")
        assert (level, "can be reached" in text) == ("ok", True)
        port = there.getsockname()[1]
    [(level, text)] = lines(f"{slave}haMasterAddress=127.0.0.1:{port}\n")
    assert (level, "cannot be reached" in text) == ("warn", True)
    [(level, text)] = lines(f"{slave}namesrvAddr=10.0.0.5:9876\n")
    assert (level, text) == ("ok", "This broker is a slave; it asks 10.0.0.5:9876 for its master.")
    assert lines(slave)[0][0] == "warn"
