from fractions import Fraction

import pytest

from tests.core.reviewing import policy_of
from webhook.core.kubernetes.pod import Container, Pod, PodMetadata, PodSpec, Resources
from webhook.core.quota import CounterPlan, amount
from webhook.core.quota.pod_cost import counted, shown, taken


@pytest.mark.parametrize("resource", ["cpu", "requests.cpu", "limits.cpu"])
def test_cpu_is_counted_in_millicores(resource: str) -> None:
    assert amount(resource, Fraction("1.5")) == 1500
    assert shown(resource, 1500) == "1500m"
    assert shown(resource, 2000) == "2"


def test_extended_resource_that_ends_in_cpu_is_counted_in_whole_units() -> None:
    name = "requests.vendor.com/shares.cpu"
    window = "{window: 1m, hard: {requests.vendor.com/shares.cpu: 4}}"
    loaded = policy_of(f"- {{name: a, match: {{namespaces: [a]}}, quota: {{windows: [{window}]}}}}")
    plan = CounterPlan.of(loaded.policy.services[0])
    container = Container(resources=Resources(requests={"vendor.com/shares.cpu": 3}))
    assert plan.windows[0].limits[0].hard == 4
    assert taken(Pod(PodMetadata(), PodSpec(containers=(container,))), counted(plan)) == {name: 3}
    assert shown(name, 3) == 3
