"""Policies of the pages about migration, on a real control plane: Pods as Kueue, Volcano and Capsule have them."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from tests.cli.documented_commands import ROOT
from tests.cluster.controller_fixture import ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.custom_kinds import build_crd, custom_kinds
from tests.cluster.groups import count, wait_for, wait_for_reason
from tests.cluster.identities import Identities
from webhook.core.quota import STANDING

pytest_plugins = ("tests.redis_servers.fixtures",)
pytestmark = pytest.mark.parametrize("store", ["redis"], indirect=True, scope="module")

TENANTS = {"gas-dev": "gas", "gas-prod": "gas", "sun-dev": "sun"}
NAMESPACES = ["team-a", "training", *TENANTS]
POD_GROUPS = build_crd("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")
MIGRATED = ("kueue-queues", "volcano-queues", "capsule-tenant")


def join_policies() -> str:
    """Return one policy with the pools and services of all pages."""
    folder = ROOT / "docs" / "examples" / "migration"
    found = [yaml.safe_load((folder / f"{name}-policy.yaml").read_text()) for name in MIGRATED]
    pools = [pool for policy in found for pool in policy.get("pools", ())]
    services = [service for policy in found for service in policy["services"]]
    return str(yaml.safe_dump({**found[0], "pools": pools, "services": services}))


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities, store_url: str) -> Iterator[ControllerFixture]:
    with (
        custom_kinds(plane, [POD_GROUPS]),
        controller_fixture(plane, identities, join_policies(), NAMESPACES, store_url) as fixture,
    ):
        for namespace, tenant in TENANTS.items():
            plane.create_namespace(namespace, **{"capsule.clastix.io/tenant": tenant})
            fixture.wait(partial(is_tenant, fixture, namespace), "the Namespace's label to be known")
        for service, resource in (("team-a", "cpu"), ("training", "cpu"), ("tenants", "pods")):
            fixture.wait(partial(is_enforced, fixture, service, resource), "limits to be enforced")
        yield fixture


def is_tenant(running: ControllerFixture, namespace: str) -> bool:
    _, pod = running.installation.create_pod(namespace, dry_run=True)
    return bool(pod["metadata"]["labels"].get("podgate.io/service") == "tenants")


def is_enforced(running: ControllerFixture, service: str, resource: str) -> bool:
    rows = {row["name"]: row for row in running.installation.servers[0].status()["services"]}[service]["windows"]
    return any(row["enforced"] for row in rows if (row["window"], row["resource"]) == (STANDING, resource))


def ask_for(cpu: int) -> list[dict[str, Any]]:
    return [{"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}]


def create(
    running: ControllerFixture, namespace: str, name: str, cpu: int, labels: dict[str, str], annotations: dict[str, str]
) -> None:
    status, answer = running.installation.create_pod(
        namespace, name, labels=labels, annotations=annotations, containers=ask_for(cpu)
    )
    assert status == 201, answer


def test_a_plain_group_of_kueue_is_released_together(running: ControllerFixture) -> None:
    def add(group: str, number: int) -> None:
        labels = {"kueue.x-k8s.io/queue-name": "team-a", "kueue.x-k8s.io/pod-group-name": group}
        annotations = {"kueue.x-k8s.io/pod-group-total-count": "3"}
        create(running, "team-a", f"{group}-{number}", 3, labels, annotations)

    add("train", 0)
    add("train", 1)
    wait_for_reason(running, "train", "2 of 3 members of its group are here; they ask for requests.cpu 6")
    add("train", 2)
    wait_for(running, "team-a", "train", 0, 3)
    assert {pod["spec"]["nodeSelector"]["node-type"] for pod in running.installation.pods("team-a")} == {"spot"}

    for number in range(3):
        add("eval", number)
    reason = "its group eval waits for room for all 3 Pods, requests.cpu 9: the limit on live Pods of team-a is reached"
    wait_for_reason(running, "eval", reason)
    assert count(running, "team-a", "eval") == (3, 0)
    running.plane.delete("/api/v1/namespaces/team-a/pods/train-0")
    running.plane.wait(lambda: running.limit("team-a", STANDING, "cpu")["used"] == "6", "a part of the room")
    assert count(running, "team-a", "eval") == (3, 0), "never a part of the group"
    for number in (1, 2):
        running.plane.delete(f"/api/v1/namespaces/team-a/pods/train-{number}")
    wait_for(running, "team-a", "eval", 0, 3)


def test_pods_of_a_volcano_job_are_released_by_its_pod_group(running: ControllerFixture) -> None:
    plane = running.plane

    def add(job: str, number: int) -> None:
        labels = {"volcano.sh/job-name": job, "volcano.sh/queue-name": "training", "volcano.sh/task-spec": "worker"}
        annotations = {"scheduling.k8s.io/group-name": f"{job}-3f1c", "volcano.sh/queue-name": "training"}
        create(running, "training", f"{job}-worker-{number}", 4, labels, annotations)

    for job in ("train", "tune"):
        group = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
        metadata = {"name": f"{job}-3f1c", "namespace": "training"}
        plane.apply({**group, "metadata": metadata, "spec": {"minMember": 3, "queue": "training"}})
    add("train", 0)
    add("train", 1)
    wait_for_reason(running, "train-worker", "2 of 3 members of its group are here; they ask for requests.cpu 8")
    add("train", 2)
    wait_for(running, "training", "train", 0, 3)
    assert {pod["spec"]["schedulerName"] for pod in running.installation.pods("training")} == {"volcano"}

    for number in range(3):
        add("tune", number)
    plane.wait(lambda: count(running, "training", "tune") == (3, 0), "a second Job of 12 cores to wait")
    for number in range(3):
        plane.delete(f"/api/v1/namespaces/training/pods/train-worker-{number}")
    wait_for(running, "training", "tune", 0, 3)


def test_the_namespaces_of_a_tenant_of_capsule_share_one_quota(running: ControllerFixture) -> None:
    def ask(namespace: str) -> str:
        status, answer = running.installation.create_pod(namespace)
        return "" if status == 201 else f"{status} {answer['message']}"

    assert [ask(namespace) for namespace in ("gas-dev", "gas-dev", "gas-prod")] == ["", "", ""]
    for namespace in ("gas-dev", "gas-prod"):
        denied = ask(namespace)
        assert denied.startswith("403 ")
        assert "exceeded quota: podgate/tenants, requested: pods=1, used: pods=3, limited: pods=3" in denied
    assert ask("sun-dev") == ""
    [gone] = [pod["metadata"]["name"] for pod in running.installation.pods("gas-prod")]
    running.plane.delete(f"/api/v1/namespaces/gas-prod/pods/{gone}")
    running.plane.wait(lambda: ask("gas-dev") == "", "the place of a deleted Pod")
