"""Container resources by LimitRange's rules: computed examples, semantics, and findings."""

from typing import Any

import jsonpatch
import msgspec
import pytest

from tests.core.generating.vocabulary import Json
from webhook.core.container_resources import (
    RangePlan,
    build_operations,
    find_qos_change,
    find_qos_class,
    find_violations,
)
from webhook.core.findings import Code, Violation
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.policy_fields import ResourceRules

OUTSIDE, UNFULFILLED = Code.RESOURCES_OUTSIDE, Code.RESOURCES_UNFULFILLED
BOTH = {"cpu": "1", "memory": "1Gi"}
QUARTER = {"default": {"cpu": "1"}, "defaultRequestRatio": {"cpu": 0.25}}


def plan_of(rules: Json) -> RangePlan:
    return RangePlan.from_rules(
        msgspec.convert(rules, ResourceRules, dec_hook=lambda _, value: Quantity.parse(str(value)))
    )


def build_container_range(when_outside: str = "Deny", **container: Any) -> RangePlan:
    field_names = {"default_request": "defaultRequest"}
    return plan_of(
        {
            "container": {field_names.get(key, key): value for key, value in container.items()},
            "whenOutside": when_outside,
        }
    )


def decode_pod(spec: Json) -> Pod:
    return msgspec.convert({"metadata": {}, "spec": spec}, Pod)


def rewrite_spec(spec: Json, plan: RangePlan) -> Json:
    patch = msgspec.to_builtins(build_operations(decode_pod(spec), plan))
    found: Json = jsonpatch.apply_patch({"spec": spec}, patch)["spec"]
    return found


def spec_of(resources: Json | None = None, **more: Any) -> Json:
    return {"containers": [{"name": "main", "resources": resources, **more}]}


def build_resources(requests: Json | None = None, limits: Json | None = None) -> Json:
    return {side: found for side, found in (("requests", requests), ("limits", limits)) if found is not None}


def rewrite_resources(resources: Json | None, plan: RangePlan) -> Json | None:
    found: Json | None = rewrite_spec(spec_of(resources), plan)["containers"][0].get("resources")
    return found


def list_violation_texts(spec: Json, plan: RangePlan) -> list[str]:
    return [f"{violation.code}: {violation.text}" for violation in find_violations(decode_pod(spec), plan)]


