"""Pods above the size limits: padding takes none of them from its service, and nothing of them from its guard."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.core.reviewing import ALICE, REPLICA_SETS, Gate, body, pod, policy_of
from webhook.core.admission.decision import Decision, Half, Verdict
from webhook.core.admission.mutation import DISOWN, QUEUE_GATE
from webhook.core.findings import Code
from webhook.core.kubernetes.pod_size import ENTRIES_MAX, measure
from webhook.core.webhook_configurations.conditions import JUDGED_WHILE_GATED

WEB = """\
- name: web
  match: {namespaces: [shop]}
  placement:
    labels: {team: shop}
    annotations: {scheduler.example/queue: shop}
    nodeSelector: {disk: ssd}
    allow: {tolerations: [{key: spot}]}
    topologySpreadConstraints:
    - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {}, matchLabelKeys: [app]}
    affinity:
      podAntiAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
        - {topologyKey: zone, labelSelector: {}, mismatchLabelKeys: [tenant]}
    shares:
      base: {variant: some, pods: 1}
      variants: [{name: some, weight: 1, nodeSelector: {a: b}}, {name: others, weight: 1, nodeSelector: {a: c}}]
  resources: {container: {max: {cpu: 2}}}
  quota:
    windows: [{window: 1m, hard: {pods: 10, requests.cpu: 4}}]
    whenExceeded: Queue
    queue: {groups: {from: [Job]}}
  rules:
  - {name: tier, mode: Enforce, require: '!("tier" in pod.labels) || pod.labels["tier"] == "gold"'}
