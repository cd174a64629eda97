"""Small disks that a run can fill: file systems in memory, in a mount namespace that ends with the run."""

import errno
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cluster.processes import ComponentError

_SIZE = "64m"
_BALLAST = "ballast"
_CHUNK_BYTES = 1 << 20
_READY = b"ready\n"


class SmallDisks:
    """Use it as a context manager. Of a namespace of its own nothing is left, however the run ends.

    A program whose command line begins with `words` of a shell sees each disk at `folder / NAME`, where others see an
    empty folder; this process finds it by `find`.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder = folder
        self._names = names
        self._is_root = os.geteuid() == 0
        self._holder: subprocess.Popen[bytes] | None = None

    @property
    def words(self) -> str:
        as_user = "" if self._is_root else "--user --preserve-credentials "
        return f'nsenter --target="$(cat {self._pid_file})" {as_user}--mount --wdns="$PWD"'

    def find(self, name: str) -> Path:
        assert self._holder is not None, "the disks are not there: enter them"
        return Path(f"/proc/{self._holder.pid}/root{self.folder / name}")

    def fill(self, name: str) -> None:
        """Leave no room for another page."""
        with (self.find(name) / _BALLAST).open("ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(_CHUNK_BYTES))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def clear(self, name: str) -> None:
        (self.find(name) / _BALLAST).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        for name in self._names:
            (self.folder / name).mkdir(parents=True)
        mounts = [f"mount -t tmpfs -o size={_SIZE} disk {self.folder / name}" for name in self._names]
        script = "\n".join([*mounts, f"echo $$ > {self._pid_file}", "echo ready", "exec cat"])
        as_user = () if self._is_root else ("--user", "--map-root-user")
        self._holder = subprocess.Popen(
            ["unshare", *as_user, "--mount", "sh", "-ec", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C must not end it before the programs
        )
        assert self._holder.stdout is not None
        with self._holder.stdout as output:
            is_ready = output.readline() == _READY
        if not is_ready:
            raise ComponentError("no file system can be mounted: permit user namespaces, run as root, or --form short")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._holder is not None
        assert self._holder.stdin is not None
        self._holder.stdin.close()
        self._holder.wait()

    @property
    def _pid_file(self) -> Path:
        return self.folder / "holder"
