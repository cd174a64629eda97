"""Values of tests: amounts and durations are compared by what they mean."""

from typing import Any

import pytest

from webhook.policy_tests.comparison import is_same_value, parse_steps

RESOURCES = "spec.containers[api].resources"


@pytest.mark.parametrize(
    ("path", "expected", "actual", "same"),
    [
        (f"{RESOURCES}.requests[cpu]", "1", "1000m", True),
        (f"{RESOURCES}.requests[cpu]", 0.5, "500m", True),
        (f"{RESOURCES}.limits[memory]", "1Gi", "1024Mi", True),
        (f"{RESOURCES}.limits[memory]", "1G", "1Gi", False),
        (RESOURCES, {"limits": {"memory": "1Gi"}, "requests": {"cpu": 1}}, {"limits": {"memory": "1024Mi"}}, False),
        (RESOURCES, {"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1024Mi"}}, True),
        (
            "spec.containers",
            [{"resources": {"limits": {"cpu": 1}}}],
            [{"resources": {"limits": {"cpu": "1000m"}}}],
            True,
        ),
        ("spec.containers", [{"name": "a"}], [{"name": "a"}, {"name": "b"}], False),
        ("spec.overhead[memory]", "128Mi", "134217728", True),
        ("metadata.labels[size]", "1Gi", "1024Mi", False),
        (f"{RESOURCES}.limits[memory]", "much", "many", False),
        (
            "used",
            {"window": "60s", "used": "2000m", "of": "service"},
            {"window": "1m", "used": "2", "of": "service"},
            True,
        ),
        ("used", {"window": "60s", "used": "2"}, {"window": "1h", "used": "2"}, False),
    ],
)
def test_values_are_compared_by_meaning(path: str, expected: Any, actual: Any, *, same: bool) -> None:
    steps = () if path == "used" else parse_steps(path)
    assert is_same_value(expected, actual, steps) is same
