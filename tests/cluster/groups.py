"""Groups on a real control plane: a policy, Jobs, and what their tests wait for."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.cli.command_runner import podgate
from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.custom_kinds import build_crd, custom_kinds
from tests.cluster.identities import Identities
from tests.cluster.processes import ComponentError
from tests.cluster.queue import is_gated

HARD, WINDOW = 6, "10s"
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: gang
  match: {{namespaces: [gang-STORE]}}
  quota:
    windows: [{{window: {WINDOW}, hard: {{pods: {HARD}}}}}]
    whenExceeded: Queue
    queue: {{maxWait: 1h, whenExpired: Keep, groups: {{from: [Annotations, Job, JobSet, Coscheduling]}}}}
"""
CONTAINERS = [{"name": "c", "image": "i"}]


CRDS = (
    build_crd("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
    build_crd("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups"),
)


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities, store: str, store_url: str) -> Iterator[ControllerFixture]:
    policy = POLICY.replace("STORE", store)
    with (
        custom_kinds(plane, CRDS),
        controller_fixture(plane, identities, policy, [f"gang-{store}"], store_url) as fixture,
    ):
        yield fixture


@pytest.fixture
def namespace(running: ControllerFixture, store: str) -> Iterator[str]:
    """Yield the namespace, without Pods of other tests."""
    name = f"gang-{store}"
    yield name
    for path in (f"/apis/batch/v1/namespaces/{name}/jobs", f"/api/v1/namespaces/{name}/pods"):
        running.plane.api.request("DELETE", f"{path}?propagationPolicy=Background&gracePeriodSeconds=0")
    running.plane.wait(lambda: running.installation.pods(name) == [], "the Pods to be deleted")
    running.plane.wait(lambda: count_used(running) == 0, "their room to be free")


def create_job(
    plane: ControlPlane, namespace: str, name: str, pods: int, labels: dict[str, str] | None = None, **spec: Any
) -> None:
    template: dict[str, Any] = {
        "metadata": {"labels": labels or {}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": CONTAINERS},
    }
    plane.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template, **spec},
        }
    )


def count(running: ControllerFixture, namespace: str, prefix: str) -> tuple[int, int]:
    """Return how many Pods whose name begins so wait, and how many do not."""
    pods = [pod for pod in running.installation.pods(namespace) if pod["metadata"]["name"].startswith(prefix)]
    waiting = sum(map(is_gated, pods))
    return waiting, len(pods) - waiting


def count_used(running: ControllerFixture) -> int:
    return int(running.limit("gang", WINDOW)["used"])


def wait_for(running: ControllerFixture, namespace: str, prefix: str, waiting: int, released: int) -> None:
    running.plane.wait(
        lambda: count(running, namespace, prefix) == (waiting, released),
        f"{waiting} Pods of {prefix} to wait and {released} to be released",
    )


def read_rows(running: ControllerFixture) -> Sequence[dict[str, Any]]:
    leader = running.plane.wait(running.leader, "a leader")
    rows: Sequence[dict[str, Any]] = json.loads(
        podgate("queue", "--server", f"http://{leader.plain}", "-o", "json").out
    )["pods"]
    return rows


def wait_for_reason(running: ControllerFixture, prefix: str, why: str) -> None:
    seen: list[set[str]] = []

    def is_shown() -> bool:
        seen.append({row["why"] for row in read_rows(running) if row["name"].startswith(prefix)})
        return seen[-1] == {why}

    try:
        running.plane.wait(is_shown, f"{prefix} to show: {why}", timeout_seconds=30)
    except ComponentError as error:
        raise AssertionError(f"{seen[-1]} is shown, not {why}") from error
