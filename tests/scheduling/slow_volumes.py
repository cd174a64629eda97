"""Claims whose volumes come some seconds after a scheduler has selected a node: a provisioner and binder of our own."""

import threading
import time
from typing import Any, Self

from tests.cluster.controlplane import ControlPlane
from tests.scheduling.extender_server import NAMESPACE
from webhook.core.scheduling.claims import BIND_COMPLETED, SELECTED_NODE

_CLASS = "slow"
_CLAIMS = f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims"
_SIZE = {"storage": "1Gi"}
_POLL_SECONDS = 0.2


class SlowVolumes:
    """Provides the volume of each claim some seconds after a node was selected for it."""

    def __init__(self, plane: ControlPlane, provision_seconds: float) -> None:
        self.provision_seconds = provision_seconds
        self._plane = plane
        self._since_seconds: dict[str, float] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._plane.apply(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": _CLASS},
                "provisioner": "tests.podgate.io/slow",
                "volumeBindingMode": "WaitForFirstConsumer",
            }
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        for claim in self._list():
            name = claim["metadata"]["name"]
            for path in (f"{_CLAIMS}/{name}", f"/api/v1/persistentvolumes/{name}"):
                self._plane.delete(path)
                unprotected = {"metadata": {"finalizers": None}}
                self._plane.api.request("PATCH", path, unprotected, "application/merge-patch+json")

    def claim(self, name: str) -> list[dict[str, Any]]:
        """Create a claim, and return the volumes of a Pod that names it."""
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": _CLASS, "resources": {"requests": _SIZE}}
        code, answer = self._plane.api.request("POST", _CLAIMS, {"metadata": {"name": name}, "spec": spec})
        assert code == 201, answer
        return [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]

    def _run(self) -> None:
        while not self._is_over.wait(_POLL_SECONDS):
            for claim in self._list():
                metadata = claim["metadata"]
                if SELECTED_NODE not in metadata.get("annotations", {}) or claim["spec"].get("volumeName"):
                    continue
                since_seconds = self._since_seconds.setdefault(metadata["name"], time.monotonic())
                if time.monotonic() - since_seconds >= self.provision_seconds:
                    self._bind(metadata["name"], metadata["uid"])

    def _list(self) -> list[dict[str, Any]]:
        try:
            status, answer = self._plane.api.request("GET", _CLAIMS)
        except OSError:  # the API server is away
            return []
        found: list[dict[str, Any]] = answer["items"] if status == 200 else []
        return found

    def _bind(self, name: str, uid: str) -> None:
        """Create the volume, and bind the claim to it as kube-controller-manager does."""
        reference = {"kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": name, "uid": uid}
        volume = {"capacity": _SIZE, "accessModes": ["ReadWriteOnce"], "storageClassName": _CLASS}
        kept = {"hostPath": {"path": "/x"}, "persistentVolumeReclaimPolicy": "Retain", "claimRef": reference}
        metadata = {"name": name}
        self._plane.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": volume | kept})
        completed = {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": name}}
        self._plane.api.request("PATCH", f"{_CLAIMS}/{name}", completed, "application/merge-patch+json")