@pytest.mark.parametrize(
    ("range_rules", "before", "after"),
    [
        # an absent limit gets the default, or else the max, and so does the absent request
        ({"default": {"cpu": "1"}}, None, build_resources({"cpu": "1"}, {"cpu": "1"})),
        ({"default": {"cpu": "1"}, "max": {"cpu": "8"}}, None, build_resources({"cpu": "1"}, {"cpu": "1"})),
        ({"max": {"cpu": "8"}}, build_resources({"cpu": "1"}), build_resources({"cpu": "1"}, {"cpu": "8"})),
        (
            {"max": {"ephemeral-storage": "8Gi"}},
            None,
            build_resources({"ephemeral-storage": "8Gi"}, {"ephemeral-storage": "8Gi"}),
        ),
        # never below the container's own request, and spelled as that request
        (
            {"default": {"cpu": "1"}},
            build_resources({"cpu": "1500m"}),
            build_resources({"cpu": "1500m"}, {"cpu": "1500m"}),
        ),
        ({"default": {"cpu": "1"}}, build_resources({"cpu": "1000m"}), build_resources({"cpu": "1000m"}, {"cpu": "1"})),
        ({"max": {"cpu": "8"}}, build_resources({"cpu": "9"}), build_resources({"cpu": "9"}, {"cpu": "9"})),
        # an absent request is the user's limit, spelled as that limit
        (
            {"default_request": {"cpu": "100m"}},
            build_resources(limits={"cpu": "1000m"}),
            build_resources({"cpu": "1000m"}, {"cpu": "1000m"}),
        ),
        ({"max": {"cpu": "8"}}, build_resources(limits={"cpu": 2}), build_resources({"cpu": "2"}, {"cpu": 2})),
        # resources without a rule are left to the defaults of the API server
        ({"max": {"cpu": "8"}}, build_resources({"cpu": "1"}, BOTH), build_resources({"cpu": "1"}, BOTH)),
        # request and limit both absent: defaultRequest, then the default limit, then min, as in a LimitRange
        ({"default_request": {"cpu": "100m"}}, None, build_resources({"cpu": "100m"})),
        (
            {"default_request": {"cpu": "100m"}, "default": {"cpu": "1"}},
            None,
            build_resources({"cpu": "100m"}, {"cpu": "1"}),
        ),
        (
            {"default_request": {"cpu": "0.1"}, "default": {"cpu": "100m"}},
            None,
            build_resources({"cpu": "0.1"}, {"cpu": "100m"}),
        ),
        ({"default": {"cpu": "1"}, "min": {"cpu": "50m"}}, None, build_resources({"cpu": "1"}, {"cpu": "1"})),
        ({"min": {"cpu": "50m"}}, None, build_resources({"cpu": "50m"})),
        ({"min": {"cpu": "50m"}, "max": {"cpu": "8"}}, None, build_resources({"cpu": "8"}, {"cpu": "8"})),
        ({"min": {"cpu": "8"}, "max": {"cpu": "8"}}, None, build_resources({"cpu": "8"}, {"cpu": "8"})),
        ({"max": {"cpu": "8"}}, None, build_resources({"cpu": "8"}, {"cpu": "8"})),
        # a min of 0 sets nothing
        ({"min": {"cpu": "0"}}, None, None),
        ({"min": {"cpu": "0m"}, "max": {"cpu": "8"}}, None, build_resources({"cpu": "8"}, {"cpu": "8"})),
        # null is no amount
        ({"min": {"cpu": "50m"}}, build_resources({"cpu": None}), build_resources({"cpu": "50m"})),
        (
            {"default": {"cpu": "1"}},
            build_resources({"cpu": None}, {"cpu": None}),
            build_resources({"cpu": "1"}, {"cpu": "1"}),
        ),
        # amounts of the container are kept
        (
            {"default": {"cpu": "1"}},
            build_resources({"cpu": "2"}, {"cpu": "3"}),
            build_resources({"cpu": "2"}, {"cpu": "3"}),
        ),
        ({"default": {"cpu": "1"}}, build_resources(limits={"cpu": "0"}), build_resources({"cpu": "0"}, {"cpu": "0"})),
        # Deny does not change amounts that are outside
        (
            {"max": {"cpu": "8"}},
            build_resources({"cpu": "1"}, {"cpu": "9"}),
            build_resources({"cpu": "1"}, {"cpu": "9"}),
        ),
        # extended resources and huge pages have equal request and limit: one default sets both, min and max set none
        ({"default": {"v.io/gpu": "2"}}, None, build_resources({"v.io/gpu": "2"}, {"v.io/gpu": "2"})),
        ({"default_request": {"v.io/gpu": "2"}}, None, build_resources({"v.io/gpu": "2"}, {"v.io/gpu": "2"})),
        (
            {"default_request": {"v.io/gpu": "2"}},
            build_resources({"v.io/gpu": "1"}),
            build_resources({"v.io/gpu": "1"}, {"v.io/gpu": "1"}),
        ),
        (
            {"default": {"v.io/gpu": "2"}},
            build_resources(limits={"v.io/gpu": "1"}),
            build_resources({"v.io/gpu": "1"}, {"v.io/gpu": "1"}),
        ),
        ({"min": {"v.io/gpu": "1"}, "max": {"v.io/gpu": "2"}}, None, None),
        (
            {"default": {"hugepages-2Mi": "4Mi", "memory": "1Gi"}},
            None,
            build_resources({"hugepages-2Mi": "4Mi", "memory": "1Gi"}, {"hugepages-2Mi": "4Mi", "memory": "1Gi"}),
        ),
        # Kubernetes allows huge pages only with cpu or memory
        ({"default": {"hugepages-2Mi": "4Mi"}}, None, None),
        (
            {"default": {"hugepages-2Mi": "4Mi"}},
            build_resources(limits={"hugepages-2Mi": "2Mi"}),
            build_resources({"hugepages-2Mi": "2Mi"}, {"hugepages-2Mi": "2Mi"}),
        ),
        (
            {"default": {"hugepages-2Mi": "4Mi"}},
            build_resources({"cpu": "1"}),
            build_resources({"cpu": "1", "hugepages-2Mi": "4Mi"}, {"hugepages-2Mi": "4Mi"}),
        ),
        # resources of a Kubernetes domain may be overcommitted, and have no implied defaults
        (
            {"default_request": {"x.kubernetes.io/a": "1"}, "default": {"x.kubernetes.io/a": "2"}},
            None,
            build_resources({"x.kubernetes.io/a": "1"}, {"x.kubernetes.io/a": "2"}),
        ),
        ({"max": {"x.kubernetes.io/a": "2"}}, None, None),
        # a limit as a multiple of the request, at most max, rounded down; none of a request of 0 or without one
        (
            {"defaultLimitRatio": {"memory": "2"}},
            build_resources({"memory": "64Mi"}),
            build_resources({"memory": "64Mi"}, {"memory": "128Mi"}),
        ),
        (
            {"defaultLimitRatio": {"cpu": 3}, "max": {"cpu": "1"}},
            build_resources({"cpu": "500m"}),
            build_resources({"cpu": "500m"}, {"cpu": "1"}),
        ),
        (
            {"defaultLimitRatio": {"cpu": "1.5"}},
            build_resources({"cpu": "1m"}),
            build_resources({"cpu": "1m"}, {"cpu": "1m"}),
        ),
        ({"defaultLimitRatio": {"cpu": 2}}, build_resources({"cpu": "0"}), build_resources({"cpu": "0"})),
        ({"defaultLimitRatio": {"cpu": 2}}, None, None),
        # a default within maxLimitRequestRatio
        (
            {"default": {"cpu": "4"}, "maxLimitRequestRatio": {"cpu": 2}},
            build_resources({"cpu": "500m"}),
            build_resources({"cpu": "500m"}, {"cpu": "1"}),
        ),
        # a request as a share of the limit that it equals, at least min, rounded up
        (
            {"defaultRequestRatio": {"cpu": 0.5}},
            build_resources(limits={"cpu": "1"}),
            build_resources({"cpu": "500m"}, {"cpu": "1"}),
        ),
        (
            {"defaultRequestRatio": {"memory": 0.5}},
            build_resources(limits={"memory": "3"}),
            build_resources({"memory": "2"}, {"memory": "3"}),
        ),
        (
            {"defaultRequestRatio": {"cpu": 0.5}, "min": {"cpu": "800m"}},
            build_resources({"cpu": "1"}, {"cpu": "1"}),
            build_resources({"cpu": "800m"}, {"cpu": "1"}),
        ),
        (
            {"defaultRequestRatio": {"cpu": 0.5}},
            build_resources({"cpu": "2"}, {"cpu": "3"}),
            build_resources({"cpu": "2"}, {"cpu": "3"}),
        ),
        (
            {"defaultRequestRatio": {"cpu": 0.5}},
            build_resources(limits={"cpu": "0"}),
            build_resources({"cpu": "0"}, {"cpu": "0"}),
        ),
        # a share of the default limit only where no request is written, and none is defaulted
        (QUARTER, None, build_resources({"cpu": "250m"}, {"cpu": "1"})),
        ({**QUARTER, "default_request": {"cpu": "1"}}, None, build_resources({"cpu": "1"}, {"cpu": "1"})),
        (QUARTER, build_resources({"cpu": "1"}), build_resources({"cpu": "1"}, {"cpu": "1"})),
        (QUARTER, build_resources({"cpu": "999m"}), build_resources({"cpu": "999m"}, {"cpu": "1"})),
        (QUARTER, build_resources({"cpu": "2"}), build_resources({"cpu": "2"}, {"cpu": "2"})),
        ({**QUARTER, "max": {"cpu": "1"}}, build_resources({"cpu": "2"}), build_resources({"cpu": "2"}, {"cpu": "2"})),
        (
            {**QUARTER, "max": {"cpu": "8"}},
            build_resources({"cpu": "1m"}),
            build_resources({"cpu": "1m"}, {"cpu": "1"}),
        ),
        (
            {"default": {"memory": "256Mi"}, "defaultRequestRatio": {"memory": 0.5}},
            build_resources({"memory": "1Gi"}),
            build_resources({"memory": "1Gi"}, {"memory": "1Gi"}),
        ),
        (
            {"defaultLimitRatio": {"cpu": 1}, "defaultRequestRatio": {"cpu": 0.5}},
            build_resources({"cpu": "1"}),
            build_resources({"cpu": "1"}, {"cpu": "1"}),
        ),
    ],
)
def test_container_gets_defaults_of_the_range(range_rules: Json, before: Json | None, after: Json | None) -> None:
    assert rewrite_resources(before, build_container_range(**range_rules)) == after


