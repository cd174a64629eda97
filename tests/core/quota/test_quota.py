from fractions import Fraction

import pytest

from tests.core.reviewing import policy_of
from webhook.core.kubernetes.pod import Container, Pod, PodMetadata, PodSpec, Resources
from webhook.core.quota import CounterPlan, convert_amount
from webhook.core.quota.pod_cost import compute_cost, format_amount, list_counted


@pytest.mark.parametrize("resource", ["cpu", "requests.cpu", "limits.cpu"])
def test_cpu_is_counted_in_millicores(resource: str) -> None:
    assert convert_amount(resource, Fraction("1.5")) == 1500
    assert format_amount(resource, 1500) == "1500m"
    assert format_amount(resource, 2000) == "2"


def test_extended_resource_that_ends_in_cpu_is_counted_in_whole_units() -> None:
    name = "requests.vendor.com/shares.cpu"
    window = "{window: 1m, hard: {requests.vendor.com/shares.cpu: 4}}"
    loaded = policy_of(f"- {{name: a, match: {{namespaces: [a]}}, quota: {{windows: [{window}]}}}}")
    plan = CounterPlan.from_service(loaded.policy.services[0])
    container = Container(resources=Resources(requests={"vendor.com/shares.cpu": 3}))
    assert plan.windows[0].limits[0].hard == 4
    assert compute_cost(Pod(PodMetadata(), PodSpec(containers=(container,))), list_counted(plan)) == {name: 3}
    assert format_amount(name, 3) == 3
