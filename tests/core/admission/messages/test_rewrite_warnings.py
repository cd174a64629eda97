"""Warnings about each value of a Pod or workload that the policy replaces."""

from typing import Any

import pytest

from tests.core.admission.workloads import request, template
from tests.core.reviewing import Gate, pod, policy_of
from tests.core.strategies import Json
from webhook.core.admission.decision import Half

POLICY = """
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  placement:
    schedulerName: podgate-scheduler
    priorityClassName: high
    nodeSelector: {disk: ssd, tier: prod}
    topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]
    onConflict: {default: Override}
  resources:
    container: {min: {memory: 1Gi}, max: {memory: 8Gi, cpu: "4"}, default: {cpu: "1"}}
    whenOutside: Clamp
"""
WEB = policy_of(POLICY)
CLAMPED = "(resources.container.max, whenOutside Clamp)"


def build_containers(*limits: Json, name: str = "vllm") -> Json:
    return {
        "containers": [
            {"name": f"{name}{index or ''}", "resources": {"limits": limit}} for index, limit in enumerate(limits)
        ]
    }


async def list_rewrite_warnings(spec: Json, services: str = POLICY) -> list[str]:
    decision = await Gate(policy_of(services)).mutate(object=pod({"app": "web"}, **spec))
    return [warning.removeprefix("Rewritten: ") for warning in decision.warnings]


@pytest.mark.parametrize(
    ("spec", "warnings"),
    [
        (build_containers({"memory": "8Gi", "cpu": "4"}), []),
        (build_containers({}), []),
        (build_containers({"memory": "10Gi"}), [f'container "vllm": limits.memory 10Gi lowered to 8Gi {CLAMPED}']),
        (build_containers({"cpu": 0}), [f'container "vllm": limits.cpu 0 (no limit) lowered to 4 {CLAMPED}']),
        (
            build_containers({"memory": "1Mi"}),
            ['container "vllm": limits.memory 1Mi raised to 1Gi (resources.container.min, whenOutside Clamp)'],
        ),
        (
            {"initContainers": build_containers({"memory": "10e9999999"})["containers"]},
            [f'init container "vllm": limits.memory 10e9999999 lowered to 8Gi {CLAMPED}'],
        ),
        (
            {"schedulerName": "volcano", "nodeSelector": {"disk": "hdd", "zone": "a"}},
            [
                "schedulerName volcano replaced by podgate-scheduler (placement.schedulerName, onConflict Override)",
                "nodeSelector disk: hdd replaced by ssd (placement.nodeSelector, onConflict Override)",
            ],
        ),
        (
            {"priorityClassName": "low", "priority": 5},
            ["priorityClassName low replaced by high (placement.priorityClassName, onConflict Override)"],
        ),
        (
            {
                "topologySpreadConstraints": [
                    {"topologyKey": "zone", "maxSkew": 5, "whenUnsatisfiable": "DoNotSchedule"}
                ]
            },
            ["topologySpreadConstraints[0] (zone DoNotSchedule) replaced by the policy's"],
        ),
    ],
)
async def test_each_replaced_value_is_one_warning_on_the_pod(spec: Json, warnings: list[str]) -> None:
    assert await list_rewrite_warnings(spec) == warnings


RATIOS = """
- name: web
  match: {namespaces: [shop]}
  resources:
    container: {min: {memory: 1Mi}, maxLimitRequestRatio: {memory: 2}, defaultRequestRatio: {cpu: 0.5}}
    whenOutside: Clamp
"""


async def test_raised_request_is_warned_of_and_a_share_of_the_limit_is_not() -> None:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "4Gi"}}
    spec = {"containers": [{"name": "v", "resources": resources}]}
    found = await list_rewrite_warnings(spec, RATIOS)
    rule = "(maxLimitRequestRatio, whenOutside Clamp)"
    assert found == [f'container "v": requests.memory 1Gi raised to 2Gi {rule}']


BELOW_MAX = """
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  resources:
    container: {max: {cpu: 4}, defaultRequestRatio: {cpu: 0.5}}
"""
SHARE = "(resources.container.defaultRequestRatio)"


@pytest.mark.parametrize(
    ("services", "cpu", "warnings"),
    [
        (BELOW_MAX, "2", []),
        (BELOW_MAX, "6", [f'container "vllm": requests.cpu 6 lowered to 3 {SHARE}']),
        (
            f"{BELOW_MAX}    whenOutside: Clamp\n",
            "6",
            [
                f'container "vllm": limits.cpu 6 lowered to 4 {CLAMPED}',
                f'container "vllm": requests.cpu 6 lowered to 2 {SHARE}',
            ],
        ),
    ],
)
async def test_a_lowered_request_above_max_names_the_rule_that_lowered_it(
    services: str, cpu: str, warnings: list[str]
) -> None:
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    assert await list_rewrite_warnings({"containers": [{"name": "vllm", "resources": resources}]}, services) == warnings


