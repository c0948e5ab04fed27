"""Apache RocketMQ name servers and brokers, started from their Maven artifacts.

Tests use them as the other side (our broker behind Apache's name server and the reverse), benches as the measure.
The jars of one version are resolved once by Maven into a cache directory (`server_jars`); a started server lives in
a scratch directory of its own (home, store, logs) and on reserved loopback ports, with a small heap. 4.9.8 is not here:
its server jars were never published.

    with ApacheRocketMQ("5.3.3", flush="async") as apache:
        client.connect(apache.namesrv)      # "127.0.0.1:23456"

Servers die with the thread that started them (PDEATHSIG), so a killed test run leaves none behind.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.ports import port_is_free, reserve_port

VERSIONS = ("4.9.7", "5.3.3")

_POM = Path(__file__).with_name("apache_jars") / "pom.xml"

# Flags that both generations need on Java 17: they unmap files and read directory buffers through internal classes.
_JAVA_17_FLAGS = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)

# 4.9 refuses to start without this file in ROCKETMQ_HOME/conf; 5.x carries its own and logs below user.home.
_LOGBACK_XML = """<?xml version="1.0" encoding="UTF-8"?>
<configuration>
  <appender name="FILE" class="ch.qos.logback.core.FileAppender">
    <file>{log_file}</file>
    <encoder><pattern>%d %p %t %c - %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="FILE"/></root>
</configuration>
"""

# An orderly stop of 5.3.3 takes up to 20 s of fixed sleeps. Leaving a `with` does not wait for them: SIGTERM, then this
# many seconds, then SIGKILL. Call stop() where the orderly end (unregistration, clean store) matters.
_EXIT_TIMEOUT_S = 1.0


class ApacheError(RuntimeError):
    """An Apache server could not be resolved or did not start; the message holds what it last said."""


def cache_dir(version: str) -> Path:
    """Return the directory that keeps the jars of one version between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "rocketbox" / "apache" / version / "lib"


def server_jars(version: str) -> Path:
    """The directory that holds every jar of the name server and the broker of `version`; resolved on first use.

    Runs Maven (needs `mvn` and `java`), which takes about ten seconds with a cold repository. Safe when several
    processes ask at once: each resolves into its own directory and one rename wins.
    Raises ApacheError when Maven is missing or fails.
    """
    jars = cache_dir(version)
    if (jars / f"rocketmq-broker-{version}.jar").exists():
        return jars
    if shutil.which("mvn") is None:
        raise ApacheError("Maven (mvn) is needed to resolve Apache RocketMQ and was not found on PATH")
    jars.parent.mkdir(parents=True, exist_ok=True)
    resolved = Path(tempfile.mkdtemp(prefix="resolving-", dir=jars.parent))
    try:
        command = [
            "mvn", "-q", "-B", "-f", str(_POM), f"-Drocketmq.version={version}",
            "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={resolved}",
        ]  # fmt: skip
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900)
        if done.returncode != 0:
            raise ApacheError(f"Maven could not resolve Apache RocketMQ {version}:\n{_tail(done.stdout + done.stderr)}")
        try:
            resolved.rename(jars)
        except OSError:
            if not (jars / f"rocketmq-broker-{version}.jar").exists():
                raise
    finally:
        shutil.rmtree(resolved, ignore_errors=True)
    return jars


