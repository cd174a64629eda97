"""Mount of a Secret or ConfigMap as by the kubelet: its keys as files, all of one version."""

import base64
import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

from certs.authority import KeyPair
from certs.ca_generations import encode_pem
from certs.token_issuer import encode_key
from tests.cluster.kubectl import Access
from tests.timeouts import HANG_SECONDS


def mount(document: dict[str, Any], folder: Path) -> None:
    """Write the data of an object into a new folder, and replace the link `..data` by one to it."""
    version = folder / f"..{document['metadata']['resourceVersion']}"
    data = folder / "..data"
    if data.is_symlink() and data.readlink().name == version.name:
        return
    version.mkdir(parents=True)
    for name, value in (document.get("data") or {}).items():
        (version / name).write_bytes(value.encode() if document["kind"] == "ConfigMap" else base64.b64decode(value))
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    old_version = data.readlink().name if data.is_symlink() else None
    new_link = folder / "..data_tmp"
    new_link.symlink_to(version.name)
    new_link.rename(data)
    if old_version is not None:
        shutil.rmtree(folder / old_version)


def mount_key_pair(pair: KeyPair, folder: Path) -> None:
    """Replace a certificate and its key at once: a reader of two files must not find the halves of two pairs."""
    found = {"tls.crt": encode_pem(pair.certificate), "tls.key": encode_key(pair.key)}
    data = {name: base64.b64encode(content).decode() for name, content in found.items()}
    metadata = {"resourceVersion": f"{pair.certificate.serial_number:x}"}
    mount({"kind": "Secret", "metadata": metadata, "data": data}, folder)


class Mount:
    """One object in one folder, polled until `close`. The files of a deleted object stay."""

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
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"mount of {name}", daemon=True)

    def start(self) -> "Mount":
        self._thread.start()
        return self

    def wait(self, *names: str, timeout_seconds: float = HANG_SECONDS) -> None:
        """Wait until these files exist, as a container waits for its volumes."""
        deadline = time.monotonic() + timeout_seconds
        while not all((self.folder / name).exists() for name in names):
            assert time.monotonic() < deadline, f"no {', '.join(names)} in {self._path}"
            time.sleep(0.05)

    def close(self) -> None:
        self._is_closed.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closed.wait(self._every_seconds):
            with contextlib.suppress(OSError):  # during an outage of the API server the files stay
                status, document = self._cluster.api.request("GET", self._path)
                if status == HTTPStatus.OK:  # not that there is none, or that the API server is shutting down
                    mount(document, self.folder)


@contextlib.contextmanager
def mount_object(
    cluster: Access, namespace: str, name: str, folder: Path, every_seconds: float = 0.5, kind: str = "secrets"
) -> Iterator[Mount]:
    """Mount a Secret or ConfigMap in a folder until the end of the block."""
    running_mount = Mount(cluster, namespace, name, folder, every_seconds, kind).start()
    try:
        yield running_mount
    finally:
        running_mount.close()
