"""Impact of a candidate policy: what differs for each Pod, and the report by service."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.core.reviewing import REPLICA_SETS
from webhook.app.offline import Offline
from webhook.core.document import Purpose, load
from webhook.errors import UserError
from webhook.replay.engine import Replay
from webhook.replay.events import NamespacesChange, OutcomeFields, OutcomeSeen, PodAsks, PolicyChange, ReplayEvent
from webhook.replay.impact import Difference, Impact, ImpactReport

HEAD = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n"
WEB = "- {name: web, match: {namespaces: [shop]}"
BEFORE = WEB + ", quota: {windows: [{window: 1m, hard: {pods: 3}}]}}\n"


def asks(number: int, at: float = 0, **fields: Any) -> PodAsks:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod: dict[str, Any] = {"metadata": {"name": f"web-{number}"}, "spec": {"containers": [container]}}
    return PodAsks(at=at, pod=pod, namespace="shop", **fields)


PODS = [asks(number, number) for number in range(5)]


def replay(services: str) -> Replay:
    def no_other(path: Path) -> Any:
        raise UserError(str(path))

    return Replay(Offline(load((HEAD + services).encode(), Purpose.REPLAY).policy), no_other, Path())


async def compare(before: str, after: str, events: Iterable[ReplayEvent] = tuple(PODS)) -> ImpactReport:
    impact = Impact(replay(before), replay(after))
    for event in events:
        await impact.add(event)
    return ImpactReport("before", "after", impact.requests, impact.left_out, tuple(impact.list_services()))


async def test_the_same_policy_changes_nothing() -> None:
    report = await compare(BEFORE, BEFORE)
    (web,) = report.services
    assert (web.requests, web.denied_before, web.denied_after, web.differences) == (5, 2, 2, {})
    assert not report.has_changes
    assert list(report.format_lines()) == ["5 requests for Pods, under before and after", "unchanged: web"]


async def test_a_lower_limit_denies_more_and_charges_the_same() -> None:
    report = await compare(BEFORE, BEFORE.replace("pods: 3", "pods: 1"))
    (web,) = report.services
    assert (web.denied_before, web.denied_after) == (2, 4)
    assert web.differences == {Difference.DENIED: 2, Difference.FINDINGS: 2}
    assert report.has_denials
    [example] = web.examples
    assert example.pod == "shop/web-1"
    assert example.before == "Admit"
    assert example.after.startswith("Deny: QuotaExceeded: service web: pods in 1m: hard 1, used 1, asked 1")


@pytest.mark.parametrize(
    ("after", "difference", "count"),
    [
        (BEFORE.replace("pods: 3", "pods: 9"), Difference.ADMITTED, 2),
        (BEFORE.replace("quota:", "placement: {nodeSelector: {disk: ssd}}, quota:"), Difference.PLACEMENT, 5),
        (BEFORE.replace("quota:", "placement: {labels: {team: a}}, quota:"), Difference.PLACEMENT, 5),
        (BEFORE.replace("quota:", "resources: {container: {default: {memory: 1Gi}}}, quota:"), Difference.RESOURCES, 5),
        (BEFORE.replace("pods: 3", "pods: 3, cpu: 100"), Difference.CHARGE, 5),
        (BEFORE.replace("window: 1m", "window: 2m"), Difference.CHARGE, 5),
        (BEFORE.replace("quota:", "modes: {quota: Warn}, quota:"), Difference.ADMITTED, 2),
        (BEFORE.replace("name: web", "name: shop"), Difference.OWNER, 5),
        (BEFORE.replace("quota: {", "quota: {queue: {}, whenExceeded: Queue, "), Difference.FINDINGS, 2),
        ("- {name: other, match: {namespaces: [none]}}\n", Difference.OWNER, 5),
    ],
)
async def test_each_kind_of_difference_is_counted(after: str, difference: Difference, count: int) -> None:
    report = await compare(BEFORE, after)
    assert sum(service.differences.get(difference, 0) for service in report.services) == count


async def test_a_pod_that_would_wait_is_no_longer_admitted() -> None:
    report = await compare(WEB + "}\n", BEFORE.replace("quota: {", "quota: {queue: {}, whenExceeded: Queue, "))
    (web,) = report.services
    assert web.differences[Difference.DENIED] == 2
    assert (web.denied_before, web.denied_after) == (0, 0)
    assert web.examples[-1].after == "Queue"


async def test_a_request_that_one_policy_cannot_judge_is_left_out_alone() -> None:
    selected = WEB.replace("namespaces: [shop]", "namespaceSelector: {matchLabels: {tier: web}}") + "}\n"
    early, late = asks(1), asks(2, 2)
    labels = NamespacesChange(at=1, namespace_labels={"shop": {"tier": "web"}})
    report = await compare(WEB + "}\n", selected, [early, labels, late])
    assert report.requests == 1
    assert report.left_out == {"namespace: 'shop': the policy asks for its labels, which are not known here": 1}


async def test_outcomes_of_a_service_that_only_one_policy_has_count_there() -> None:
    breaker = (
        WEB + ", breaker: {outcomes: {source: Pushed, reporters: [edge]}, errorRate: {percent: 50, consecutive: 1,"
    )
    outcomes = [OutcomeSeen(at=0.1, outcome=OutcomeFields(service="web", ok=False)) for _ in range(20)]
    events = [*outcomes, asks(1, 5), PolicyChange(at=6, policy="other.yaml")]
    report = await compare(WEB.replace("web", "shop") + "}\n", breaker + " interval: 1s}}}\n", events)
    (shop,) = report.services
    assert shop.differences[Difference.DENIED] == 1
    assert "BreakerOpen" in shop.examples[0].after


SHARES = (
    WEB + ", placement: {shares: {variants: [{name: spot, weight: 1, nodeSelector: {capacity: spot}},"
    " {name: on-demand, weight: 1, nodeSelector: {capacity: on-demand}}]}}}\n"
)
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c", "uid": "r1", "controller": True}


async def test_pods_of_a_workload_have_the_same_slots_under_both_policies() -> None:
    user = "system:serviceaccount:kube-system:replicaset-controller"
    events = [asks(number, number, user=user) for number in range(6)]
    for event in events:
        event.pod["metadata"]["ownerReferences"] = [OWNER]
    (web,) = (await compare(SHARES, SHARES, events)).services
    assert web.differences == {}
    (web,) = (await compare(SHARES, SHARES.replace("spot, weight: 1", "spot, weight: 2"), events)).services
    assert web.differences == {Difference.PLACEMENT: 3}


async def test_recorded_pods_of_a_controller_are_divided_although_records_have_no_api_version() -> None:
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
    recorded = []
    for event in PODS:
        metadata = {"generateName": "web-", "ownerReferences": [owner]}
        recorded.append(replace(event, pod={**event.pod, "metadata": metadata}, user=REPLICA_SETS))
    listed = ", ".join(f"{{name: {name}, weight: 1, nodeSelector: {{kind: {name}}}}}" for name in ("spot", "other"))
    report = await compare(WEB + "}\n", f"{WEB}, placement: {{shares: {{variants: [{listed}]}}}}}}\n", recorded)
    assert report.services[0].differences[Difference.PLACEMENT] == len(PODS)
