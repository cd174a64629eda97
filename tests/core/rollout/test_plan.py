"""Plan of a rollout: the time of each step, and the workloads that it would reach."""

from webhook.core.kubernetes.quantity import Duration
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.policy_fields.rollout import Canary, CanaryBy, CanaryStep, Rollout, ShadowRules
from webhook.core.rollout.plan import PlannedWorkload, plan_steps
from webhook.core.rollout.selection import compute_bucket

HASH = "c" * 16
NOW = parse_microseconds("2026-12-01T04:00:00Z")
MINUTE = Duration.parse("1m")
SPACES = ("staging-a", "shop", "bank")
WORKLOADS = tuple(PlannedWorkload(space, "Deployment", f"web-{i}", "web") for space in SPACES for i in range(100))
OTHER = tuple(PlannedWorkload("pay", "Job", f"job-{i}", "pay") for i in range(7))


def test_steps_come_one_after_the_other_and_only_grow() -> None:
    steps = (CanaryStep(MINUTE, namespaces=("staging-*",)), CanaryStep(MINUTE, percent=10), CanaryStep(percent=60))
    stanza = Rollout(shadow=ShadowRules(), canary=Canary(steps))
    found = plan_steps(stanza, HASH, WORKLOADS, {}, NOW)
    assert [(step.number, step.phase, step.begins[11:16]) for step in found] == [
        (1, "Shadow", "04:00"),
        (2, "Canary", "04:10"),
        (3, "Canary", "04:11"),
        (4, "Canary", "04:12"),
        (5, "Stable", "04:22"),
    ]
    assert [step.asks for step in found[:3]] == [
        "10% of reviews, without effect",
        "namespaces staging-*",
        "10% by Workload",
    ]
    reached = [step.workloads for step in found]
    buckets = [compute_bucket(HASH, f"{work.namespace}/Deployment/{work.name}") for work in WORKLOADS[100:]]
    assert reached == [0, 100, 100 + sum(b < 1000 for b in buckets), 100 + sum(b < 6000 for b in buckets), 300]
    assert found[1].namespaces == ("staging-a",)
    assert found[4].namespaces == tuple(sorted(SPACES))


def test_services_with_one_key_move_together() -> None:
    stanza = Rollout(canary=Canary((CanaryStep(percent=99), CanaryStep(percent=100)), by=CanaryBy.SERVICE))
    keys = {"web": "service web", "pay": "service web"}
    first, second, _ = plan_steps(stanza, HASH, (*WORKLOADS, *OTHER), keys, NOW)
    assert first.workloads in {0, 307}
    assert (second.workloads, second.services) == (307, ("pay", "web"))


def test_a_namespace_moves_as_a_whole() -> None:
    stanza = Rollout(canary=Canary((CanaryStep(percent=50),), by=CanaryBy.NAMESPACE))
    (first, _) = plan_steps(stanza, HASH, WORKLOADS, {}, NOW)
    assert first.workloads == 100 * len(first.namespaces)


def test_without_a_rollout_the_change_is_in_force_at_once() -> None:
    (only,) = plan_steps(None, HASH, WORKLOADS, {}, NOW)
    assert (only.phase, only.begins, only.workloads) == ("Stable", "2026-12-01T04:00:00Z", 300)
