"""The kubelet's mount of a Secret or ConfigMap: its keys as files, all of one version."""

import base64
import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cluster.kubectl import Access
from tests.timeouts import HANG_SECONDS


def mount(found: dict[str, Any], folder: Path) -> None:
    """Show an object's data in `folder`: a new folder beside the old one, and one rename of `..data` to it."""
    version = folder / f"..{found['metadata']['resourceVersion']}"
    data = folder / "..data"
    if data.is_symlink() and data.readlink().name == version.name:
        return
    version.mkdir(parents=True)
    for name, value in (found.get("data") or {}).items():
        (version / name).write_bytes(value.encode() if found["kind"] == "ConfigMap" else base64.b64decode(value))
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    former = data.readlink().name if data.is_symlink() else None
    draft = folder / "..data_tmp"
    draft.symlink_to(version.name)
    draft.rename(data)
    if former is not None:
        shutil.rmtree(folder / former)


class Mount:
    """One object in one folder, looked at every `every_seconds` until `close`: a deleted one stays as it was."""

    def __init__(
        self,
        cluster: Access,
        namespace: str,
        name: str,
        folder: Path,
        every_seconds: float = 0.5,
        kind: str = "secrets",
    ) -> None:
        self.folder = folder
        self._cluster = cluster
        self._path = f"/api/v1/namespaces/{namespace}/{kind}/{name}"
        self._every_seconds = every_seconds
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"mount of {name}", daemon=True)

    def start(self) -> "Mount":
        self._thread.start()
        return self

    def wait(self, *names: str, timeout_seconds: float = HANG_SECONDS) -> None:
        """Wait until these files are there, as a container waits for its volumes."""
        deadline = time.monotonic() + timeout_seconds
        while not all((self.folder / name).exists() for name in names):
            assert time.monotonic() < deadline, f"no {', '.join(names)} in {self._path}"
            time.sleep(0.05)

    def close(self) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(self._every_seconds):
            with contextlib.suppress(OSError):  # the API server is away: what is there stays
                found = self._cluster.api.get(self._path)
                if found is not None:
                    mount(found, self.folder)


@contextlib.contextmanager
def mounted(
    cluster: Access, namespace: str, name: str, folder: Path, every_seconds: float = 0.5, kind: str = "secrets"
) -> Iterator[Mount]:
    """Mirror a Secret, or a ConfigMap, into a folder, for as long as it takes."""
    one = Mount(cluster, namespace, name, folder, every_seconds, kind).start()
    try:
        yield one
    finally:
        one.close()
