"""The measurement of a large cluster, in small: what it counts is exact; its times are not judged."""

import pytest

from tests.bench.scale.growth import measure
from tests.bench.scale.size import SMALL, Size
from webhook.core.document import Purpose, load


def test_every_pod_is_charged_seen_and_counted_once() -> None:
    lines, rows = measure(SMALL)
    assert len(lines) == 1 + len(rows)
    for number, row in enumerate(rows, 1):
        counts, pods = row["counts"], row["pods"]
        ended = number * SMALL.probes  # they were charged
        assert (pods, counts["charged"], counts["seen"]) == (SMALL.steps[number - 1], pods + ended, pods)
        assert counts["watched"] >= pods
        assert (counts["charged_afterwards"], counts["refunded"]) == (0, 0)
        assert counts["waiting"] == SMALL.waiting
        assert row["redis_keys"] <= pods + ended + 10 * SMALL.services + 50
        assert all(command["bytes"] for command in row["commands"].values())


@pytest.mark.parametrize("size", [SMALL, Size(1, 2, 3, (1,), 0)])
def test_the_policy_has_a_service_for_each_place(size: Size) -> None:
    policy = load(size.build_policy().encode(), Purpose.SERVE).policy.policy
    assert len(policy.services) == size.services + 1
    assert len({size.find_place(number) for number in range(size.services)}) == size.services
    changed = load(size.build_policy(7, 1).encode(), Purpose.SERVE).policy.policy
    assert sum(one != other for one, other in zip(policy.services, changed.services, strict=True)) == 1
