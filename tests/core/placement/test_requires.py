"""A placement of preferences alone is violated by no Pod but one that names its node."""

from hypothesis import given
from msgspec.structs import replace

from tests.core.rewriting import decode_pod
from tests.core.strategies import PROPERTY, Governed, Json, pods, policies
from webhook.core import placement
from webhook.core.placement.plan import PlacementPlan, PodTerms
from webhook.core.policy_fields import Allowed


def drop_requirements(plan: PlacementPlan) -> PlacementPlan:
    """Leave out the requirements, except spread constraints: `onConflict` decides on those."""
    return replace(
        plan,
        labels={},
        annotations={},
        allow=Allowed(),
        scheduler_name=None,
        priority_class_name=None,
        runtime_class_name=None,
        node_selector={},
        required=(),
        pod_affinity=PodTerms(preferred=plan.pod_affinity.preferred),
        pod_anti_affinity=PodTerms(preferred=plan.pod_anti_affinity.preferred),
        tolerations=(),
        tolerations_by_class={},
        allow_node_name=True,
    )


@PROPERTY
@given(policies, pods)
def test_plan_that_requires_nothing_is_never_violated(governed: Governed, raw: Json) -> None:
    plan = governed.service.placement_plan
    assert plan is not None
    pod = decode_pod(raw)
    for variant in (plan, drop_requirements(plan)):
        if not placement.has_requirements(variant):
            assert placement.find_violations(pod, replace(variant, allow_node_name=True)) == []


@PROPERTY
@given(policies)
def test_each_requirement_alone_is_noticed(governed: Governed) -> None:
    plan = governed.service.placement_plan
    assert plan is not None
    base = replace(drop_requirements(plan), spreads=())
    assert not placement.has_requirements(base)
    for field in PlacementPlan.__struct_fields__:
        value = getattr(plan, field)
        if value != getattr(base, field) and field not in {"spreads", "allow_node_name"}:
            assert placement.has_requirements(replace(base, **{field: value})), field