"""
PADDING = {f"padding-{number}": "" for number in range(ENTRIES_MAX + 2)}
PADDED = ["labels", "annotations"]
GATES = [{"name": QUEUE_GATE}, {"name": "example.com/other"}]
ANNOTATIONS = {
    "podgate.io/policy-hash": "0123456789abcdef",
    "podgate.io/queued-group": '{"name": "a"}',
    "podgate.io/slot": "1",
    "scheduler.example/queue": "shop",
}
LABELS = {"app": "web", "podgate.io/service": "web", "podgate.io/variant": "some", "team": "shop"}


def containers(cpu: str) -> list[dict[str, Any]]:
    return [{"name": "c", "image": "a", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}]


def build(
    labels: Mapping[str, str | None] | None = None, annotations: Mapping[str, str | None] | None = None, **spec: Any
) -> Any:
    """Build a waiting Pod of the service `web`; None removes a label or an annotation."""
    given = {"nodeSelector": {"disk": "ssd", "a": "b"}, "schedulingGates": GATES, "containers": containers("1")}
    own, described = (
        {key: value for key, value in {**usual, **(changed or {})}.items() if value is not None}
        for usual, changed in ((LABELS, labels), (ANNOTATIONS, annotations))
    )
    return pod(own, described, "u", **{**given, **spec})


def pad(made: Any, kind: str) -> Any:
    metadata = made["metadata"]
    return {**made, "metadata": {**metadata, kind: {**metadata[kind], **PADDING}}}


@pytest.fixture
def gate() -> Gate:
    return Gate(policy_of(WEB))


async def update(gate: Gate, old: Any, new: Any, **request: Any) -> Decision:
    return await gate.validate(operation="UPDATE", oldObject=old, object=new, **request)


RUNNING: dict[str, Any] = {"schedulingGates": None}
SELECTOR = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}
SPREAD: dict[str, Any] = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": SELECTOR,
            "matchLabelKeys": ["app"],
        }
    ]
}
APART: dict[str, Any] = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "zone",
                    "labelSelector": {"matchExpressions": [{"key": "tenant", "operator": "NotIn", "values": ["a"]}]},
                    "mismatchLabelKeys": ["tenant"],
                }
            ]
        }
    }
}
GUARDED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "service": ({}, {"labels": {"podgate.io/service": "others"}}),
    "no service": ({}, {"labels": {"podgate.io/service": None}}),
    "hash": ({}, {"annotations": {"podgate.io/policy-hash": None}}),
    "group": ({}, {"annotations": {"podgate.io/queued-group": None}}),
    "variant": ({}, {"labels": {"podgate.io/variant": "others"}}),
    "slot": ({}, {"annotations": {"podgate.io/slot": "2"}}),
    "label of the policy": (RUNNING, {**RUNNING, "labels": {"team": "others"}}),
    "annotation of the policy": (RUNNING, {**RUNNING, "annotations": {"scheduler.example/queue": "others"}}),
    "label of a spread": (SPREAD, {**SPREAD, "labels": {"app": "others"}}),
    "label of an affinity": ({**APART, "labels": {"tenant": "a"}}, {**APART, "labels": {"tenant": "b"}}),
    "gate": ({}, {"schedulingGates": GATES[1:]}),
    "node selector": ({}, {"nodeSelector": {"a": "b"}}),
    "toleration": (RUNNING, {**RUNNING, "tolerations": [{"operator": "Exists"}]}),
}


@pytest.mark.parametrize("kind", PADDED)
@pytest.mark.parametrize("padded", ["both", "old", "new"])
@pytest.mark.parametrize("change", GUARDED)
async def test_what_is_guarded_stays_so_in_an_update_of_a_padded_pod(
    gate: Gate, change: str, padded: str, kind: str
) -> None:
    before, after = (build(**parts) for parts in GUARDED[change])
    plain = await update(gate, before, after)
    assert plain.verdict is Verdict.DENY
    old = before if padded == "new" else pad(before, kind)
    new = after if padded == "old" else pad(after, kind)
    found = await update(gate, old, new)
    assert (found.verdict, found.service, found.status.code) == (Verdict.DENY, "web", 403)


async def test_label_that_a_rule_has_judged_stays_so_in_an_update_of_a_padded_pod(gate: Gate) -> None:
    old, new = (pad(build(labels=labels, **RUNNING), "annotations") for labels in ({}, {"tier": "iron"}))
    found = await update(gate, old, new)
    assert found.status.message.startswith("RuleViolated: service web: rule tier: ")
    assert (await update(gate, new, new)).verdict is Verdict.ADMIT


@pytest.mark.parametrize("kind", PADDED)
@pytest.mark.parametrize("cpu", ["0.5", "100"])
async def test_a_padded_pod_is_resized_once_it_is_small(gate: Gate, kind: str, cpu: str) -> None:
    old, new = (pad(build(**RUNNING, containers=containers(size)), kind) for size in ("1", cpu))
    found = await update(gate, old, new, subResource="resize")
    assert found.verdict is Verdict.DENY
    assert found.status.message.startswith("PodTooLarge: service web: the Pod has ")
    assert found.status.message.endswith("are read: write fewer, in an UPDATE that changes nothing else")
    assert not gate.store.requests
    assert (await update(gate, old, build(**RUNNING))).verdict is Verdict.ADMIT


@pytest.mark.parametrize("kind", PADDED)
@pytest.mark.parametrize("is_small", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"labels": {"other": "x"}, "annotations": {"example.com/other": "x"}},
        {"schedulingGates": GATES[:1]},
        {"containers": [{**containers("1")[0], "image": "b"}]},
        {"activeDeadlineSeconds": 1},
    ],
    ids=["padding", "metadata", "gate of others", "image", "deadline"],
)
async def test_what_nobody_guards_of_a_padded_pod_may_change(
    gate: Gate, change: dict[str, Any], kind: str, *, is_small: bool
) -> None:
    old, new = pad(build(), kind), build(**change)
    new["metadata"]["finalizers"] = []
    for half in Half:
        found = (
            await gate.ask(half, operation="UPDATE", oldObject=old, object=new if is_small else pad(new, kind))
        ).decision
        assert (found.verdict, found.service) == (Verdict.ADMIT, "web")
    assert [warning.partition(":")[0] for warning in found.warnings] == ["PodTooLarge"]


@pytest.mark.parametrize("kind", PADDED)
async def test_podgate_releases_a_padded_pod(gate: Gate, kind: str) -> None:
    old, new = (pad(build(schedulingGates=gates), kind) for gates in (GATES, []))
    controller = {"username": "system:serviceaccount:podgate-system:podgate-controller"}
    released = await update(gate, old, new, userInfo=controller)
    assert (released.verdict, released.warnings) == (Verdict.ADMIT, ())
    assert (await update(gate, old, new, userInfo={"username": ALICE})).verdict is Verdict.DENY


@pytest.mark.parametrize("field", JUDGED_WHILE_GATED)
def test_every_field_that_is_judged_while_a_pod_waits_is_compared(field: str) -> None:
    changed: dict[str, Any] = {field: ["anything"]}
    old, new = pad(build(), "labels"), pad(build(**changed), "labels")
    found = [measure(body(operation="UPDATE", oldObject=old, object=one)).excess for one in (old, new)]
    assert [excess is not None and (excess.was_before, excess.differs) for excess in found] == [
        (True, False),
        (True, True),
    ]


TRIED = """\
- name: trial
  match: {namespaces: [shop], %s}
  modes: {quota: Audit}
  quota: {windows: [{window: 1m, hard: {pods: 10}}]}
