"""Opcodes of a review whose service sizes no init containers and takes out no limits: as many as before it could."""

import sys
from functools import partial

import msgspec
import pytest

from tests.bench.opcode_counts import count_opcodes
from tests.core.generating.vocabulary import Json
from webhook.core.container_resources import RangePlan, build_operations, find_violations
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.policy_fields import ResourceRules

ASKED: Json = {"requests": {"cpu": "1"}, "limits": {"cpu": "3", "memory": "2Gi"}}
PODS: dict[str, Json] = {
    "one": {"containers": [{"name": "a", "resources": ASKED}]},
    "starting": {
        "containers": [{"name": "a", "resources": ASKED}],
        "initContainers": [{"name": "i", "resources": ASKED}, {"name": "s", "restartPolicy": "Always"}],
    },
    "whole": {"resources": {"requests": {"cpu": "5"}, "limits": {"cpu": "8"}}, "containers": [{"name": "a"}]},
}
DEFAULTS: Json = {"container": {"default": {"cpu": "1"}, "defaultRequest": {"memory": "1Gi"}}}
IGNORING: Json = {"container": {"default": {"cpu": "1"}, "ignore": ["x*"]}}
CLAMPED: Json = {"container": {"min": {"cpu": "1"}, "max": {"cpu": "2"}}, "whenOutside": "Clamp"}


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="each version of Python has opcodes of its own")
@pytest.mark.parametrize(
    ("rules", "pod", "rewrite_max", "check_max"),
    [
        (DEFAULTS, "one", 191, 219),
        (DEFAULTS, "starting", 380, 779),
        (DEFAULTS, "whole", 266, 690),
        (IGNORING, "one", 178, 232),
        (IGNORING, "starting", 367, 643),
        (IGNORING, "whole", 261, 498),
        (CLAMPED, "one", 188, 418),
        (CLAMPED, "starting", 374, 954),
        (CLAMPED, "whole", 248, 492),
    ],
)
def test_review_without_these_fields_executes_no_more_opcodes(
    rules: Json, pod: str, rewrite_max: int, check_max: int
) -> None:
    decoded = msgspec.convert(rules, ResourceRules, dec_hook=lambda _, value: Quantity.parse(str(value)))
    plan, given = RangePlan.from_rules(decoded), msgspec.convert({"metadata": {}, "spec": PODS[pod]}, Pod)
    for work, most in ((build_operations, rewrite_max), (find_violations, check_max)):
        work(given, plan)  # as in each review but the first of its kind
        assert count_opcodes(partial(work, given, plan))[0] <= most
