"""Sizes of groups, read from objects as an API server writes them, in the versions that it serves."""

from typing import Any, cast

import msgspec
import pytest
from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes import group_objects
from webhook.adapters.kubernetes.api.requests import RefusedError
from webhook.core.groups.completeness import Size
from webhook.core.policy_fields import GroupSource

GANG = {
    "apiVersion": "scheduling.k8s.io/v1alpha2",
    "kind": "PodGroup",
    "metadata": {"name": "g", "namespace": "ml", "uid": "u", "creationTimestamp": "2026-11-23T20:21:57Z"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}, "podGroupTemplateRef": {"workload": {"workloadName": "w"}}},
    "status": {"conditions": []},
}
BASIC = {**GANG, "spec": {"schedulingPolicy": {"basic": {}}}}
TWO_JOBS = [
    {"name": "driver", "replicas": 1, "template": {"spec": {"parallelism": 1, "completions": 1}}},
    {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 3, "completions": 3}}},
]


def job(uid: str = "u", succeeded: int | None = None, failed: str | None = None, **spec: Any) -> dict[str, Any]:
    status = {"succeeded": succeeded, "active": 1, "failedIndexes": failed}
    return {"metadata": {"name": "g", "uid": uid}, "spec": spec, "status": status}


def job_set(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "g", "uid": "u"}, "spec": {"replicatedJobs": TWO_JOBS, **spec}}


async def read(
    monkeypatch: pytest.MonkeyPatch, source: GroupSource, served: dict[str, Any], name: str = "g"
) -> tuple[Size, list[str]]:
    """Return the size in an object of an API server that serves `served`, by version, and the paths that were asked."""
    paths: list[str] = []

    async def answer(_: ApiClient, __: str, path: str, ___: float) -> bytes:
        paths.append(path)
        if (found := served.get(path.split("/")[3])) is None:
            raise RefusedError(404, "the server could not find the requested resource")
        return msgspec.json.encode(found)

    monkeypatch.setattr(group_objects, "send_request", answer)
    reader = group_objects.GroupObjectReader(cast("ApiClient", None))
    return await reader.read_size(source, "ml", name, "u"), paths


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha3", "v1alpha2"])
async def test_a_pod_group_of_kubernetes_is_read_in_the_version_that_is_served(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    size, paths = await read(monkeypatch, GroupSource.POD_GROUP, {version: GANG})
    assert size == Size(3)
    assert paths[-1] == f"/apis/scheduling.k8s.io/{version}/namespaces/ml/podgroups/g"


@pytest.mark.parametrize(
    ("source", "version", "found", "pods"),
    [
        (GroupSource.POD_GROUP, "v1beta1", BASIC, 1),
        (GroupSource.COSCHEDULING, "v1alpha1", {"spec": {"minMember": 4, "scheduleTimeoutSeconds": 10}}, 4),
        (GroupSource.COSCHEDULING, "v1alpha1", {"spec": {"minMember": 0}}, 1),
        (
            GroupSource.VOLCANO,
            "v1beta1",
            {"spec": {"minMember": 2, "queue": "default"}, "status": {"phase": "Inqueue"}},
            2,
        ),
        (GroupSource.JOB, "v1", job(parallelism=4), 4),
        (GroupSource.JOB, "v1", job(parallelism=4, completions=6), 4),
        (GroupSource.JOB, "v1", job(parallelism=4, completions=6, succeeded=4), 2),
        (GroupSource.JOB, "v1", job(parallelism=0), 0),
        (GroupSource.JOB, "v1", job(failed="1,3-5", parallelism=8, completions=8, succeeded=1), 3),
        (GroupSource.JOB_SET, "v1alpha2", job_set(), 7),
    ],
)
async def test_each_object_has_a_size(
    monkeypatch: pytest.MonkeyPatch, source: GroupSource, version: str, found: dict[str, Any], pods: int
) -> None:
    assert (await read(monkeypatch, source, {version: found}))[0] == Size(pods)


@pytest.mark.parametrize(
    "spec",
    [
        {"startupPolicy": {"startupPolicyOrder": "InOrder"}},
        {"replicatedJobs": [TWO_JOBS[0], {**TWO_JOBS[1], "dependsOn": [{"name": "driver", "status": "Ready"}]}]},
    ],
)
async def test_a_job_set_that_starts_in_turn_says_so(monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any]) -> None:
    size, _ = await read(monkeypatch, GroupSource.JOB_SET, {"v1alpha2": job_set(**spec)})
    assert size.problem.startswith("its JobSet ml/g starts its Jobs one after another, so that they cannot wait")


EXCLUSIVE, BY_NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/exclusive-topology", "alpha.jobset.sigs.k8s.io/node-selector"
ZONE = {EXCLUSIVE: "topology.kubernetes.io/zone"}


def exclusive(of_set: dict[str, str], of_workers: dict[str, str], parallelism: int = 3) -> dict[str, Any]:
    spec = {"parallelism": parallelism, "completions": parallelism}
    workers = {**TWO_JOBS[1], "template": {"metadata": {"annotations": of_workers}, "spec": spec}}
    found = job_set(replicatedJobs=[TWO_JOBS[0], workers])
    return {**found, "metadata": {**found["metadata"], "annotations": of_set}}


@pytest.mark.parametrize("found", [exclusive(ZONE, {}), exclusive({}, ZONE), exclusive({BY_NODE_SELECTOR: ""}, ZONE)])
async def test_a_job_set_whose_pods_follow_their_first_one_says_so(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, Any]
) -> None:
    size, _ = await read(monkeypatch, GroupSource.JOB_SET, {"v1alpha2": found})
    assert size.problem == (
        "its JobSet ml/g makes the other Pods of a Job after the first one is on a node"
        " (alpha.jobset.sigs.k8s.io/exclusive-topology): create it with the annotation"
        " alpha.jobset.sigs.k8s.io/node-selector, or leave JobSet and Job out of groups.from"
    )


@pytest.mark.parametrize(
    ("found", "pods"),
    [
        (exclusive({**ZONE, BY_NODE_SELECTOR: ""}, {}), 7),
        (exclusive({}, {**ZONE, BY_NODE_SELECTOR: ""}), 7),
        (exclusive(ZONE, {}, parallelism=1), 3),
    ],
)
async def test_an_exclusive_job_set_whose_pods_follow_none_has_a_size(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], pods: int
) -> None:
    assert (await read(monkeypatch, GroupSource.JOB_SET, {"v1alpha2": found}))[0] == Size(pods)


async def test_another_object_of_the_name_is_not_that_of_the_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    size, _ = await read(monkeypatch, GroupSource.JOB, {"v1": job("another", parallelism=4)})
    assert size.problem == "its Job ml/g is another one than that of its Pods: they are being deleted"


async def test_a_name_cannot_lead_to_another_path(monkeypatch: pytest.MonkeyPatch) -> None:
    _, paths = await read(monkeypatch, GroupSource.VOLCANO, {}, "../../x?y")
    assert paths == ["/apis/scheduling.volcano.sh/v1beta1/namespaces/ml/podgroups/..%2F..%2Fx%3Fy"]