@pytest.mark.parametrize(
    ("range_rules", "before", "after"),
    [
        (
            {"max": {"cpu": "8"}},
            build_resources({"cpu": "9"}, {"cpu": "10"}),
            build_resources({"cpu": "8"}, {"cpu": "8"}),
        ),
        ({"max": {"cpu": "8"}}, build_resources({"cpu": "1"}, {"cpu": 9}), build_resources({"cpu": "1"}, {"cpu": "8"})),
        ({"max": {"cpu": "8"}}, build_resources(limits={"cpu": "9"}), build_resources({"cpu": "8"}, {"cpu": "8"})),
        ({"max": {"cpu": "8"}}, build_resources({"cpu": "9"}), build_resources({"cpu": "8"}, {"cpu": "8"})),
        ({"min": {"cpu": "100m"}}, build_resources({"cpu": "10m"}), build_resources({"cpu": "100m"})),
        (
            {"min": {"cpu": "100m"}},
            build_resources({"cpu": "10m"}, {"cpu": "20m"}),
            build_resources({"cpu": "100m"}, {"cpu": "100m"}),
        ),
        (
            {"min": {"cpu": "100m"}},
            build_resources({"cpu": "10m"}, {"cpu": "1"}),
            build_resources({"cpu": "100m"}, {"cpu": "1"}),
        ),
        (
            {"min": {"cpu": "100m"}},
            build_resources({"cpu": "0.1"}, {"cpu": 1}),
            build_resources({"cpu": "0.1"}, {"cpu": 1}),
        ),
        (
            {"min": {"cpu": "100m"}, "default": {"cpu": "100m"}},
            build_resources({"cpu": "0"}),
            build_resources({"cpu": "100m"}, {"cpu": "100m"}),
        ),
        (
            {"max": {"v.io/gpu": "2"}},
            build_resources({"v.io/gpu": 4}, {"v.io/gpu": 4}),
            build_resources({"v.io/gpu": "2"}, {"v.io/gpu": "2"}),
        ),
        (
            {"max": {"v.io/gpu": "2"}},
            build_resources(limits={"v.io/gpu": 4}),
            build_resources({"v.io/gpu": "2"}, {"v.io/gpu": "2"}),
        ),
        # a limit of 0 is no limit and above any max; the API server sets the absent request to 0
        (
            {"max": {"cpu": "8"}},
            build_resources({"cpu": "0"}, {"cpu": "0"}),
            build_resources({"cpu": "0"}, {"cpu": "8"}),
        ),
        ({"max": {"cpu": "8"}}, build_resources(limits={"cpu": "0"}), build_resources({"cpu": "0"}, {"cpu": "8"})),
        (
            {"min": {"memory": "1Gi"}, "max": {"memory": "2Gi"}},
            build_resources(limits={"memory": "0"}),
            build_resources({"memory": "1Gi"}, {"memory": "2Gi"}),
        ),
        (
            {"max": {"v.io/gpu": "2"}},
            build_resources(limits={"v.io/gpu": "0"}),
            build_resources({"v.io/gpu": "0"}, {"v.io/gpu": "0"}),
        ),
        # a share of the limit only where request and limit were equal before
        (
            {**QUARTER, "max": {"cpu": "8"}},
            build_resources({"cpu": "9"}, {"cpu": "10"}),
            build_resources({"cpu": "8"}, {"cpu": "8"}),
        ),
        (
            {**QUARTER, "max": {"cpu": "8"}},
            build_resources({"cpu": "10"}, {"cpu": "10"}),
            build_resources({"cpu": "2"}, {"cpu": "8"}),
        ),
        ({**QUARTER, "max": {"cpu": "8"}}, build_resources({"cpu": "10"}), build_resources({"cpu": "8"}, {"cpu": "8"})),
        (
            {**QUARTER, "min": {"cpu": "1"}},
            build_resources({"cpu": "1m"}, {"cpu": "2m"}),
            build_resources({"cpu": "1"}, {"cpu": "1"}),
        ),
    ],
)
def test_clamp_writes_the_bound_as_the_policy_spells_it(range_rules: Json, before: Json, after: Json) -> None:
    assert rewrite_resources(before, build_container_range("Clamp", **range_rules)) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (build_resources({"cpu": "1"}, {"cpu": "1"}), build_resources({"cpu": "1"}, {"cpu": "1"})),
        (build_resources({"cpu": "1"}), build_resources({"cpu": "1"}, {"cpu": "1"})),
        (build_resources(limits={"cpu": "1"}), build_resources({"cpu": "1"}, {"cpu": "1"})),
        # a container that another webhook has added meanwhile
        (None, build_resources({"cpu": "250m"}, {"cpu": "1"})),
    ],
)
def test_a_later_rewrite_takes_no_request_for_an_absent_one(before: Json | None, after: Json) -> None:
    plan = build_container_range(**QUARTER).later
    assert rewrite_resources(before, plan) == after
    assert list_violation_texts(spec_of(after), plan) == []


