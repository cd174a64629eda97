"""Concurrent creation, deletion and denial of Pods by several callers, and the Pods that exist."""

import random
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Self

from tests.cluster.controlplane import ControlPlane

CALLERS = 3
_GPU = "nvidia.com/gpu"
_PAUSE_SECONDS = 0.05
"""Pause after each operation of a caller, so that other processes get CPU time."""


class PodChurn:
    """Churn of Pods in its own namespace, which has a quota of no GPUs."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.created: set[str] = set()
        """UIDs of all Pods that were created; complete after the churn."""
        self.rejected = 0
        """How many charged Pods were rejected."""
        self.operations = 0
        self._plane = plane
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._uncertain: list[str] = []
        """Names of Pods whose creation is uncertain; they are not deleted."""
        self._is_over = threading.Event()

    @classmethod
    @contextmanager
    def run(cls, plane: ControlPlane, namespace: str) -> Iterator[Self]:
        """Run the churn until the end of the block."""
        churn = cls(plane, namespace)
        churn._forbid_gpus()
        with ThreadPoolExecutor(CALLERS) as callers:
            futures = [callers.submit(churn._run_caller, seed) for seed in range(CALLERS)]
            try:
                yield churn
            finally:
                churn._is_over.set()
            for future in futures:
                future.result()
        uids = {pod["metadata"]["name"]: uid for uid, pod in churn.list_existing().items()}
        churn.created |= {uids[name] for name in churn._uncertain if name in uids}

    def list_existing(self) -> dict[str, dict[str, Any]]:
        """Return the existing Pods by UID."""
        return {pod["metadata"]["uid"]: pod for pod in self._plane.api.get(self._path)["items"]}

    def list_live(self) -> set[str]:
        """Return the UIDs of the Pods that count as live: of those that are not terminating."""
        return {uid for uid, pod in self.list_existing().items() if "deletionTimestamp" not in pod["metadata"]}

    def leave_terminating(self) -> None:
        """Leave a terminating Pod, as an API server does that is killed between the two writes of a deletion."""
        name = f"pod-{uuid.uuid4().hex}"
        assert self._create(name, finalizers=["podgate.io/stays"]) == 201
        status, response = self._request("DELETE", f"{self._path}/{name}")
        assert (status, response["metadata"]["deletionGracePeriodSeconds"]) == (200, 0), response

    def _forbid_gpus(self) -> None:
        """Create a ResourceQuota with its status, because its controller may not run."""
        hard = {f"requests.{_GPU}": "0"}
        metadata = {"name": "no-gpus", "namespace": self._namespace}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}
        self._plane.apply(quota)
        path = f"/api/v1/namespaces/{self._namespace}/resourcequotas/no-gpus/status"
        patch = {"status": {"hard": hard, "used": hard}}
        status, response = self._plane.api.request("PATCH", path, patch, "application/merge-patch+json")
        assert status == 200, response

    def _run_caller(self, seed: int) -> None:
        generator, own_pods = random.Random(seed), list[str]()  # noqa: S311  not for secrets
        while not self._is_over.wait(_PAUSE_SECONDS):
            operation = generator.choices(("create", "delete", "collide", "gpu"), (50, 30, 10, 10))[0]
            name, new_name = generator.choice(own_pods) if own_pods else "", f"pod-{uuid.uuid4().hex}"
            if operation == "delete" and name:
                own_pods.remove(name)
                self._request("DELETE", f"{self._path}/{name}")
            elif operation == "collide" and name:
                self.rejected += self._create(name) == 409
            elif operation == "gpu":
                self.rejected += self._create(new_name, {_GPU: "1"}) == 403
            elif self._create(new_name) == 201:
                own_pods.append(new_name)
            self.operations += 1

    def _create(self, name: str, limits: dict[str, str] | None = None, **metadata: Any) -> int:
        container = {"name": "c", "image": "i", "resources": {"limits": limits or {}}}
        spec, metadata = {"containers": [container]}, {"name": name, **metadata}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        status, response = self._request("POST", self._path, pod)
        if status == 201:
            self.created.add(response["metadata"]["uid"])
        elif not status:
            self._uncertain.append(name)
        return status

    def _request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return status and body of the response; status 0 if the result is unknown."""
        try:
            status, response = self._plane.api.request(method, path, body)
        except OSError:
            return 0, None
        return (status, response) if status < 500 else (0, response)