class _JavaServer:
    """One JVM running one main class with one properties file, in a scratch directory."""

    main_class = ""
    logback_name = ""

    def __init__(
        self,
        version: str,
        *,
        scratch: Path | None = None,
        heap: str = "512m",
        jvm_flags: Sequence[str] = (),
        cpus: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`scratch`: an existing directory to keep (default: a temporary one, removed by stop).

        `cpus`: a taskset list such as "0" or "0,1"; the JVM sizes its pools by what it may run on.
        """
        self.version = version
        self.scratch = scratch if scratch is not None else Path(tempfile.mkdtemp(prefix="apache-rocketmq-"))
        self._remove_scratch = scratch is None
        self._heap = heap
        self._jvm_flags = tuple(jvm_flags)
        self._cpus = cpus
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.properties: dict[str, str] = {}
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ApacheError("not started")
        return self._process.pid

    def launch(self) -> None:
        """Start the process and return at once; `wait_until_ready` comes next."""
        jars = server_jars(self.version)
        home = self.scratch / "home"
        logs = self.scratch / "logs"
        for directory in (home / "conf", logs):
            directory.mkdir(parents=True, exist_ok=True)
        (home / "conf" / self.logback_name).write_text(_LOGBACK_XML.format(log_file=logs / "server.log"))
        config = self.scratch / "server.conf"
        config.write_text("".join(f"{key}={value}\n" for key, value in self.properties.items()))
        command: list[str] = []
        if shutil.which("setpriv"):
            command += ["setpriv", "--pdeathsig", "KILL", "--"]
        if self._cpus is not None:
            command += ["taskset", "-c", self._cpus]
        command += [
            _java(), f"-Xms{self._heap}", f"-Xmx{self._heap}", *_JAVA_17_FLAGS,
            f"-Duser.home={self.scratch}", f"-Djava.io.tmpdir={self.scratch}", "-XX:-UsePerfData", *self._jvm_flags,
            "-cp", f"{jars}/*", self.main_class, "-c", str(config),
        ]  # fmt: skip
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("NAMESRV_", "JAVA_TOOL"))}
        environment.update(ROCKETMQ_HOME=str(home), HOME=str(self.scratch), **self._environment)
        with open(logs / "console.log", "ab") as console:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, env=environment, cwd=self.scratch
            )

    def require_running(self) -> None:
        """Raise ApacheError with the end of the server's output when the process has gone."""
        if self._process is not None and self._process.poll() is not None:
            said = _tail((self.scratch / "logs" / "console.log").read_text(errors="replace"))
            raise ApacheError(f"Apache {self.version} {self.main_class} exited {self._process.returncode}:\n{said}")

    def kill(self) -> None:
        """SIGKILL; the scratch directory stays until `stop`."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def stop(self, timeout_s: float = 20.0) -> None:
        """SIGTERM, then SIGKILL after `timeout_s`; returns when the process is gone and its ports are free."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
        deadline = time.monotonic() + 60
        while self._process is not None and not port_is_free(self.port) and time.monotonic() < deadline:
            time.sleep(0.02)
        if self._remove_scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)