def test_a_plan_without_shares_is_the_same_for_later_rewrites() -> None:
    plan = build_container_range(default={"cpu": "1"}, maxLimitRequestRatio={"cpu": 2})
    assert plan.later is plan


def test_containers_and_init_containers_get_defaults_unless_ignored() -> None:
    plan = build_container_range(default={"cpu": "1"}, ignore=["istio-proxy", "vault-agent*"])
    spec = {
        "containers": [{"name": "main"}, {"name": "istio-proxy"}, {"name": "vault-agent-init"}, {"name": "vault"}],
        "initContainers": [{"name": "wait"}, {"name": "side", "restartPolicy": "Always"}, {"name": "istio-proxy"}],
    }
    found = rewrite_spec(spec, plan)
    with_resources = [
        box["name"] for side in ("containers", "initContainers") for box in found[side] if "resources" in box
    ]
    assert with_resources == ["main", "vault", "wait", "side"]


@pytest.mark.parametrize(
    ("resources", "paths"),
    [
        ("absent", ["/spec/containers/0/resources"]),
        (None, ["/spec/containers/0/resources"]),
        ({}, ["/spec/containers/0/resources/limits", "/spec/containers/0/resources/requests"]),
        (
            {"requests": None, "limits": {}, "claims": [{"name": "gpu"}]},
            [
                "/spec/containers/0/resources/limits/cpu",
                "/spec/containers/0/resources/limits/v.io~1g~0pu",
                "/spec/containers/0/resources/requests",
            ],
        ),
        (
            {"requests": {"memory": "1Gi"}, "limits": None},
            [
                "/spec/containers/0/resources/limits",
                "/spec/containers/0/resources/requests/cpu",
                "/spec/containers/0/resources/requests/v.io~1g~0pu",
            ],
        ),
    ],
)
def test_patch_adds_absent_maps_as_a_whole_and_keys_to_others(resources: Any, paths: list[str]) -> None:
    plan = build_container_range(default={"cpu": "1", "v.io/g~pu": "2"}, default_request={"cpu": "100m"})
    spec = {"containers": [{"name": "main"} if resources == "absent" else {"name": "main", "resources": resources}]}
    assert [operation.path for operation in build_operations(decode_pod(spec), plan)] == paths
    found = rewrite_spec(spec, plan)["containers"][0]["resources"]
    assert found["limits"] == {"cpu": "1", "v.io/g~pu": "2"}
    own = (resources.get("requests") if isinstance(resources, dict) else None) or {}
    assert found["requests"] == {"cpu": "100m", "v.io/g~pu": "2", **own}
    assert found.get("claims") == (resources.get("claims") if isinstance(resources, dict) else None)


def test_patch_replaces_present_amounts_and_adds_absent_ones() -> None:
    plan = build_container_range("Clamp", max={"cpu": "8"}, default={"memory": "1Gi"})
    found = build_operations(decode_pod(spec_of(build_resources({"cpu": "1"}, {"cpu": "9"}))), plan)
    assert [(operation.op, operation.path.removeprefix("/spec/containers/0/resources/")) for operation in found] == [
        ("add", "limits/memory"),
        ("replace", "limits/cpu"),
        ("add", "requests/memory"),
    ]


def test_two_containers_never_share_a_map_of_the_patch() -> None:
    plan = build_container_range(default={"cpu": "1"})
    first, second = build_operations(decode_pod({"containers": [{"name": "a"}, {"name": "b"}]}), plan)
    assert first.value == second.value
    assert first.value is not second.value
    assert len({id(amounts) for operation in (first, second) for amounts in operation.value.values()}) == 4


WHOLE = {"cpu": "4", "memory": "4Gi"}


