"""ZooKeeper servers of Debian's package `libzookeeper-java`, as an ensemble of one or more on loopback.

    with ZooKeeper(tmp_path / "zookeeper", members=3) as zookeeper:
        store = open_store(zookeeper.url)       # "zookeeper://127.0.0.1:23451,..."
        zookeeper.members[0].kill()             # SIGKILL; pause() and resume() are SIGSTOP and SIGCONT

Each is a JVM of a 64 MB heap. Servers die with the thread that started them.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from pathlib import Path

from tests.support.ports import reserve_port
from tests.support.standstill import stop_process
from tests.support.waiting import wait_for

JARS = Path("/usr/share/java")
#: What the server loads; the package's own list of dependencies has ten times as much.
NEEDED = (
    "zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-nop", "netty-all", "netty-handler", "netty-transport",
    "netty-common", "netty-buffer", "metrics-core", "snappy-java", "commons-io", "commons-cli", "jackson-core",
    "jackson-databind", "jackson-annotations", "spotbugs-annotations", "findbugs-annotations", "log4j-1.2",
)  # fmt: skip
START_TIMEOUT_S = 90.0


class ZooKeeperError(RuntimeError):
    """A server did not start; the message holds what it last said."""


class ZooKeeperMember:
    def __init__(self, number: int, directory: Path) -> None:
        self.number = number
        self.directory = directory
        self.port = reserve_port()
        self.config: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns at once; `ZooKeeper.wait_until_ready` waits."""
        assert not self.running
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(str(self.number))
        config = self.directory / "zoo.cfg"
        config.write_text("\n".join([*self.config, f"dataDir={data}", f"clientPort={self.port}", ""]))
        jars = ":".join(str(JARS / f"{name}.jar") for name in NEEDED if (JARS / f"{name}.jar").exists())
        command = [
            "setpriv", "--pdeathsig", "KILL", "--", "java", "-Xms32m", "-Xmx64m", "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Dzookeeper.admin.enableServer=false",
            "-Dzookeeper.preAllocSize=1024", "-Dzookeeper.snapCount=1000", "-cp", jars,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config),
        ]  # fmt: skip
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL, also of one that is paused."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        assert self._process is not None
        stop_process(self._process.pid)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def role(self) -> str:
        """ "leader", "follower", "standalone"; "" when it does not serve."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as peer:
                peer.sendall(b"srvr")
                said = b""
                while data := peer.recv(4096):
                    said += data
        except OSError:
            return ""
        return next((line[6:] for line in said.decode().splitlines() if line.startswith("Mode: ")), "")

    def require_running(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            said = self._log.read_text(errors="replace")[-3000:]
            raise ZooKeeperError(f"ZooKeeper {self.number} exited {self._process.returncode}:\n{said}")

    @property
    def _log(self) -> Path:
        return self.directory / "zookeeper.log"


class ZooKeeper:
    """tick_ms: a session lasts two at least, an election is found out after five."""

    def __init__(self, directory: Path, members: int = 1, *, tick_ms: int = 500) -> None:
        if not (JARS / "zookeeper.jar").exists():
            raise ZooKeeperError("ZooKeeper's jars are not there: Debian's package is libzookeeper-java")
        self.members = [ZooKeeperMember(at + 1, directory / f"z{at + 1}") for at in range(members)]
        config = [
            f"tickTime={tick_ms}", "initLimit=20", "syncLimit=5", "clientPortAddress=127.0.0.1",
            "4lw.commands.whitelist=srvr", "maxClientCnxns=0",
        ]  # fmt: skip
        if members > 1:
            config += [f"server.{one.number}=127.0.0.1:{one.port + 1}:{one.port + 2}" for one in self.members]
        else:
            config += ["standaloneEnabled=true"]
        for member in self.members:
            member.config = config

    @property
    def url(self) -> str:
        """What `haStore` takes."""
        return f"zookeeper://{','.join(member.address for member in self.members)}"

    def start(self) -> None:
        for member in self.members:
            if not member.running:
                member.start()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Returns when every member that runs serves."""
        for member in self.members:
            if member.running:
                wait_for(lambda member=member: self._serves(member), "ZooKeeper serves", START_TIMEOUT_S, every=0.05)

    def leader(self) -> ZooKeeperMember:
        return wait_for(
            lambda: next((one for one in self.members if one.running and one.role() == "leader"), None),
            "ZooKeeper has a leader",
            START_TIMEOUT_S,
            every=0.05,
        )

    def wipe(self) -> None:
        """All are killed and lose what they had."""
        for member in self.members:
            member.kill()
            shutil.rmtree(member.directory / "data", ignore_errors=True)

    def stop(self) -> None:
        self.wipe()

    def __enter__(self) -> ZooKeeper:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @staticmethod
    def _serves(member: ZooKeeperMember) -> bool:
        member.require_running()
        return bool(member.role())
