"""Selection of a canary: a fixed part of the keys, which only grows."""

import pytest

from tests.core.reviewing import body
from tests.core.rollout.policies import build_request
from webhook.core.admission.review import decode
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
    first, second = build_request(replica_set="web-5d9c7b6f4"), build_request(replica_set="web-7c5d9f8b6")
    assert build_workload_key(first) == build_workload_key(second) == "a/Deployment/web"
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "a"},
        "spec": {"selector": {}, "template": {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}},
    }
    review = body(
        namespace="a", object=deployment, resource={"group": "apps", "version": "v1", "resource": "deployments"}
    )
    assert build_workload_key(decode(review)) == "a/Deployment/web"


def test_the_workload_that_a_tenant_claims_is_not_believed() -> None:
    claimed = build_request(user="mallory")
    assert build_workload_key(claimed) != "a/Deployment/web"