@pytest.mark.parametrize(
    ("pod_level", "before", "after"),
    [
        # amounts limited at Pod level need no default; those that are only requested do
        (build_resources(limits=WHOLE), None, None),
        (build_resources(WHOLE, WHOLE), build_resources({"cpu": "1"}), build_resources({"cpu": "1"})),
        (build_resources(WHOLE), build_resources({"cpu": "1"}), build_resources({"cpu": "1"}, {"cpu": "2"})),
        (build_resources(WHOLE), None, build_resources({"cpu": "0"}, {"cpu": "2"})),
        (build_resources(limits={"memory": "4Gi"}), None, build_resources({"cpu": "2"}, {"cpu": "2"})),
        (build_resources(limits={"cpu": "0"}), None, None),
        # amounts are lowered and never raised
        (
            build_resources(WHOLE),
            build_resources({"cpu": "1m"}, {"cpu": "2m"}),
            build_resources({"cpu": "1m"}, {"cpu": "2m"}),
        ),
        (
            build_resources(WHOLE),
            build_resources({"cpu": "3"}, {"cpu": "3"}),
            build_resources({"cpu": "2"}, {"cpu": "2"}),
        ),
        (
            build_resources(limits=WHOLE),
            build_resources(limits={"cpu": "0"}),
            build_resources({"cpu": "0"}, {"cpu": "0"}),
        ),
        (build_resources({"cpu": None}, {"cpu": None}), None, build_resources({"cpu": "2"}, {"cpu": "2"})),
        (
            build_resources(WHOLE),
            build_resources({"cpu": "0"}, {"cpu": "0"}),
            build_resources({"cpu": "0"}, {"cpu": "2"}),
        ),
    ],
)
def test_containers_of_a_pod_with_pod_level_resources_get_defaults_and_maximums(
    pod_level: Json, before: Json | None, after: Json | None
) -> None:
    plan = build_container_range("Clamp", min={"cpu": "500m"}, max={"cpu": "2"})
    found = rewrite_spec({**spec_of(before), "resources": pod_level}, plan)
    assert found["containers"][0]["resources"] == after
    assert found["resources"] == pod_level


def test_request_below_min_is_outside_under_pod_level_resources() -> None:
    plan = build_container_range("Clamp", min={"cpu": "500m"})
    spec = {**spec_of(build_resources({"cpu": "1m"}, {"cpu": "0"})), "resources": build_resources(WHOLE, WHOLE)}
    assert list_violation_texts(spec, plan) == [
        "ResourcesOutside: container main: requests[cpu] is '1m', at least '500m' is allowed: ask for more"
    ]


@pytest.mark.parametrize(
    ("rules", "limits"),
    [
        (
            {"container": {"max": {"cpu": "8"}}},
            ["limits[cpu] is '0' (no limit), at most '8' is allowed: write a limit"],
        ),
        ({"pod": {"max": {"cpu": "4"}}}, ["limits[cpu] is '0' (no limit), at most '4' is allowed: write a limit"]),
        (
            {"container": {"max": {"cpu": "8"}}, "pod": {"max": {"cpu": "4"}}},
            ["limits[cpu] is '0' (no limit), at most '4' is allowed: write a limit"],
        ),
        ({"container": {"default": {"cpu": "8"}}}, []),
        ({"container": {"max": {"v.io/cpu": "8"}}}, []),
    ],
)
def test_pod_level_limit_of_0_is_above_any_max(rules: Json, limits: list[str]) -> None:
    plan = plan_of({**rules, "whenOutside": "Clamp"})
    spec = {**spec_of(), "resources": build_resources(limits={"cpu": "0", "v.io/cpu": "0"})}
    assert build_operations(decode_pod(spec), plan) == []
    assert list_violation_texts(spec, plan) == [f"ResourcesOutside: the Pod as a whole: {text}" for text in limits]


@pytest.mark.parametrize(
    ("when_outside", "resources", "text"),
    [
        (
            "Deny",
            build_resources({"cpu": "1"}, {"cpu": "9"}),
            "ResourcesOutside: container main: limits[cpu] is '9', at most '8' is allowed: ask for less",
        ),
        (
            "Deny",
            build_resources({"cpu": "9"}, {"cpu": "900"}),
            (
                "ResourcesOutside: container main: limits[cpu] is '900' and requests[cpu] is '9',"
                " at most '8' is allowed: ask for less"
            ),
        ),
        (
            "Deny",
            build_resources({"cpu": "1m"}, {"cpu": 1}),
            "ResourcesOutside: container main: requests[cpu] is '1m', at least '100m' is allowed: ask for more",
        ),
        (
            "Deny",
            build_resources({"cpu": "1"}, {"cpu": "0"}),
            "ResourcesOutside: container main: limits[cpu] is '0' (no limit), at most '8' is allowed: write a limit",
        ),
        (
            "Clamp",
            build_resources({"cpu": "1"}, {"cpu": "9"}),
            "ResourcesUnfulfilled: container main: limits[cpu] is '9', expected at most '8'",
        ),
        (
            "Clamp",
            build_resources(limits={"cpu": "0"}),
            "ResourcesUnfulfilled: container main: limits[cpu] is '0' (no limit), expected at most '8'",
        ),
        (
            "Clamp",
            build_resources({"cpu": "1m"}, {"cpu": "1"}),
            "ResourcesUnfulfilled: container main: requests[cpu] is '1m', expected at least '100m'",
        ),
        (
            "Deny",
            build_resources({"cpu": "1"}),
            "ResourcesUnfulfilled: container main: limits[cpu] is missing, expected '8'",
        ),
        (
            "Deny",
            None,
            "ResourcesUnfulfilled: container main: limits[cpu] is missing, expected '8'",
        ),
        (
            "Deny",
            build_resources(limits={"cpu": "9"}),
            "ResourcesOutside: container main: limits[cpu] is '9', at most '8' is allowed: ask for less",
        ),
        (
            "Deny",
            build_resources({"cpu": "0"}, {"cpu": "10m"}),
            (
                "ResourcesOutside: container main: limits[cpu] is '10m' and requests[cpu] is '0',"
                " at least '100m' is allowed: ask for more"
            ),
        ),
    ],
)
def test_finding_names_container_value_and_expectation(when_outside: str, resources: Json | None, text: str) -> None:
    assert list_violation_texts(
        spec_of(resources), build_container_range(when_outside, min={"cpu": "100m"}, max={"cpu": "8"})
    ) == [text]


