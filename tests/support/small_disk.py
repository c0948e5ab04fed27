"""A small file system of its own that fills up for real, in a mount namespace that ends with the test.

with SmallDisk(tmp_path / "data", 160) as disk:
    server = Server(disk.path, prefix=disk.prefix)      # sees the file system at its data directory
    (disk.inside / "filler").write_bytes(...)            # the same place, as seen from here
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_READY = "mounted"


class NoSmallDisk(Exception):
    """Nothing can be mounted here; the text says what was tried."""


class SmallDisk:
    """`size_mib` at `path`: ext4 on a loop device where that can be had, else tmpfs."""

    def __init__(self, path: Path, size_mib: int) -> None:
        self.path = path
        self.kind = ""
        self._size_mib = size_mib
        self._image = path.with_name(path.name + ".image")
        self._keeper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SmallDisk:
        self.path.mkdir(parents=True)
        tried = []
        tmpfs = f'mount -t tmpfs -o size={self._size_mib}m none "{self.path}"'
        for kind, namespaces, mount in (
            ("ext4", ["-m"], f'mount -o loop "{self._image}" "{self.path}"'),
            ("tmpfs", ["-m"], tmpfs),
            ("tmpfs", ["-r", "-m"], tmpfs),
        ):
            if kind == "ext4" and not self._make_image():
                continue
            command = ["unshare", *namespaces, "sh", "-c", f"{mount} && echo {_READY} && exec sleep 3600"]
            keeper = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            assert keeper.stdout is not None
            said = keeper.stdout.readline().decode().strip()
            if said == _READY:
                self.kind, self._keeper = kind, keeper
                self._user_namespace = "-r" in namespaces
                return self
            keeper.kill()
            keeper.wait()
            tried.append(f"{' '.join(command[:4])} {kind}: {said}")
        raise NoSmallDisk("no file system of its own can be mounted: " + "; ".join(tried))

    def _make_image(self) -> bool:
        mkfs = shutil.which("mkfs.ext4", path=f"{os.environ.get('PATH', '')}:/sbin:/usr/sbin")
        if os.geteuid() != 0 or mkfs is None:
            return False
        with open(self._image, "wb") as image:
            image.truncate(self._size_mib << 20)
        return subprocess.run([mkfs, "-q", "-F", "-m", "0", self._image], check=False).returncode == 0

    @property
    def _pid(self) -> int:
        assert self._keeper is not None
        return self._keeper.pid

    @property
    def prefix(self) -> list[str]:
        """Prefix that runs a command where it sees the file system. The prefix's process becomes the command."""
        user = ["-U", "--preserve-credentials"] if self._user_namespace else []
        return ["nsenter", "-t", str(self._pid), "-m", *user, "sh", "-c", f'cd "{ROOT}" && exec "$@"', "sh"]

    def run(self, command: str) -> None:
        """A shell command that sees the file system."""
        subprocess.run([*self.prefix[:-3], "-c", command], check=True, stdin=subprocess.DEVNULL)

    @property
    def inside(self) -> Path:
        """`path` as it is in there."""
        return Path(f"/proc/{self._pid}/root{self.path}")

    @property
    def free_bytes(self) -> int:
        stat = os.statvfs(self.inside)
        return stat.f_bavail * stat.f_frsize

    @property
    def used_share(self) -> float:
        stat = os.statvfs(self.inside)
        used = stat.f_blocks - stat.f_bfree
        return used / (used + stat.f_bavail)

    def __exit__(self, *exc: object) -> None:
        if self._keeper is not None:
            self._keeper.send_signal(signal.SIGKILL)
            self._keeper.wait()
        self._image.unlink(missing_ok=True)
