"""Pods that another webhook moves to another service between two calls: nothing of the former service stays."""

from typing import Any

import pytest
from hypothesis import given
from msgspec.json import decode, encode

from tests.core.reinvoking import Admission, record_fields, send
from tests.core.rewriting import decode_pod, rewrite_pod
from tests.core.strategies import Json, Pair, class_pairs, examples, pairs, range_pairs
from webhook.core.admission.mutation import apply_patch
from webhook.core.admission.reinvocation import remove_outdated
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.policy.model import Match, Service

SERVICES = """
- name: fast
  match: {namespaces: [shop], podSelector: {matchLabels: {tier: fast}}}
  FAST
- name: slow
  match: {namespaces: [shop]}
  SLOW
"""
SPREAD = "{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}"
REQUIRED, PREFERRED = (f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred"))
APART = f"podAntiAffinity: {{{REQUIRED}: [{{topologyKey: kubernetes.io/hostname, labelSelector: {{}}}}]}}"
NEAR = f"podAffinity: {{{PREFERRED}: [{{weight: 1, podAffinityTerm: {{topologyKey: a, labelSelector: {{}}}}}}]}}"
ZONE_B = "topology: [{level: Zone, in: [b]}]"
IN_ZONE_B = f"placement: {{{ZONE_B}}}"
ZONE = "topology.kubernetes.io/zone"


async def move(slow: str, fast: str, change: Json | None = None, before: Json | None = None, **sent: Any) -> Admission:
    """Return an admission after both mutating calls. Other webhooks changed the spec `before` and between them."""
    services = SERVICES.replace("FAST", fast).replace("SLOW", slow)
    admission = Admission(services, send(labels={"app": "x"}, **sent))
    admission.pod["spec"].update(before or {})
    await admission.mutate()
    admission.labels["tier"] = "fast"
    admission.pod["spec"].update(change or {})
    await admission.mutate()
    return admission


def strip(found: Any) -> Any:
    """Return JSON without empty maps and lists."""
    if isinstance(found, dict):
        return {key: value for key, each in found.items() if (value := strip(each)) not in ({}, [], None)}
    return [strip(each) for each in found] if isinstance(found, list) else found


def require(*values: tuple[str, str]) -> Json:
    """Return the affinity with one required term."""
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in values]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}}


@pytest.mark.parametrize(
    ("slow", "fast", "field", "final"),
    [
        (
            f"placement: {{topologySpreadConstraints: [{SPREAD}]}}",
            f"placement: {{topologySpreadConstraints: [{SPREAD}]}}",
            "topologySpreadConstraints",
            [
                {
                    "maxSkew": 1,
                    "topologyKey": ZONE,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"podgate.io/service": "fast"}},
                }
            ],
        ),
        (
            IN_ZONE_B,
            "placement: {topology: [{level: Zone, in: [a]}]}",
            "affinity",
            require((ZONE, "a")),
        ),
        (IN_ZONE_B, "modes: {breaker: Audit}", "affinity", {"nodeAffinity": {}}),
        (
            f"placement: {{affinity: {{{APART}, {NEAR}}}}}",
            "placement: {nodeSelector: {a: b}}",
            "affinity",
            {"podAntiAffinity": {REQUIRED: []}, "podAffinity": {PREFERRED: []}},
        ),
        (
            "placement: {topology: [{level: Zone, in: [b], preferredWeight: 1}]}",
            "modes: {placement: Disabled}",
            "affinity",
            {"nodeAffinity": {PREFERRED: []}},
        ),
        ("placement: {schedulerName: s}", "placement: {allow: {schedulerNames: []}}", "schedulerName", None),
        ("placement: {nodeSelector: {disk: hdd}}", "modes: {quota: Audit}", "nodeSelector", {}),
    ],
    ids=["spread", "zones", "zone", "pod affinity", "preferred", "scheduler", "node labels"],
)
async def test_the_placement_is_that_of_the_new_service(slow: str, fast: str, field: str, final: object) -> None:
    admission = await move(slow, fast)
    assert admission.pod["spec"].get(field) == final
    assert await admission.validate() == ""
    assert await admission.mutate() == []


@pytest.mark.parametrize(
    ("slow", "fast", "final"),
    [
        ("default: {memory: 4Gi}", "container: {default: {memory: 256Mi}, max: {memory: 1Gi}}", "256Mi"),
        ("default: {cpu: 1}", "container: {forbid: [limits.cpu]}", None),
        ("default: {memory: 4Gi}", "pod: {qosClasses: [BestEffort]}", None),
        ("defaultRequest: {memory: 1Gi}, defaultLimitRatio: {memory: 2}", "container: {max: {memory: 1Gi}}", "1Gi"),
    ],
)
async def test_amounts_are_those_of_the_new_service(slow: str, fast: str, final: str | None) -> None:
    admission = await move(f"resources: {{container: {{{slow}}}}}", f"resources: {{{fast}}}")
    found = {side: amounts.get("memory") for side, amounts in admission.resources.items()}
    assert found == {"limits": final, "requests": final}
    assert await admission.validate() == ""
    assert await admission.mutate() == []


