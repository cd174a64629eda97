"""Tolerations by QoS class: the class is that of the Pod after the resources that are really written."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given

from tests.core.oracle.policy import select_tolerations
from tests.core.placement.examples import pod
from tests.core.rewriting import decode_patch, decode_pod, patch_of, rewrite_pod
from tests.core.strategies import HASH, Json, Pair, class_pairs, decode_placement, examples
from webhook.core.admission.stages import check_new
from webhook.core.admission.validation import check_update
from webhook.core.policy.model import Service
from webhook.core.policy_fields import Mode
from webhook.core.rule_notes import Act, Note, explain

PRESSURE = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}
SPOT = {"key": "spot", "operator": "Exists"}
DEDICATED = {"key": "dedicated", "operator": "Equal", "value": "search", "effect": "NoSchedule"}
IN_TREE: Json = {"tolerationsByQosClass": {"Guaranteed": [PRESSURE], "Burstable": [PRESSURE]}}
"""What PodTolerationRestriction does."""
BOTH: Json = {"tolerationsByQosClass": {"Burstable": [PRESSURE], "BestEffort": [SPOT]}}
HALF_A_CPU: Json = {"container": {"defaultRequest": {"cpu": "500m"}}}
NOTHING: Json = {}
BURSTABLE: Json = {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}
GUARANTEED: Json = {side: {"cpu": "1", "memory": "1Gi"} for side in ("requests", "limits")}


def build_service(placement: Json, resources: Json | None = None, /, **modes: Mode) -> Service:
    return decode_placement(placement, resources=resources or {}, modes=modes).service


def build_pod(*resources: Json, **spec: Any) -> Json:
    containers = [{"name": f"c{index}", "resources": resource} for index, resource in enumerate(resources)]
    return pod(containers=containers, **spec)


def tolerations(raw: Json) -> list[Json]:
    found: list[Json] = raw["spec"].get("tolerations") or []
    return found


@pytest.mark.parametrize(
    ("raw", "added"),
    [
        (build_pod(NOTHING), []),
        (build_pod(BURSTABLE), [PRESSURE]),
        (build_pod(GUARANTEED), [PRESSURE]),
        (build_pod(GUARANTEED, NOTHING), [PRESSURE]),
        (build_pod(NOTHING, resources={"requests": {"memory": "1Gi"}}), [PRESSURE]),
        (build_pod({"limits": {"cpu": "0"}}), []),
    ],
)
def test_memory_pressure_is_tolerated_as_by_the_plugin(raw: Json, added: list[Json]) -> None:
    assert tolerations(rewrite_pod(raw, build_service(IN_TREE))) == added


def test_default_request_decides_the_class() -> None:
    raw, service = build_pod(NOTHING), build_service({**BOTH, "tolerations": [DEDICATED]}, HALF_A_CPU)
    after = rewrite_pod(raw, service)
    assert tolerations(after) == [DEDICATED, PRESSURE]
    assert patch_of(after, service) == ()
    assert tolerations(rewrite_pod(raw, build_service(BOTH, HALF_A_CPU, resources=Mode.DISABLED))) == [SPOT]


def test_toleration_of_the_pod_that_covers_it_is_enough() -> None:
    raw = build_pod(BURSTABLE, tolerations=[{"operator": "Exists"}])
    assert patch_of(raw, build_service(IN_TREE)) == ()
    assert check_new(decode_pod(raw), build_service(IN_TREE), hash_known=True).findings == ()


def test_toleration_that_was_removed_is_lacking() -> None:
    (found,) = check_new(decode_pod(build_pod(BURSTABLE)), build_service(IN_TREE), hash_known=True).findings
    assert found.message == "service s: spec.tolerations lacks node.kubernetes.io/memory-pressure Exists:NoSchedule"
    assert check_new(decode_pod(build_pod(NOTHING)), build_service(IN_TREE), hash_known=True).findings == ()


def test_allow_permits_those_of_the_pods_class_only() -> None:
    service = build_service({**IN_TREE, "allow": {"tolerations": []}})
    burstable, best_effort = (build_pod(some, tolerations=[PRESSURE]) for some in (BURSTABLE, NOTHING))
    assert check_new(decode_pod(burstable), service, hash_known=True).findings == ()
    (found,) = check_new(decode_pod(best_effort), service, hash_known=True).findings
    assert found.code == "PlacementNotAllowed"
    bare = {**best_effort, "spec": {**best_effort["spec"], "tolerations": []}}
    assert [finding.code for finding in check_update(decode_pod(bare), decode_pod(best_effort), service)] == [
        "PlacementNotAllowed"
    ]
    assert check_update(decode_pod(build_pod(BURSTABLE)), decode_pod(burstable), service) == ()


def test_update_of_a_gated_pod_may_not_remove_it() -> None:
    gate = {"schedulingGates": [{"name": "example.com/gate"}]}
    old, new = (build_pod(BURSTABLE, **gate, tolerations=some) for some in ([PRESSURE], [SPOT]))
    (found,) = check_update(decode_pod(old), decode_pod(new), build_service(IN_TREE))
    assert found.message.endswith("lacks node.kubernetes.io/memory-pressure Exists:NoSchedule")


@pytest.mark.parametrize(("of_placement", "of_resources"), list(product(Mode, Mode)))
def test_class_is_that_of_resources_written_as_surely_as_placement(of_placement: Mode, of_resources: Mode) -> None:
    service = build_service(BOTH, HALF_A_CPU, placement=of_placement, resources=of_resources)
    after = rewrite_pod(build_pod(NOTHING), service)
    found = check_new(decode_pod(after), service, hash_known=True)
    assert found.findings == ()
    placement_writes = [write for write in found.would_write if write.concern == "placement"]
    becomes_burstable = of_resources is Mode.ENFORCE or (
        of_resources is not Mode.DISABLED and of_placement is not Mode.ENFORCE
    )
    wanted = [PRESSURE] if becomes_burstable else [SPOT]
    assert tolerations(after) == (wanted if of_placement is Mode.ENFORCE else [])
    assert bool(placement_writes) == (of_placement in {Mode.WARN, Mode.AUDIT})
    if of_placement is not Mode.DISABLED:
        notes = explain(build_pod(NOTHING), service, HASH)
        acting = [note.rule for note in notes if "ByQosClass" in note.rule and not note.words.startswith("not for")]
        assert acting == [f"placement.tolerationsByQosClass[{'Burstable' if becomes_burstable else 'BestEffort'}]"]


@examples(200)
@given(class_pairs)
def test_pod_is_placed_as_if_the_policy_had_those_of_its_class_alone(pair: Pair) -> None:
    after = rewrite_pod(pair.pod, pair.service)
    alone = {
        field: value for field, value in select_tolerations(pair.placement, after).items() if "ByQosClass" not in field
    }
    some = alone.get("tolerations") or []
    alone["tolerations"] = [toleration for index, toleration in enumerate(some) if toleration not in some[:index]]
    expected = decode_placement(alone, resources=pair.policy.resources).service
    assert after == rewrite_pod(pair.pod, expected)
    assert check_new(decode_pod(after), pair.service, hash_known=True) == check_new(
        decode_pod(after), expected, hash_known=True
    )


def notes_of(raw: Json, service: Service) -> list[Note]:
    return [note for note in explain(raw, service, HASH) if "olerations" in note.rule]


def test_notes_tell_the_class_and_what_it_brought() -> None:
    service = build_service({"tolerations": [DEDICATED], **BOTH}, HALF_A_CPU)
    assert [(note.rule, note.act, note.words) for note in notes_of(build_pod(NOTHING), service)] == [
        ("placement.tolerations[0]", Act.WROTE, ""),
        ("placement.tolerationsByQosClass[Burstable]", Act.WROTE, ""),
        ("placement.tolerationsByQosClass[BestEffort]", Act.NOTHING, "not for this Pod: its QoS class is Burstable"),
    ]
    raw = build_pod(BURSTABLE, tolerations=[{**PRESSURE, "effect": ""}])
    (_, burstable, _) = notes_of(raw, service)
    assert burstable.words == "covered by node.kubernetes.io/memory-pressure Exists:*"


def test_pod_level_limit_of_huge_pages_leaves_the_class_to_the_containers() -> None:
    """Its containers get a request, and the API server then sums the Pod's."""
    raw = build_pod(NOTHING, resources={"limits": {"hugepages-2Mi": "2Mi"}})
    service = build_service(BOTH, HALF_A_CPU)
    after = rewrite_pod(raw, service)
    assert [operation["path"] for operation in decode_patch(patch_of(raw, service))] == [
        "/spec/tolerations",
        "/spec/containers/0/resources/requests",
    ]
    assert check_new(decode_pod(after), service, hash_known=True).findings == ()