class ApacheNamesrv(_JavaServer):
    """One Apache name server. `with ApacheNamesrv("4.9.7") as namesrv: namesrv.address`"""

    main_class = "org.apache.rocketmq.namesrv.NamesrvStartup"
    logback_name = "logback_namesrv.xml"

    def __init__(self, version: str, *, config: Mapping[str, object] | None = None, port: int = 0, **jvm: Any) -> None:
        super().__init__(version, **jvm)
        self.port = port or reserve_port()
        self.properties = {
            "listenPort": str(self.port),
            "bindAddress": "127.0.0.1",
            "kvConfigPath": str(self.scratch / "namesrv" / "kvConfig.json"),
            **_as_text(config),
        }

    def wait_until_ready(self, timeout_s: float = 120.0) -> None:
        """Return once a route query is answered."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                ask(self.address, 106, {})
                return
            except OSError:
                self.require_running()
            if time.monotonic() > deadline:
                raise ApacheError(f"the name server did not answer in {timeout_s:.0f} s")
            time.sleep(0.05)

    def __enter__(self) -> ApacheNamesrv:
        try:
            self.launch()
            self.wait_until_ready()
        except BaseException:
            self.stop(timeout_s=2)
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop(timeout_s=_EXIT_TIMEOUT_S)


class ApacheBroker(_JavaServer):
    """One Apache broker that registers with any name server. Ready when a topic of it is routed there."""

    main_class = "org.apache.rocketmq.broker.BrokerStartup"
    logback_name = "logback_broker.xml"

    def __init__(
        self,
        version: str,
        namesrv: str,
        *,
        flush: str = "async",
        broker_name: str = "broker-a",
        broker_id: int = 0,
        cluster_name: str = "DefaultCluster",
        config: Mapping[str, object] | None = None,
        port: int = 0,
        **jvm: Any,
    ) -> None:
        """`namesrv`: "host:port" or a list with ";". `flush`: "async" or "sync". `config`: more broker.conf lines."""
        super().__init__(version, **jvm)
        self.namesrv = namesrv
        self.port = port or reserve_port()
        store = self.scratch / "store"
        self.properties = {
            "brokerClusterName": cluster_name,
            "brokerName": broker_name,
            "brokerId": str(broker_id),
            "brokerRole": "ASYNC_MASTER" if broker_id == 0 else "SLAVE",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": str(self.port),
            "haListenPort": str(self.port + 1),
            "namesrvAddr": namesrv,
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "flushDiskType": {"async": "ASYNC_FLUSH", "sync": "SYNC_FLUSH"}[flush],
            # It refuses what waited for a thread any longer (200 ms by itself), and a machine may be that busy.
            **{f"waitTimeMillsIn{queue}Queue": "60000" for queue in ("Send", "Pull", "Heartbeat", "Transaction")},
            **_as_text(config),
        }

    @property
    def store_dir(self) -> Path:
        return Path(self.properties["storePathRootDir"])

    def wait_until_ready(self, timeout_s: float = 180.0) -> None:
        """Return once every name server of the list routes this broker and it accepts connections."""
        deadline = time.monotonic() + timeout_s
        waiting = self.namesrv.split(";")
        while waiting:
            try:
                _, body = ask(waiting[0], 106, {})
                if f'"{self.address}"'.encode() in body:
                    socket.create_connection(("127.0.0.1", self.port), 30).close()
                    waiting.pop(0)
                    continue
            except OSError:
                pass
            self.require_running()
            if time.monotonic() > deadline:
                raise ApacheError(f"the broker was not routed by {waiting[0]} in {timeout_s:.0f} s")
            time.sleep(0.05)

    def __enter__(self) -> ApacheBroker:
        try:
            self.launch()
            self.wait_until_ready()
        except BaseException:
            self.stop(timeout_s=2)
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop(timeout_s=_EXIT_TIMEOUT_S)


class ApacheRocketMQ:
    """A name server and one broker of the same version, in one scratch directory."""

    def __init__(
        self,
        version: str,
        *,
        flush: str = "async",
        config: Mapping[str, object] | None = None,
        scratch: Path | None = None,
        heap: str = "512m",
        cpus: str | None = None,
        broker_name: str = "broker-a",
        cluster_name: str = "DefaultCluster",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """environment: more of it, for the broker."""
        self._own_scratch = scratch is None
        self.scratch = scratch if scratch is not None else Path(tempfile.mkdtemp(prefix="apache-rocketmq-"))
        for part in ("namesrv", "broker"):
            (self.scratch / part).mkdir(parents=True, exist_ok=True)
        self.namesrv_server = ApacheNamesrv(version, scratch=self.scratch / "namesrv", heap=heap, cpus=cpus)
        self.broker_server = ApacheBroker(
            version,
            self.namesrv_server.address,
            flush=flush,
            config=config,
            scratch=self.scratch / "broker",
            heap=heap,
            cpus=cpus,
            broker_name=broker_name,
            cluster_name=cluster_name,
            environment=environment,
        )

    @property
    def namesrv(self) -> str:
        return self.namesrv_server.address

    @property
    def broker(self) -> str:
        return self.broker_server.address

    @property
    def pids(self) -> tuple[int, int]:
        """Process ids of the name server and the broker."""
        return self.namesrv_server.pid, self.broker_server.pid

    def start(self) -> None:
        """Start both and return when the name server routes the broker; stops both and raises when one fails."""
        try:
            self.namesrv_server.launch()
            self.namesrv_server.wait_until_ready()
            self.broker_server.launch()
            self.broker_server.wait_until_ready()
        except BaseException:
            self.stop(timeout_s=2)
            raise

    def stop(self, timeout_s: float = 20.0) -> None:
        """Stop the broker, then the name server; both have gone and their ports are free on return."""
        self.broker_server.stop(timeout_s)
        self.namesrv_server.stop(timeout_s)
        if self._own_scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def __enter__(self) -> ApacheRocketMQ:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop(timeout_s=_EXIT_TIMEOUT_S)


def ask(
    address: str, code: int, fields: Mapping[str, str], body: bytes = b"", timeout_s: float = 30.0
) -> tuple[dict[str, Any], bytes]:
    """One remoting request on a connection of its own; return (header dict, body bytes) of the answer.

    Raises OSError when there is no answer. Deliberately not the project's own client: a measure must not lean on
    what it measures.
    """
    host, _, port = address.rpartition(":")
    request = {"code": code, "language": "JAVA", "version": 479, "opaque": 1, "flag": 0, "extFields": dict(fields)}
    header = json.dumps(request, separators=(",", ":")).encode()
    with socket.create_connection((host, int(port)), timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        while True:
            (length,) = struct.unpack(">i", _receive_exactly(connection, 4))
            frame = _receive_exactly(connection, length)
            header_length = struct.unpack_from(">i", frame)[0] & 0xFFFFFF
            answer = json.loads(frame[4 : 4 + header_length])
            if answer["flag"] & 1 and answer["opaque"] == 1:
                return answer, frame[4 + header_length :]


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionError("closed in the middle of a frame")
        received += chunk
    return bytes(received)


def _java() -> str:
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home) / "bin" / "java") if java_home else shutil.which("java")
    if java is None:
        raise ApacheError("Java is needed to run Apache RocketMQ and was not found on PATH")
    return java


def _as_text(config: Mapping[str, object] | None) -> dict[str, str]:
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (config or {}).items()}


def _tail(text: str, lines: int = 25) -> str:
    return "\n".join(text.splitlines()[-lines:])
