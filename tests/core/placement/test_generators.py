"""Coverage of the generators: every field and every kind of rewrite, with few rejected draws."""

from collections import Counter
from collections.abc import Iterable

from hypothesis import strategies as st

from tests.core.generating.pods import pods_of
from tests.core.generating.policies import document, policies_of
from tests.core.generating.vocabulary import CONCERNS, TENANTS_CONCERNS, Concern
from tests.core.oracle.nodes import terms_of
from tests.core.oracle.policy import find_required_terms
from tests.core.oracle_comparison import find_findings
from tests.core.pairs import draw_series, draw_usual_pairs
from tests.core.rewriting import decode_patch, patch_of, rewrite_pod
from tests.core.strategies import ODD, Pair, drawn_placements
from webhook.core.document.loading import load_effective, load_unproved
from webhook.core.document.yaml.problems import DocumentError
from webhook.core.policy.model import Modes


def test_few_placements_are_rejected_and_valid_ones_pass_the_proof() -> None:
    rejected = 0
    for placement in draw_series(80, drawn_placements, number=5):
        raw = document(placement)
        try:
            load_unproved(raw, None)
        except DocumentError:
            rejected += 1
            continue
        assert load_effective(raw, None).policy.services[0].modes == Modes()
    assert rejected <= 20


def test_every_field_of_pods_and_placements_is_generated() -> None:
    fields = {
        "affinity",
        "nodeSelector",
        "priorityClassName",
        "runtimeClassName",
        "schedulerName",
        "tolerations",
        "topologySpreadConstraints",
    }
    pod_fields = Counter(field for pair in draw_usual_pairs() for field in fields if pair.pod["spec"].get(field))
    others = {"topology", "labels", "annotations", "allow", "tolerationsByQosClass", "ifAbsent", "onConflict"}
    of_placements = fields | others
    placement_fields = Counter(
        field for pair in draw_usual_pairs() for field in of_placements if pair.placement.get(field)
    )
    assert min(pod_fields[field] for field in fields) > 10, pod_fields
    assert min(placement_fields[field] for field in of_placements) > 10, placement_fields


def test_several_terms_are_generated_in_pods_and_placements_together() -> None:
    sizes = [
        (len(terms_of(pair.pod) or []), len(find_required_terms(pair.placement) or [])) for pair in draw_usual_pairs()
    ]
    assert sum(own > 0 and wanted > 0 for own, wanted in sizes) > 20
    assert sum(own > 1 and wanted > 1 for own, wanted in sizes) > 5


def test_every_kind_of_operation_occurs() -> None:
    kinds = Counter(
        kind
        for pair in draw_usual_pairs()
        for kind in {operation["op"] for operation in decode_patch(patch_of(pair.pod, pair.service))}
    )
    assert min(kinds[kind] for kind in ("add", "replace", "remove", "copy")) >= 3, kinds


def count_findings(pairs: Iterable[Pair]) -> Counter[tuple[str, str]]:
    """Count the findings on rewritten Pods, by code and field."""
    return Counter(
        (code, field.partition("[")[0])
        for pair in pairs
        for code, field in find_findings(rewrite_pod(pair.pod, pair.service), pair.service)
    )


def draw_concern_pairs(count: int, concern: Concern, *, number: int = 2) -> list[Pair]:
    return draw_series(count, st.builds(Pair, pods_of(ODD, concern), policies_of(ODD, concern)), number=number)


def test_conflicts_of_metadata_and_fields_that_are_not_allowed_occur() -> None:
    of_metadata, of_allow = (
        count_findings(pair for number in (2, 6) for pair in draw_concern_pairs(40, concern, number=number))
        for concern in TENANTS_CONCERNS[:2]
    )
    assert {field for code, field in of_metadata if code == "PlacementConflict"} == {
        "metadata.labels",
        "metadata.annotations",
    }
    assert len({field for code, field in of_allow if code == "PlacementNotAllowed"}) > 2, of_allow


def test_every_conflict_occurs() -> None:
    of_classes = next(concern for concern in CONCERNS if "schedulerName" in concern.fields)
    found = count_findings([*draw_usual_pairs(), *draw_concern_pairs(60, of_classes)])
    fields = ("schedulerName", "nodeSelector", "topologySpreadConstraints", "priorityClassName", "runtimeClassName")
    assert all(found["PlacementConflict", f"spec.{field}"] for field in fields), found
    assert any(code == "PlacementContradiction" for code, _ in found), found
