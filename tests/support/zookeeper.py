"""ZooKeeper servers of Debian's package `libzookeeper-java`, as an ensemble of one or more on loopback.

    with ZooKeeper(tmp_path / "zookeeper", members=3) as zookeeper:
        store = open_store(zookeeper.url)       # "zookeeper://127.0.0.1:23451,..."
        zookeeper.members[0].kill()             # SIGKILL; pause() and resume() are SIGSTOP and SIGCONT

Each is a JVM of a 64 MB heap. Servers die with the thread that started them.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from tests.support.ports import reserve_port
from tests.support.store_servers import StoreCluster, StoreServer, StoreServerError

JARS = Path("/usr/share/java")
#: Jars that the server loads. The package's own list of dependencies has ten times as many.
NEEDED = (
    "zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-nop", "netty-all", "netty-handler", "netty-transport",
    "netty-common", "netty-buffer", "metrics-core", "snappy-java", "commons-io", "commons-cli", "jackson-core",
    "jackson-databind", "jackson-annotations", "spotbugs-annotations", "findbugs-annotations", "log4j-1.2",
)  # fmt: skip


class ZooKeeperMember(StoreServer):
    def __init__(self, number: int, directory: Path) -> None:
        super().__init__(f"ZooKeeper {number}", directory)
        self.number = number
        self.port = reserve_port()
        self.config: list[str] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        self.data.mkdir(exist_ok=True)
        (self.data / "myid").write_text(str(self.number))
        config = self.directory / "zoo.cfg"
        config.write_text("\n".join([*self.config, f"dataDir={self.data}", f"clientPort={self.port}", ""]))
        jars = ":".join(str(JARS / f"{name}.jar") for name in NEEDED if (JARS / f"{name}.jar").exists())
        return [
            "setpriv", "--pdeathsig", "KILL", "--", "java", "-Xms32m", "-Xmx64m", "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Dzookeeper.admin.enableServer=false",
            "-Dzookeeper.preAllocSize=1024", "-Dzookeeper.snapCount=1000", "-cp", jars,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config),
        ]  # fmt: skip

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

    def serves(self) -> bool:
        return bool(self.role())


class ZooKeeper(StoreCluster[ZooKeeperMember]):
    """tick_ms: a session lasts two at least, an election is found out after five."""

    scheme = "zookeeper"

    def __init__(self, directory: Path, members: int = 1, *, tick_ms: int = 500) -> None:
        if not (JARS / "zookeeper.jar").exists():
            raise StoreServerError("ZooKeeper's jars are not there: Debian's package is libzookeeper-java")
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

    def _leader(self) -> ZooKeeperMember | None:
        return next((one for one in self.members if one.running and one.role() == "leader"), None)
