"""For any policy and Pod, a rewrite changes few fields, and none that grants a permission."""

import re

from hypothesis import given
from hypothesis import strategies as st

from tests.core.reviewing import Gate, pod, policy_of
from tests.core.strategies import PROPERTY, Json, pods
from webhook.core.admission.decision import Half

PATHS = re.compile(
    r"/metadata/(labels(/podgate\.io~1service)?|annotations(/podgate\.io~1policy-hash)?)"
    r"|/spec/(schedulerName|nodeSelector|affinity|topologySpreadConstraints|tolerations|priorityClassName|priority"
    r"|preemptionPolicy|runtimeClassName|overhead)(/.*)?"
    r"|/spec/(containers|initContainers)/\d+/resources(/.*)?"
)
POLICY = policy_of(
    """
- name: web
  match: {namespaces: [shop]}
  placement:
    schedulerName: podgate-scheduler
    priorityClassName: gold
    runtimeClassName: gvisor
    nodeSelector: {disk: ssd}
    topology: [{level: Zone, in: [b]}]
    tolerations: [{key: gpu, operator: Exists}]
    onConflict: {default: Override}
"""
)


@PROPERTY
@given(pods, st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2))
async def test_rewrite_patches_only_placement_resources_and_podgates_keys(raw: Json, labels: dict[str, str]) -> None:
    sent = pod(labels, **raw["spec"])
    decision = (await Gate(POLICY).ask(Half.MUTATE, object=sent)).decision
    assert decision.patch
    for operation in decision.patch:
        assert PATHS.fullmatch(operation.path), operation
        if operation.path in {"/metadata/labels", "/metadata/annotations"}:
            assert set(operation.value) <= {"podgate.io/service", "podgate.io/policy-hash"}
