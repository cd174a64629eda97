"""Pods that several callers create, delete and have denied concurrently; which of them exist."""

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
"""After each operation of a caller: all others on the machine are to have a part of it."""


class PodChurn:
    """Pods of one namespace, in which none may ask for a GPU. Only the churn creates and deletes there."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.came: set[str] = set()
        """The uids of all that came to be; complete when the churn is over."""
        self.refused = 0
        """How often a Pod was refused that had been charged."""
        self.operations = 0
        self._plane = plane
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._unclear: list[str] = []
        """Names of Pods of which nobody has said whether they came to be. Nobody deletes them."""
        self._over = threading.Event()

    @classmethod
    @contextmanager
    def over(cls, plane: ControlPlane, namespace: str) -> Iterator[Self]:
        """Let it rage until the block ends."""
        churn = cls(plane, namespace)
        churn._forbid_gpus()
        with ThreadPoolExecutor(CALLERS) as callers:
            blowing = [callers.submit(churn._blow, seed) for seed in range(CALLERS)]
            try:
                yield churn
            finally:
                churn._over.set()
            for one in blowing:
                one.result()
        found = {pod["metadata"]["name"]: uid for uid, pod in churn.there().items()}
        churn.came |= {found[name] for name in churn._unclear if name in found}

    def there(self) -> dict[str, dict[str, Any]]:
        """Return the Pods that there are, by uid."""
        return {pod["metadata"]["uid"]: pod for pod in self._plane.api.get(self._path)["items"]}

    def live(self) -> set[str]:
        """Return the uids of those that count as live: not of one that was to be gone at once, and still is there."""
        return {uid for uid, pod in self.there().items() if "deletionTimestamp" not in pod["metadata"]}

    def half_delete(self) -> None:
        """Leave a Pod as an API server does that is killed between the two writes by which it deletes one."""
        name = f"pod-{uuid.uuid4().hex}"
        assert self._create(name, finalizers=["podgate.io/stays"]) == 201
        status, response = self._request("DELETE", f"{self._path}/{name}")
        assert (status, response["metadata"]["deletionGracePeriodSeconds"]) == (200, 0), response

    def _forbid_gpus(self) -> None:
        """Refuse them as ResourceQuota does, whose controller need not run."""
        hard = {f"requests.{_GPU}": "0"}
        metadata = {"name": "no-gpus", "namespace": self._namespace}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}
        self._plane.apply(quota)
        path = f"/api/v1/namespaces/{self._namespace}/resourcequotas/no-gpus/status"
        patch = {"status": {"hard": hard, "used": hard}}
        status, response = self._plane.api.request("PATCH", path, patch, "application/merge-patch+json")
        assert status == 200, response

    def _blow(self, seed: int) -> None:
        chance, own = random.Random(seed), list[str]()  # noqa: S311  it guards nothing
        while not self._over.wait(_PAUSE_SECONDS):
            operation = chance.choices(("create", "delete", "collide", "gpu"), (50, 30, 10, 10))[0]
            name, new = chance.choice(own) if own else "", f"pod-{uuid.uuid4().hex}"
            if operation == "delete" and name:
                own.remove(name)
                self._request("DELETE", f"{self._path}/{name}")
            elif operation == "collide" and name:
                self.refused += self._create(name) == 409
            elif operation == "gpu":
                self.refused += self._create(new, {_GPU: "1"}) == 403
            elif self._create(new) == 201:
                own.append(new)
            self.operations += 1

    def _create(self, name: str, limits: dict[str, str] | None = None, **metadata: Any) -> int:
        container = {"name": "c", "image": "i", "resources": {"limits": limits or {}}}
        spec, metadata = {"containers": [container]}, {"name": name, **metadata}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        status, response = self._request("POST", self._path, pod)
        if status == 201:
            self.came.add(response["metadata"]["uid"])
        elif not status:
            self._unclear.append(name)
        return status

    def _request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return status and answer; status 0 where nobody knows what has become of it."""
        try:
            status, response = self._plane.api.request(method, path, body)
        except OSError:
            return 0, None
        return (status, response) if status < 500 else (0, response)