- name: prod
  match: {namespaces: [shop], podSelector: {matchExpressions: [{key: outside, operator: DoesNotExist}]}}
  failureMode: Closed
  quota: {windows: [{window: 1m, hard: {pods: 10}}]}
"""
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "rs", "controller": True}


@pytest.mark.parametrize("kind", PADDED)
@pytest.mark.parametrize("match", ["podSelector: {matchLabels: {app: trial}}", "ownerKinds: [Job]"])
@pytest.mark.parametrize("user", [ALICE, REPLICA_SETS])
async def test_a_padded_pod_belongs_to_the_service_of_its_labels_and_owner(match: str, kind: str, user: str) -> None:
    gate = Gate(policy_of(TRIED % match))
    made = pad(pod({"app": "web"}, {"a": "b"}, "u"), kind)
    made["metadata"]["ownerReferences"] = [{**OWNER, "controller": False, "kind": "Job"}, OWNER]
    for operation, old in (("CREATE", None), ("UPDATE", pod({"app": "web"}, uid="u"))):
        found = await gate.validate(operation=operation, object=made, oldObject=old, userInfo={"username": user})
        assert (found.service, found.verdict) == ("prod", Verdict.DENY)
        assert found.findings[0].code is Code.POD_TOO_LARGE


@pytest.mark.parametrize("kind", PADDED)
async def test_a_padded_pod_of_no_service_forges_neither_label_nor_gate(kind: str) -> None:
    gate = Gate(policy_of(TRIED % "podSelector: {matchLabels: {app: trial}}"))
    labelled = pad(pod({"outside": "", "podgate.io/service": "prod"}, {"a": "b"}, "u"), kind)
    assert (await gate.mutate(object=labelled)).patch == DISOWN
    gated = pad(pod({"outside": ""}, {"a": "b"}, "u", schedulingGates=GATES), kind)
    for forged in (labelled, gated):
        found = await gate.validate(object=forged)
        assert (found.service, found.verdict, found.findings[0].code) == (None, Verdict.DENY, Code.IMMUTABLE)


@pytest.mark.parametrize("kind", PADDED)
@pytest.mark.parametrize("carried", ["prod", "trial"])
async def test_a_padded_pod_that_is_only_counted_loses_the_label_of_another_service(kind: str, carried: str) -> None:
    gate = Gate(policy_of(TRIED % "podSelector: {matchLabels: {app: trial}}"))
    made = pad(pod({"app": "trial", "podgate.io/service": carried}, {"a": "b"}, "u"), kind)
    found = await gate.mutate(object=made)
    assert (found.service, found.patch) == ("trial", DISOWN if carried == "prod" else ())


async def test_a_mirror_pod_is_exempt_whatever_its_size(gate: Gate) -> None:
    made = pad(pod({"app": "web"}, {"kubernetes.io/config.mirror": "x"}, "u"), "annotations")
    found = await gate.validate(object=made, userInfo={"username": "system:node:a"})
    assert found.verdict is Verdict.EXEMPT