async def test_a_pod_that_has_come_to_no_service_keeps_nothing_of_the_former() -> None:
    fast = f"placement: {{nodeSelector: {{disk: ssd}}, {ZONE_B}}}\n  resources: {{container: {{default: {{cpu: 1}}}}}}"
    services = SERVICES[: SERVICES.index("- name: slow")].replace("FAST", fast)
    admission = Admission(services, send(labels={"tier": "fast"}))
    await admission.mutate()
    assert admission.resources
    admission.labels["tier"] = "none"
    await admission.mutate()
    spec = admission.pod["spec"]
    assert (admission.labels, spec["nodeSelector"], spec["affinity"]) == ({"tier": "none"}, {}, {"nodeAffinity": {}})
    assert strip(admission.resources) == {}
    assert await admission.validate() == ""


async def test_requests_of_other_webhooks_and_amounts_of_the_user_stay() -> None:
    limits = {"memory": "1Gi"}
    own = [{"name": "c", "resources": {"requests": {"memory": "1Gi"}, "limits": limits}}]
    sized = [{"name": "c", "resources": {"requests": {"memory": "1Gi", "cpu": "300m"}, "limits": limits}}]
    slow = "resources: {container: {default: {memory: 1Gi}, defaultRequest: {cpu: 100m}, defaultLimitRatio: {cpu: 2}}}"
    admission = await move(slow, "modes: {breaker: Audit}", before={"containers": sized}, containers=own)
    assert admission.resources == {
        "requests": {"memory": "1Gi", "cpu": "300m"},
        "limits": {"memory": "1Gi"},
    }, "the limit of cpu was chosen for the request"


async def test_an_amount_that_only_the_former_service_reads_is_refused_if_it_is_unreadable() -> None:
    unreadable = [{"name": "c", "resources": {"limits": {"ephemeral-storage": "much"}}}]
    with pytest.raises(BadReviewError, match="resources: not a Kubernetes quantity"):
        await move(
            "resources: {container: {default: {ephemeral-storage: 1Gi}}}",
            "resources: {container: {default: {cpu: 1}}}",
            {"containers": unreadable},
        )


async def test_terms_of_the_user_stay() -> None:
    sent: Json = {
        "affinity": require((ZONE, "b")),
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": ZONE,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"podgate.io/service": "slow"}},
            }
        ],
    }
    slow = f"placement: {{{ZONE_B}, topologySpreadConstraints: [{SPREAD}], affinity: {{{APART}}}}}"
    admission = await move(slow, "modes: {breaker: Audit}", **sent)
    spec = admission.pod["spec"]
    assert spec["affinity"] == {**sent["affinity"], "podAntiAffinity": {REQUIRED: []}}
    assert spec["topologySpreadConstraints"] == sent["topologySpreadConstraints"]


@pytest.mark.parametrize(
    ("zone", "final"), [("a", [("disk", "ssd"), (ZONE, "a")]), (None, [("disk", "ssd"), (ZONE, "b")])]
)
async def test_a_users_required_term_keeps_what_it_cannot_be_told_from_unless_no_node_is_left(
    zone: str | None, final: list[tuple[str, str]]
) -> None:
    fast = "modes: {breaker: Audit}" if zone is None else f"placement: {{topology: [{{level: Zone, in: [{zone}]}}]}}"
    admission = await move(IN_ZONE_B, fast, affinity=require(("disk", "ssd")))
    assert admission.pod["spec"]["affinity"] == require(*final)
    assert await admission.validate() == ""


async def test_required_terms_of_another_webhook_stay_without_the_former_conditions() -> None:
    admission = await move(IN_ZONE_B, "modes: {breaker: Audit}", before={"affinity": require(("disk", "ssd"))})
    assert admission.pod["spec"]["affinity"] == require(("disk", "ssd"))


async def test_a_class_of_which_no_priority_is_computed_any_more_is_denied_with_the_cause() -> None:
    classes = ("placement: {priorityClassName: low}", "placement: {priorityClassName: high}")
    admission = await move(*classes, change={"priority": 1})
    message = await admission.validate()
    assert "another webhook changes this field, or a label by which the Pod comes to another service" in message
    assert message.endswith("must be called before podgate")


@examples(100)
@given(pairs | class_pairs | range_pairs)
def test_all_that_a_service_writes_into_a_bare_pod_is_taken_out(pair: Pair) -> None:
    bare = {"containers": [{"name": "c"}], "initContainers": [{"name": "i"}]}
    metadata = {"namespace": "shop", "labels": {"app": "x"}}
    managed = [{"fieldsV1": record_fields({"metadata": metadata, "spec": bare})}]
    sent: Json = {"metadata": {**metadata, "managedFields": managed}, "spec": bare}
    once = decode_pod(rewrite_pod(sent, pair.service))
    left = apply_patch(once, remove_outdated(once, Service("other", Match()), pair.service))
    # Tolerations that the API server adds itself may stay.
    assert {**strip(decode(encode(left.spec))), "tolerations": None} == {**strip(bare), "tolerations": None}
    assert {key: value for key, value in left.labels.items() if not key.startswith("podgate.io/")} == {"app": "x"}
    assert [key for key in left.annotations if not key.startswith("podgate.io/")] == []
