"""Jobs whose Pods are divided. Their Pods neither fail nor succeed before the test says so."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.cluster.components import KEPT_AS_IT_IS
from tests.cluster.kubelet_reports import moment, patch
from tests.cluster.shares import SPLIT, Workload
from webhook.core.shares import SLOT_ANNOTATION

INDEX = "batch.kubernetes.io/job-completion-index"
COMPLETIONS = 200
"""More than a test lets succeed."""
GROWTH_MAX = 3
FAILED_MAX = 3
_ENDED = frozenset({"Succeeded", "Failed"})


@dataclass
class DividedJob(Workload):
    """A Job; `kind` is its completion mode, `replicas` its parallelism."""

    completions: int = COMPLETIONS
    completed: set[int] = field(default_factory=set)
    """Indexes that have succeeded."""

    @property
    def path(self) -> str:
        return f"/apis/batch/v1/namespaces/{self.namespace}/jobs/{self.name}"

    @property
    def is_indexed(self) -> bool:
        return self.kind == "Indexed"

    def create(self) -> None:
        pod = {
            "containers": [{"name": "c", "image": "i"}],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
        }
        spec = {
            "parallelism": self.replicas,
            "completions": self.completions,
            "completionMode": self.kind,
            "backoffLimit": 1000,
            "template": {"metadata": {"labels": {"app": self.name}, "annotations": KEPT_AS_IT_IS}, "spec": pod},
        }
        metadata = {"name": self.name, "namespace": self.namespace}
        self.running.plane.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})

    def scale(self, replicas: int) -> None:
        self.replicas = replicas
        self._patch({"spec": {"parallelism": replicas}})

    def list_pods(self) -> list[dict[str, Any]]:
        """Return the Pods that have not ended, and are not being deleted."""
        return [
            pod
            for pod in super().list_pods()
            if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] not in _ENDED
        ]

    def end_pod(self, pod: dict[str, Any], phase: str) -> None:
        """Let a Pod succeed or fail, as its kubelet would report it."""
        ended = {"exitCode": int(phase == "Failed"), "reason": phase, "finishedAt": moment()}
        status = {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
        containers = [{**status, "state": {"terminated": ended}}]
        patch(self.running.plane, path, {"status": {"phase": phase, "containerStatuses": containers}})
        if phase == "Succeeded" and self.is_indexed:
            self.completed.add(_read_index(pod))

    # --- at random ---

    def scale_at_random(self, generator: Random) -> str:
        """Let it grow: a Job that shrinks deletes Pods by their age, whatever their slots."""
        self.scale(self.replicas + generator.randint(1, GROWTH_MAX))
        return f"{self.name} scaled to {self.replicas}"

    def replace_at_random(self, generator: Random) -> str:
        pods = self.list_pods()
        chosen = generator.sample(pods, min(len(pods), generator.randint(1, FAILED_MAX)))
        for pod in chosen:
            self.end_pod(pod, "Failed")
        self._end_back_off()
        return f"{len(chosen)} Pods of {self.name} failed"

    def delete_at_random(self, generator: Random) -> str:
        done = super().delete_at_random(generator)
        self._end_back_off()
        return done

    def _end_back_off(self) -> None:
        """Let one Pod succeed: after failures alone the Job would wait for minutes before it creates Pods."""
        pods = self.running.plane.wait(self.list_pods, f"a living Pod of {self.name}")
        self.end_pod(pods[0], "Succeeded")

    # --- at rest ---

    def is_at_rest(self) -> bool:
        status, pods = self.running.plane.api.get(self.path)["status"], self.list_pods()
        counts = status.get("active", 0), len(pods), sum("nodeName" in pod["spec"] for pod in pods)
        return counts == (self.replicas,) * 3 and not status.get("terminating")

    def list_expected_slots(self) -> list[int]:
        """Return the lowest slots; those of an indexed Job are of the lowest indexes that have not succeeded."""
        left = (index for index in range(self.completions) if index not in self.completed)
        return [index + 1 for index, _ in zip(left, range(self.replicas), strict=False)]

    def count_expected(self) -> dict[str, int]:
        variants = [SPLIT.find_variant(slot) for slot in self.list_expected_slots()]
        return {name: variants.count(index) for index, name in enumerate(SPLIT.names)}

    def describe(self) -> str:
        expected, found = self.list_expected_slots(), self.list_slots()
        wrong = [pod for pod in self.list_pods() if self.is_indexed and _read_index(pod) + 1 != _read_slot(pod)]
        if found == expected and not wrong:
            return super().describe()
        described = [self._describe_pod(pod) for pod in self.list_pods()]
        return "\n".join([f"slots {found} instead of {expected}", *self.history, *described])


def _read_index(pod: dict[str, Any]) -> int:
    return int(pod["metadata"]["annotations"][INDEX])


def _read_slot(pod: dict[str, Any]) -> int:
    return int(pod["metadata"]["annotations"][SLOT_ANNOTATION])
