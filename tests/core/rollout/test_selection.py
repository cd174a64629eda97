"""Selection of a canary: a fixed part of the keys, which only grows."""

import pytest

from tests.core.reviewing import body
from tests.core.rollout.policies import build_request
from webhook.core.admission.review import Request, decode
from webhook.core.policy_fields.rollout import Canary, CanaryBy, CanaryStep
from webhook.core.rollout.selection import BUCKETS, Reach, build_workload_key, compute_bucket

CANDIDATES = tuple(f"{number:016x}" for number in range(5))
KEYS = tuple(f"team-{number % 100}/Deployment/app-{number}" for number in range(20_000))


@pytest.mark.parametrize("candidate", CANDIDATES)
def test_one_percent_of_many_keys_is_about_one_percent(candidate: str) -> None:
    reach = Reach(CanaryBy.WORKLOAD, percent=1)
    share = sum(reach.includes(candidate, "team", key) for key in KEYS) / len(KEYS)
    assert 0.008 <= share <= 0.012


def test_raising_the_percentage_only_adds_keys_and_all_are_reached_at_the_end() -> None:
    reached: set[str] = set()
    for percent in range(101):
        now = {key for key in KEYS[:2000] if Reach(CanaryBy.WORKLOAD, percent=percent).includes("c", "team", key)}
        assert reached <= now
        reached = now
    assert len(reached) == 2000
    assert not any(Reach(CanaryBy.WORKLOAD).includes("c", "team", key) for key in KEYS)


def test_another_candidate_begins_with_other_keys() -> None:
    first, second = ([compute_bucket(candidate, key) for key in KEYS[:500]] for candidate in CANDIDATES[:2])
    assert first != second
    assert all(0 <= bucket < BUCKETS for bucket in first)


def test_a_step_includes_the_steps_before_it() -> None:
    canary = Canary(steps=(CanaryStep(namespaces=("staging-*",)), CanaryStep(percent=1), CanaryStep(percent=100)))
    key = next(key for key in KEYS if compute_bucket("c", key) >= BUCKETS // 2)
    reaches = [Reach.from_canary(canary, step) for step in range(3)]
    assert [reach.includes("c", "staging-a", key) for reach in reaches] == [True, True, True]
    assert [reach.includes("c", "live", key) for reach in reaches] == [False, False, True]


def test_all_replica_sets_of_a_deployment_have_its_key() -> None:
    pods = [build_request(replica_set=f"web-{template}") for template in ("5d9c7b6f4", "7c5d9f8b6")]
    objects = [
        review_workload("deployments", "Deployment", "web"),
        review_workload("replicasets", "ReplicaSet", "web-5d9c7b6f4", {"pod-template-hash": "5d9c7b6f4"}),
    ]
    assert {build_workload_key(request) for request in (*pods, *objects)} == {"a/Deployment/web"}


def test_all_runs_of_a_cron_job_have_its_key() -> None:
    names = "backup-29401230", "backup-29401231"
    pods = [build_pod_request("Job", name) for name in names]
    objects = [
        review_workload("cronjobs", "CronJob", "backup"),
        *(review_workload("jobs", "Job", name) for name in names),
    ]
    assert {build_workload_key(request) for request in (*pods, *objects)} == {"a/CronJob/backup"}
    assert build_workload_key(build_pod_request("Job", "migrate")) == "a/Job/migrate"
    assert build_workload_key(review_workload("jobs", "Job", "migrate")) == "a/Job/migrate"


def build_pod_request(kind: str, name: str) -> Request:
    """Return the request for a Pod by the controller of a workload."""
    owner = {"apiVersion": "batch/v1", "kind": kind, "name": name, "uid": name, "controller": True}
    made = {"metadata": {"name": f"{name}-x", "ownerReferences": [owner]}, "spec": {"containers": [{"name": "c"}]}}
    user = f"system:serviceaccount:kube-system:{kind.lower()}-controller"
    return decode(body(namespace="a", object=made, userInfo={"username": user}))


def review_workload(resource: str, kind: str, name: str, labels: dict[str, str] | None = None) -> Request:
    """Return the request of the review of a workload object."""
    group = "apps" if kind in {"Deployment", "ReplicaSet"} else "batch"
    template = {"metadata": {"labels": labels or {}}, "spec": {"containers": [{"name": "c"}]}}
    spec = {"jobTemplate": {"spec": {"template": template}}} if kind == "CronJob" else {"template": template}
    document = {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "a", "labels": labels or {}},
        "spec": spec,
    }
    asked = {"group": group, "version": "v1", "resource": resource}
    return decode(body(namespace="a", object=document, resource=asked))


def test_the_workload_that_a_tenant_claims_is_not_believed() -> None:
    claimed = build_request(user="mallory")
    assert build_workload_key(claimed) != "a/Deployment/web"