def test_a_finding_names_the_field() -> None:
    plan = build_container_range(max={"cpu": "8"})
    spec = {
        "containers": [],
        "initContainers": [{"name": "wait", "resources": build_resources({"cpu": "9"}, {"cpu": "9"})}],
    }
    assert find_violations(decode_pod(spec), plan) == [
        Violation(
            OUTSIDE,
            "spec.initContainers[0].resources.limits[cpu]",
            "max[cpu] of spec.initContainers[0].resources",
            "init container wait: limits[cpu] is '9' and requests[cpu] is '9', at most '8' is allowed: ask for less",
        )
    ]


def test_amounts_that_are_absent_and_have_no_default_are_not_outside() -> None:
    plan = plan_of({"container": {"min": {"v.io/gpu": "1"}, "max": {"v.io/gpu": "2"}}})
    assert list_violation_texts(spec_of(None), plan) == []


def test_rewritten_pod_has_no_findings_before_and_after_defaulting() -> None:
    plan = build_container_range(default={"cpu": "1"})
    assert list_violation_texts(spec_of(build_resources(limits={"cpu": "1"})), plan) == []
    assert list_violation_texts(spec_of(build_resources({"cpu": "1"}, {"cpu": "1"})), plan) == [], (
        "as the API server stores it"
    )


def test_huge_pages_of_the_pod_level_prevent_container_defaults() -> None:
    plan = build_container_range(default={"hugepages-2Mi": "4Mi"})
    spec = {**spec_of(build_resources({"cpu": "1"})), "resources": build_resources({"hugepages-2Mi": "8Mi"})}
    assert build_operations(decode_pod(spec), plan) == []


def test_findings_are_bounded_in_number_and_length() -> None:
    plan = build_container_range(max={"cpu": "8"}, default={"memory": "1Gi"})
    box = {"name": "n" * 100_000, "resources": build_resources({"cpu": "9"}, {"cpu": "9." + "0" * 60})}
    spec = {"containers": [box] * 200, "initContainers": [box] * 13}
    found = list_violation_texts(spec, plan)
    assert len(found) == 4
    assert [line.partition(": limits")[0][-12:] for line in found] == ["and 199 more"] * 2 + [" and 12 more"] * 2
    assert max(map(len, found)) < 400


@pytest.mark.parametrize(
    ("resources", "pattern"),
    [
        (
            build_resources({"cpu": "much"}),
            r"^container main: resources\.requests\[cpu\]: 'much': not a Kubernetes quantity",
        ),
        (
            build_resources(limits={"memory": "-1"}),
            r"^container main: resources\.limits\[memory\]: '-1': a quantity must not be negative",
        ),
        (
            build_resources(limits={"memory": "x" * 99}),
            r"^container main: resources\.limits\[memory\]: 'x{40}\.\.\.': not a Kubernetes",
        ),
    ],
)
def test_an_unreadable_amount_names_the_container_the_field_and_the_value(resources: Json, pattern: str) -> None:
    plan = build_container_range(max={"cpu": "8"})
    for function in (build_operations, find_violations, find_qos_change):
        with pytest.raises(ValueError, match=pattern):
            function(decode_pod(spec_of(resources)), plan)


def test_unreadable_amount_at_pod_level_names_the_field() -> None:
    with pytest.raises(ValueError, match=r"^the Pod as a whole: cpu: 'much': not a Kubernetes quantity"):
        find_violations(
            decode_pod({**spec_of(), "resources": build_resources(limits={"cpu": "much"})}),
            build_container_range(max={"cpu": "8"}),
        )


def test_spelling_of_amounts_does_not_depend_on_earlier_calls() -> None:
    plan = build_container_range(default={"cpu": "1"})
    assert rewrite_resources(build_resources({"cpu": 2.0}), plan) == build_resources({"cpu": 2.0}, {"cpu": "2"})
    assert rewrite_resources(build_resources({"cpu": 2}), plan) == build_resources({"cpu": 2}, {"cpu": "2"})
    assert rewrite_resources(build_resources({"cpu": 2.5}), plan) == build_resources({"cpu": 2.5}, {"cpu": "2.5"})


@pytest.mark.parametrize(
    ("number", "text"),
    [(1e30, "1e+30"), (1e100, "1e+100"), (1e308, "1e+308"), (10**30, "1" + "0" * 30), ("9" * 82, "9" * 82)],
)
def test_numbers_of_any_size_are_written_exactly_and_decoded_again(number: Any, text: str) -> None:
    plan = build_container_range(default={"cpu": "1"}, max={"memory": "8Gi"})
    after = rewrite_resources(build_resources(limits={"memory": number}), plan)
    assert after is not None
    assert after["requests"]["memory"] == text
    (message,) = list_violation_texts(spec_of(after), plan)
    assert message.startswith("ResourcesOutside: container main: limits[memory] is '")
    assert message.endswith("', at most '8Gi' is allowed: ask for less")
    assert len(message) < 300


