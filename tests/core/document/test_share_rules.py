"""Limits of the rules of shares: valid stanzas next to those in `bad/shares.yaml`."""

import pytest

from tests.core.document.documents import build_document, list_problems, list_warnings

SPOT = "{name: spot, weight: 4, nodeSelector: {capacity: spot}}"
ON_DEMAND = "{name: on-demand, weight: 1, nodeSelector: {capacity: on-demand}}"
TERMS = "nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "


def shares(more: str = "", *, placement: str = "", variants: str = f"{SPOT}, {ON_DEMAND}") -> str:
    return build_document(f"  placement: {{{placement} shares: {{variants: [{variants}], {more}}}}}\n")


def terms(key: str, *values: str) -> str:
    """Return node affinity with one term for each value of a label."""
    listed = ", ".join(f"{{matchExpressions: [{{key: {key}, operator: In, values: [{value}]}}]}}" for value in values)
    return f"{{{TERMS}[{listed}]}}}}}}"


@pytest.mark.parametrize("wait", ["30s", "5m", "1h"])
def test_a_pod_may_wait_for_half_a_minute_to_an_hour(wait: str) -> None:
    assert list_problems(shares(f"unschedulableFor: {wait}")) == []


@pytest.mark.parametrize("wait", ["29999ms", "100ms", "1h1s"])
def test_other_waits_are_refused(wait: str) -> None:
    assert len(list_problems(shares(f"unschedulableFor: {wait}"))) == 1


def test_one_variant_is_no_division() -> None:
    [line] = list_problems(shares(variants=SPOT))
    assert line.endswith("only 1 of at least 2 entries: write at least 2 entries")


def test_a_variant_is_refused_only_if_none_of_its_terms_meets_one_of_the_placement() -> None:
    placement = f"affinity: {terms('zone', 'a', 'b')},"
    assert (
        list_problems(shares(placement=placement, variants=f"{SPOT}, {{name: v, affinity: {terms('zone', 'b')}}}"))
        == []
    )
    other = f"{SPOT}, {{name: v, affinity: {terms('zone', 'c', 'd')}}}"
    [line] = list_problems(shares(placement=placement, variants=other))
    assert "zone In [c] contradicts affinity in line 6, zone In [a]: no node can match both" in line


def test_terms_of_a_variant_and_of_the_placement_are_few_together() -> None:
    placement = f"affinity: {terms('zone', *(f'z{number}' for number in range(11)))},"
    many = terms("disk", *(f"d{number}" for number in range(10)))
    [line] = list_problems(shares(placement=placement, variants=f"{SPOT}, {{name: v, affinity: {many}}}"))
    assert "each of these 10 terms is joined with each of placement.affinity's 11: more than 100" in line


def test_a_value_that_placement_asks_for_too_is_no_contradiction() -> None:
    variants = f"{SPOT}, {{name: v, weight: 1, nodeSelector: {{disk: ssd}}}}"
    assert list_problems(shares(placement="nodeSelector: {disk: ssd},", variants=variants)) == []


def test_a_contradiction_without_variants_is_reported_once() -> None:
    placement = f"nodeSelector: {{zone: c}}, affinity: {terms('zone', 'a')},"
    [line] = list_problems(shares(placement=placement))
    assert "nodeSelectorTerms[0]" in line


def test_two_variants_may_tolerate_the_same_taints() -> None:
    tolerations = "tolerations: [{key: cheap, operator: Exists}]"
    variants = f"{{name: a, weight: 1, nodeSelector: {{a: b}}, {tolerations}}}, {{name: b, {tolerations}}}"
    assert list_warnings(shares(variants=variants)) == []


def test_a_variant_may_be_near_what_another_avoids() -> None:
    term = "requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {a: b}}}]"
    variants = (
        f"{{name: near, weight: 1, affinity: {{podAffinity: {{{term}}}}}}},"
        f" {{name: away, affinity: {{podAntiAffinity: {{{term}}}}}}}"
    )
    assert list_problems(shares(variants=variants)) == []


def test_the_base_gets_pods_without_a_weight() -> None:
    variants = f"{{name: base, nodeSelector: {{capacity: reserved}}}}, {SPOT}"
    assert list_warnings(shares("base: {variant: base, pods: 1}", variants=variants)) == []


def test_shares_of_the_defaults_are_judged_in_each_service() -> None:
    defaults = f"defaults: {{placement: {{shares: {{variants: [{SPOT}, {ON_DEMAND}]}}}}}}\n"
    service = "services:\n- {name: web, match: {namespaces: [web]}, placement: {nodeSelector: {capacity: burst}}}\n"
    problems = list_problems(f"apiVersion: podgate.io/v1alpha1\nkind: Policy\n{defaults}{service}")
    assert [line.split(": ")[1] for line in problems] == [
        f"defaults.placement.shares.variants[{number}].nodeSelector.capacity" for number in (0, 1)
    ]
