"""A cluster whose API server calls a recorder in place of Podgate."""

import json
from dataclasses import dataclass
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.load_balancer import LoadBalancer
from tests.cluster.recording_webhook import Recorder
from webhook.core.webhook_configurations import ClientConfig

_JSON_PATCH, _MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"

# A conflict, and a version that a JSON patch does not find: the scheduler or kwok wrote the Pod's status meanwhile.
_OVERTAKEN, _TRIES = (409, 422), 10


@dataclass(frozen=True)
class RecordedCluster:
    """A cluster whose API server calls a recorder."""

    plane: ControlPlane
    recorder: Recorder
    load_balancer: LoadBalancer
    client: ClientConfig

    def request(self, method: str, path: str, body: Any, content_type: str = "application/json") -> tuple[int, str]:
        """Send a request, and forget the calls of earlier ones."""
        self.recorder.take_calls()
        status, answer = self.plane.api.request(method, path, body, content_type)
        return status, answer.get("message", "") if isinstance(answer, dict) else str(answer)

    def create(self, namespace: str, name: str = "", user: str = "", **spec: Any) -> tuple[int, str]:
        """Create a Pod (as a dry run if it has no name), as the administrator or another user."""
        metadata = {"name": name} if name else {"generateName": "asked-"}
        metadata |= spec.pop("metadata", {})
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
        pod["spec"] = {"containers": [{"name": "c", "image": "i"}], **spec}
        path = f"/api/v1/namespaces/{namespace}/pods{'' if name else '?dryRun=All'}"
        if not user:
            return self.request("POST", path, pod)
        self.recorder.take_calls()
        flags = ("create", "--raw", path, "-f", "-", f"--as={user}", "--as-group=system:masters")
        done = self.plane.kubectl(*flags, input=json.dumps(pod), check=False)
        return (201 if done.returncode == 0 else 500), done.stderr

    def patch(self, path: str, patch: Any, *, sub_resource: str = "") -> tuple[int, str]:
        content_type = _JSON_PATCH if isinstance(patch, list) else _MERGE_PATCH
        pod_path = f"/api/v1/namespaces/{path}"
        return self.request("PATCH", f"{pod_path}/{sub_resource}" if sub_resource else pod_path, patch, content_type)

    def update(self, path: str, patch: Any) -> tuple[int, str]:
        """Patch a Pod as it is stored: without its version the API server may first judge an older one of its cache."""
        for _ in range(_TRIES):
            version = self.plane.api.get(f"/api/v1/namespaces/{path}")["metadata"]["resourceVersion"]
            if isinstance(patch, list):
                given: Any = [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *patch]
            else:
                given = {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": version}}
            status, response = self.patch(path, given)
            if status not in _OVERTAKEN:
                break
        return status, response

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Paths and operations of the calls for the last request."""
        return [(call.path, call.operation) for call in self.recorder.take_calls()]

    @property
    def distinct_calls(self) -> set[tuple[str, str]]:
        """Paths and operations of the calls for the last update, of which the number is not known.

        The API server calls once more for each conflict: the scheduler or kwok writes the Pod's status meanwhile.
        """
        return {*self.calls}

    def stop_podgate(self) -> None:
        self.load_balancer.targets = []
        self.load_balancer.cut()

    def start_podgate(self) -> None:
        self.load_balancer.targets = [self.recorder.address]