def test_huge_amount_is_abbreviated_in_the_finding() -> None:
    plan = build_pod_range(max={"memory": "8Gi", "v.io/gpu": 1})
    spec = spec_of(build_resources({"memory": "10e9999999", "v.io/gpu": "1e900"}))
    message = "; ".join(list_violation_texts(spec, plan))
    assert "requests[memory] is '1.00e1000'" in message
    assert "requests[v.io/gpu] is '1.00e900'" in message
    assert len(message) < 400


def build_pod_range(**rules: Json) -> RangePlan:
    return plan_of({"pod": rules, "container": {"ignore": ["istio-proxy"]}, "whenOutside": "Clamp"})


def build_containers(*amounts: tuple[str, str]) -> list[Json]:
    return [
        {"name": f"c{index}", "resources": build_resources({"memory": request}, {"memory": limit})}
        for index, (request, limit) in enumerate(amounts)
    ]


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"containers": build_containers(("1Gi", "2Gi"), ("1Gi", "2Gi"))}, []),
        ({"containers": build_containers(("1Gi", "2Gi"), ("1Gi", "3Gi"))}, ["limits[memory] is '5Gi', at most '4Gi'"]),
        (
            {"containers": build_containers(("3Gi", "3Gi")), "initContainers": build_containers(("5Gi", "5Gi"))},
            ["limits[memory] is '5Gi' and requests[memory] is '5Gi', at most '4Gi'"],
        ),
        ({"containers": build_containers(("1Mi", "1Gi"))}, ["requests[memory] is '1Mi', at least '64Mi'"]),
        (
            {
                "containers": build_containers(("1Gi", "2Gi")),
                "resources": build_resources({"memory": "1Gi"}, {"memory": "4Gi"}),
            },
            [],
        ),
        (
            {
                "containers": build_containers(("1Gi", "2Gi")),
                "resources": build_resources({"memory": "1Gi"}, {"memory": "8Gi"}),
            },
            ["limits[memory] is '8Gi', at most '4Gi'"],
        ),
        (
            {"containers": build_containers(("1Gi", "4Gi")), "overhead": {"memory": "1000"}},
            ["limits[memory] is '4294968296', at most '4Gi'"],
        ),
        ({"containers": [{"name": "a", "resources": build_resources({"memory": "1Gi"})}]}, []),
        (
            {"containers": [{"name": "istio-proxy", "resources": build_resources({"memory": "5Gi"})}]},
            ["requests[memory] is '5Gi', at most '4Gi'"],
        ),
        (
            {"containers": [{"name": "a", "resources": build_resources({"memory": "4294967296.5"})}]},
            ["requests[memory] is '4294967296500000000n', at most '4Gi'"],
        ),
    ],
)
def test_pod_total_is_the_schedulers_sum_and_is_never_clamped(spec: Json, found: list[str]) -> None:
    plan = build_pod_range(min={"memory": "64Mi"}, max={"memory": "4Gi"})
    assert build_operations(decode_pod(spec), plan) == []
    remedies = {"ask for less", "ask for more"}
    lines = [line.rpartition(" is allowed: ") for line in list_violation_texts(spec, plan)]
    assert [start for start, _, _ in lines] == [f"ResourcesOutside: the Pod as a whole: {line}" for line in found]
    assert {remedy for _, _, remedy in lines} <= remedies


def test_finding_on_a_total_names_the_containers_or_the_pod_level_field() -> None:
    plan = build_pod_range(max={"memory": "1Gi"})
    spec = {"containers": build_containers(("2Gi", "2Gi"))}
    assert [violation.field for violation in find_violations(decode_pod(spec), plan)] == [
        "spec.containers[*].resources.limits[memory]"
    ]
    own = {**spec, "resources": build_resources(limits={"memory": "2Gi"})}
    assert [violation.field for violation in find_violations(decode_pod(own), plan)] == [
        "spec.resources.limits[memory]"
    ]


def list_resize_violations(before: Json, after: Json, plan: RangePlan) -> list[str]:
    return [violation.text for violation in find_violations(decode_pod(after), plan, decode_pod(before))]


def test_resize_has_findings_only_on_amounts_newly_outside() -> None:
    plan = build_container_range(max={"cpu": "8"})
    within, outside, farther_outside = (
        spec_of(build_resources({"cpu": "1"}, {"cpu": limit})) for limit in ("8", "9", "10")
    )
    assert list_resize_violations(outside, outside, plan) == []
    assert list_resize_violations(farther_outside, outside, plan) == [], "the amount is lowered"
    assert list_resize_violations(within, outside, plan) == [
        "container main: limits[cpu] is '9', at most '8' is allowed: ask for less",
    ]
    assert len(list_resize_violations(outside, farther_outside, plan)) == 1, (
        "an amount outside may not be raised further"
    )
    assert (
        len(list_resize_violations(farther_outside, spec_of(build_resources({"cpu": "1"}, {"cpu": "0"})), plan)) == 1
    ), "no limit is above any limit"


def test_amount_outside_before_a_resize_excuses_its_own_container_only() -> None:
    plan = build_container_range(max={"cpu": "8"})
    high, low = build_resources({"cpu": "1"}, {"cpu": "9"}), build_resources({"cpu": "1"}, {"cpu": "1"})

    def pod(first: Json, second: Json) -> Json:
        return {"containers": [{"name": "a", "resources": first}, {"name": "b", "resources": second}]}

    assert [text[:11] for text in list_resize_violations(pod(high, low), pod(high, high), plan)] == ["container b"]
    assert list_resize_violations(pod(high, high), pod(low, high), plan) == []