async def test_a_request_above_max_that_no_rule_lowers_has_no_warning() -> None:
    spec = {"containers": [{"name": "vllm", "resources": {"requests": {"cpu": "6"}}}]}
    assert await list_rewrite_warnings(spec, BELOW_MAX) == []


async def test_author_of_a_workload_is_warned_of_requests_that_become_a_share_of_their_limits() -> None:
    """The API server sets requests of Pods only: in a template the author has written them."""
    resources = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
    for written, lowered in (
        (resources, ('Rewritten: in Pods of deployment.apps/web: container "vllm": requests.cpu 2 lowered to 1',)),
        ({"limits": {"cpu": "2"}}, ()),
    ):
        spec = {"containers": [{"name": "vllm", "resources": written}]}
        decision = (await Gate(policy_of(BELOW_MAX)).ask(Half.VALIDATE, **request(template(**spec)))).decision
        assert decision.warnings == lowered


async def test_audit_mode_has_no_warnings_of_replaced_values() -> None:
    modes = "  modes: {placement: Audit, resources: Audit}\n"
    assert (
        await list_rewrite_warnings(
            {"schedulerName": "volcano", **build_containers({"memory": "10Gi"})}, POLICY + modes
        )
        == []
    )


async def test_author_of_a_workload_is_warned_of_replaced_values() -> None:
    gate = Gate(WEB)
    pod_template = template(**build_containers({"memory": "10Gi"}))
    decision = (await gate.ask(Half.VALIDATE, **request(pod_template))).decision
    assert decision.warnings == (
        'Rewritten: in Pods of deployment.apps/web: container "vllm": limits.memory 10Gi lowered to 8Gi',
    ), "without the rule, which would make it longer than clients show"


async def test_warnings_are_bounded_in_number_and_length() -> None:
    outside: Any = {"memory": "9" * 5000, "cpu": "9" * 5000}
    found = await list_rewrite_warnings(build_containers(*[outside] * 50, name="n" * 60))
    assert len(found) == 11
    assert found[-1] == "90 more values"
    assert max(map(len, found)) <= 120
    assert sum(map(len, found)) < 4096


UNLIMITED = """
- name: web
  match: {namespaces: [shop]}
  placement: {priorityClassName: high, onConflict: {default: Override}}
  resources: {container: {max: {memory: 1Gi}, remove: [limits.cpu]}, whenOutside: Clamp}
"""
OWN_BOUNDS = """
- name: web
  match: {namespaces: [shop]}
  resources:
    container: {min: {memory: 1Gi}, max: {cpu: "1"}, default: {cpu: "1"}}
    initContainer: {min: {memory: 2Gi}, max: {cpu: "2"}}
    whenOutside: Clamp
"""


async def test_limit_that_is_taken_out_is_a_warning_after_replaced_values() -> None:
    spec = build_containers({"cpu": "2", "memory": "2Gi"}) | {"priorityClassName": "low", "priority": 5}
    assert await list_rewrite_warnings(spec, UNLIMITED) == [
        "priorityClassName low replaced by high (placement.priorityClassName, onConflict Override)",
        f'container "vllm": limits.memory 2Gi lowered to 1Gi {CLAMPED}',
        'container "vllm": limits.cpu 2 taken out (resources.container.remove)',
    ]


async def test_warning_names_the_bound_of_init_containers_unless_it_is_a_sidecar() -> None:
    starting = build_containers({"cpu": "3"}, {"memory": "1Mi"})["containers"]
    sidecar = {"name": "proxy", "restartPolicy": "Always", "resources": {"limits": {"cpu": "3"}}}
    spec = build_containers({}) | {"initContainers": [*starting, sidecar]}
    assert await list_rewrite_warnings(spec, OWN_BOUNDS) == [
        'init container "vllm": limits.cpu 3 lowered to 2 (resources.initContainer.max, whenOutside Clamp)',
        'init container "vllm1": limits.memory 1Mi raised to 2Gi (resources.initContainer.min, whenOutside Clamp)',
        'init container "proxy": limits.cpu 3 lowered to 1 (resources.container.max, whenOutside Clamp)',
    ]