def test_resize_has_a_finding_on_a_growing_total() -> None:
    plan = build_pod_range(max={"memory": "1Gi"})
    small, large, larger = ({"containers": build_containers((amount, amount))} for amount in ("1Gi", "2Gi", "3Gi"))
    assert list_resize_violations(large, large, plan) == []
    assert list_resize_violations(larger, large, plan) == []
    assert len(list_resize_violations(small, large, plan)) == len(list_resize_violations(large, larger, plan)) == 1


@pytest.mark.parametrize(
    ("spec", "qos"),
    [
        ({}, "BestEffort"),
        (spec_of(), "BestEffort"),
        (spec_of(build_resources({"cpu": "0"}, {"memory": "0"})), "BestEffort"),
        (spec_of(build_resources({"ephemeral-storage": "1Gi"})), "BestEffort"),
        (spec_of(build_resources({"cpu": "1"})), "Burstable"),
        (spec_of(build_resources(limits=BOTH)), "Guaranteed"),
        (spec_of(build_resources({"cpu": "1000m"}, BOTH)), "Guaranteed"),
        (spec_of(build_resources({"cpu": "0"}, BOTH)), "Burstable"),
        (spec_of(build_resources(BOTH)), "Burstable"),
        ({**spec_of(build_resources(limits=BOTH)), "initContainers": [{"name": "wait"}]}, "Burstable"),
        ({**spec_of(build_resources(limits=BOTH)), "resources": build_resources({"cpu": "1"})}, "Burstable"),
        ({**spec_of(), "resources": build_resources(limits=BOTH)}, "Guaranteed"),
        ({**spec_of(build_resources({"cpu": "500m"})), "resources": build_resources(limits=BOTH)}, "Burstable"),
        ({**spec_of(build_resources({"cpu": "0"})), "resources": build_resources(limits=BOTH)}, "Burstable"),
        ({**spec_of(build_resources(limits=BOTH)), "resources": {}}, "BestEffort"),
    ],
)
def test_qos_class_equals_that_of_kubernetes(spec: Json, qos: str) -> None:
    assert find_qos_class(decode_pod(spec)) == qos


@pytest.mark.parametrize(
    ("range_rules", "resources", "change"),
    [
        ({"default": BOTH}, None, ("BestEffort", "Guaranteed")),
        ({"default_request": {"cpu": "100m"}}, None, ("BestEffort", "Burstable")),
        ({"default": BOTH}, build_resources(limits={"cpu": "1"}), ("Burstable", "Guaranteed")),
        ({"default": BOTH}, build_resources({"cpu": "500m"}), None),
        ({"default": {"ephemeral-storage": "1Gi"}}, None, None),
        ({"default": BOTH, "ignore": ["main"]}, None, None),
        ({"max": {"cpu": "8"}, "min": {"cpu": "1"}}, build_resources(limits={**BOTH, "cpu": "9"}), None),
    ],
)
def test_a_change_of_qos_class_is_reported(
    range_rules: Json, resources: Json | None, change: tuple[str, str] | None
) -> None:
    assert find_qos_change(decode_pod(spec_of(resources)), build_container_range("Clamp", **range_rules)) == change


def test_pod_level_resources_alone_decide_the_qos_class() -> None:
    spec = {**spec_of(), "resources": build_resources(limits={"memory": "1Gi"})}
    assert find_qos_change(decode_pod(spec), build_container_range(default=BOTH)) is None


def test_empty_stanza_has_no_effect() -> None:
    plan = plan_of({})
    assert build_operations(decode_pod(spec_of()), plan) == []
    assert find_violations(decode_pod(spec_of(build_resources(limits={"cpu": "0"}))), plan) == []
    assert find_qos_change(decode_pod(spec_of()), plan) is None


@pytest.mark.parametrize(("word", "code"), [("remove", UNFULFILLED), ("forbid", OUTSIDE)])
def test_update_that_adds_a_limit_is_a_violation_and_one_that_changes_it_is_not(word: str, code: Code) -> None:
    plan = plan_of({"container": {word: ["limits.cpu"]}})
    without, with_one, with_two = (
        decode_pod(spec_of(build_resources({"cpu": "1"}, {"cpu": limit} if limit else {}))) for limit in ("", "1", "2")
    )
    assert [violation.code for violation in find_violations(with_one, plan, without)] == [code]
    assert find_violations(with_two, plan, with_one) == []
    assert find_violations(without, plan, with_one) == []


def test_removal_makes_a_guaranteed_pod_burstable() -> None:
    pod = decode_pod(spec_of(build_resources(BOTH, BOTH)))
    plan = plan_of({"container": {"remove": ["limits.cpu"]}})
    assert find_qos_change(pod, plan) == ("Guaranteed", "Burstable")


def test_sidecars_have_the_amounts_of_containers() -> None:
    plan = plan_of({"container": {"default": {"cpu": "1"}}, "initContainer": {"default": {"cpu": "4"}}})
    starting = [{"name": "a"}, {"name": "b", "restartPolicy": "Always"}, {"name": "c", "restartPolicy": None}]
    after = rewrite_spec({**spec_of(), "initContainers": starting}, plan)
    assert [container["resources"]["limits"]["cpu"] for container in after["initContainers"]] == ["4", "1", "4"]
