"""Container resources by LimitRange's rules: computed examples, semantics, and findings."""

from typing import Any

import jsonpatch
import msgspec
import pytest

from tests.core.generating.vocabulary import Json
from webhook.core.container_resources import RangePlan, operations, qos_change, qos_class, violations
from webhook.core.findings import Code, Violation
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.policy_spec import ResourceRules

OUTSIDE, UNFULFILLED = Code.RESOURCES_OUTSIDE, Code.RESOURCES_UNFULFILLED
BOTH = {"cpu": "1", "memory": "1Gi"}
QUARTER = {"default": {"cpu": "1"}, "defaultRequestRatio": {"cpu": 0.25}}


def plan_of(rules: Json) -> RangePlan:
    return RangePlan.of(msgspec.convert(rules, ResourceRules, dec_hook=lambda _, value: Quantity.parse(str(value))))


def in_range(when_outside: str = "Deny", **container: Any) -> RangePlan:
    field_names = {"default_request": "defaultRequest"}
    return plan_of(
        {
            "container": {field_names.get(key, key): value for key, value in container.items()},
            "whenOutside": when_outside,
        }
    )


def decoded(spec: Json) -> Pod:
    return msgspec.convert({"metadata": {}, "spec": spec}, Pod)


def rewritten(spec: Json, plan: RangePlan) -> Json:
    patch = msgspec.to_builtins(operations(decoded(spec), plan))
    found: Json = jsonpatch.apply_patch({"spec": spec}, patch)["spec"]
    return found


def spec_of(resources: Json | None = None, **more: Any) -> Json:
    return {"containers": [{"name": "main", "resources": resources, **more}]}


def asks(requests: Json | None = None, limits: Json | None = None) -> Json:
    return {side: found for side, found in (("requests", requests), ("limits", limits)) if found is not None}


def rewritten_resources(resources: Json | None, plan: RangePlan) -> Json | None:
    found: Json | None = rewritten(spec_of(resources), plan)["containers"][0].get("resources")
    return found


def texts(spec: Json, plan: RangePlan) -> list[str]:
    return [f"{violation.code}: {violation.text}" for violation in violations(decoded(spec), plan)]


@pytest.mark.parametrize(
    ("range_rules", "before", "after"),
    [
        # an absent limit gets the default, or else the max, and so does the absent request
        ({"default": {"cpu": "1"}}, None, asks({"cpu": "1"}, {"cpu": "1"})),
        ({"default": {"cpu": "1"}, "max": {"cpu": "8"}}, None, asks({"cpu": "1"}, {"cpu": "1"})),
        ({"max": {"cpu": "8"}}, asks({"cpu": "1"}), asks({"cpu": "1"}, {"cpu": "8"})),
        ({"max": {"ephemeral-storage": "8Gi"}}, None, asks({"ephemeral-storage": "8Gi"}, {"ephemeral-storage": "8Gi"})),
        # never below the container's own request, and spelled as that request
        ({"default": {"cpu": "1"}}, asks({"cpu": "1500m"}), asks({"cpu": "1500m"}, {"cpu": "1500m"})),
        ({"default": {"cpu": "1"}}, asks({"cpu": "1000m"}), asks({"cpu": "1000m"}, {"cpu": "1"})),
        ({"max": {"cpu": "8"}}, asks({"cpu": "9"}), asks({"cpu": "9"}, {"cpu": "9"})),
        # an absent request is the user's limit, spelled as that limit
        ({"default_request": {"cpu": "100m"}}, asks(limits={"cpu": "1000m"}), asks({"cpu": "1000m"}, {"cpu": "1000m"})),
        ({"max": {"cpu": "8"}}, asks(limits={"cpu": 2}), asks({"cpu": "2"}, {"cpu": 2})),
        # resources without a rule are left to the defaults of the API server
        ({"max": {"cpu": "8"}}, asks({"cpu": "1"}, BOTH), asks({"cpu": "1"}, BOTH)),
        # request and limit both absent: defaultRequest, then the default limit, then min, as in a LimitRange
        ({"default_request": {"cpu": "100m"}}, None, asks({"cpu": "100m"})),
        (
            {"default_request": {"cpu": "100m"}, "default": {"cpu": "1"}},
            None,
            asks({"cpu": "100m"}, {"cpu": "1"}),
        ),
        ({"default_request": {"cpu": "0.1"}, "default": {"cpu": "100m"}}, None, asks({"cpu": "0.1"}, {"cpu": "100m"})),
        ({"default": {"cpu": "1"}, "min": {"cpu": "50m"}}, None, asks({"cpu": "1"}, {"cpu": "1"})),
        ({"min": {"cpu": "50m"}}, None, asks({"cpu": "50m"})),
        ({"min": {"cpu": "50m"}, "max": {"cpu": "8"}}, None, asks({"cpu": "8"}, {"cpu": "8"})),
        ({"min": {"cpu": "8"}, "max": {"cpu": "8"}}, None, asks({"cpu": "8"}, {"cpu": "8"})),
        ({"max": {"cpu": "8"}}, None, asks({"cpu": "8"}, {"cpu": "8"})),
        # a min of 0 sets nothing
        ({"min": {"cpu": "0"}}, None, None),
        ({"min": {"cpu": "0m"}, "max": {"cpu": "8"}}, None, asks({"cpu": "8"}, {"cpu": "8"})),
        # null is no amount
        ({"min": {"cpu": "50m"}}, asks({"cpu": None}), asks({"cpu": "50m"})),
        ({"default": {"cpu": "1"}}, asks({"cpu": None}, {"cpu": None}), asks({"cpu": "1"}, {"cpu": "1"})),
        # amounts of the container are kept
        ({"default": {"cpu": "1"}}, asks({"cpu": "2"}, {"cpu": "3"}), asks({"cpu": "2"}, {"cpu": "3"})),
        ({"default": {"cpu": "1"}}, asks(limits={"cpu": "0"}), asks({"cpu": "0"}, {"cpu": "0"})),
        # Deny does not change amounts that are outside
        ({"max": {"cpu": "8"}}, asks({"cpu": "1"}, {"cpu": "9"}), asks({"cpu": "1"}, {"cpu": "9"})),
        # extended resources and huge pages have equal request and limit: one default sets both, min and max set none
        ({"default": {"v.io/gpu": "2"}}, None, asks({"v.io/gpu": "2"}, {"v.io/gpu": "2"})),
        ({"default_request": {"v.io/gpu": "2"}}, None, asks({"v.io/gpu": "2"}, {"v.io/gpu": "2"})),
        ({"default_request": {"v.io/gpu": "2"}}, asks({"v.io/gpu": "1"}), asks({"v.io/gpu": "1"}, {"v.io/gpu": "1"})),
        ({"default": {"v.io/gpu": "2"}}, asks(limits={"v.io/gpu": "1"}), asks({"v.io/gpu": "1"}, {"v.io/gpu": "1"})),
        ({"min": {"v.io/gpu": "1"}, "max": {"v.io/gpu": "2"}}, None, None),
        (
            {"default": {"hugepages-2Mi": "4Mi", "memory": "1Gi"}},
            None,
            asks({"hugepages-2Mi": "4Mi", "memory": "1Gi"}, {"hugepages-2Mi": "4Mi", "memory": "1Gi"}),
        ),
        # Kubernetes allows huge pages only with cpu or memory
        ({"default": {"hugepages-2Mi": "4Mi"}}, None, None),
        (
            {"default": {"hugepages-2Mi": "4Mi"}},
            asks(limits={"hugepages-2Mi": "2Mi"}),
            asks({"hugepages-2Mi": "2Mi"}, {"hugepages-2Mi": "2Mi"}),
        ),
        (
            {"default": {"hugepages-2Mi": "4Mi"}},
            asks({"cpu": "1"}),
            asks({"cpu": "1", "hugepages-2Mi": "4Mi"}, {"hugepages-2Mi": "4Mi"}),
        ),
        # resources of a Kubernetes domain may be overcommitted, and have no implied defaults
        (
            {"default_request": {"x.kubernetes.io/a": "1"}, "default": {"x.kubernetes.io/a": "2"}},
            None,
            asks({"x.kubernetes.io/a": "1"}, {"x.kubernetes.io/a": "2"}),
        ),
        ({"max": {"x.kubernetes.io/a": "2"}}, None, None),
        # a limit as a multiple of the request, at most max, rounded down; none of a request of 0 or without one
        (
            {"defaultLimitRatio": {"memory": "2"}},
            asks({"memory": "64Mi"}),
            asks({"memory": "64Mi"}, {"memory": "128Mi"}),
        ),
        (
            {"defaultLimitRatio": {"cpu": 3}, "max": {"cpu": "1"}},
            asks({"cpu": "500m"}),
            asks({"cpu": "500m"}, {"cpu": "1"}),
        ),
        ({"defaultLimitRatio": {"cpu": "1.5"}}, asks({"cpu": "1m"}), asks({"cpu": "1m"}, {"cpu": "1m"})),
        ({"defaultLimitRatio": {"cpu": 2}}, asks({"cpu": "0"}), asks({"cpu": "0"})),
        ({"defaultLimitRatio": {"cpu": 2}}, None, None),
        # a default within maxLimitRequestRatio
        (
            {"default": {"cpu": "4"}, "maxLimitRequestRatio": {"cpu": 2}},
            asks({"cpu": "500m"}),
            asks({"cpu": "500m"}, {"cpu": "1"}),
        ),
        # a request as a share of the limit that it equals, at least min, rounded up
        ({"defaultRequestRatio": {"cpu": 0.5}}, asks(limits={"cpu": "1"}), asks({"cpu": "500m"}, {"cpu": "1"})),
        (
            {"defaultRequestRatio": {"memory": 0.5}},
            asks(limits={"memory": "3"}),
            asks({"memory": "2"}, {"memory": "3"}),
        ),
        (
            {"defaultRequestRatio": {"cpu": 0.5}, "min": {"cpu": "800m"}},
            asks({"cpu": "1"}, {"cpu": "1"}),
            asks({"cpu": "800m"}, {"cpu": "1"}),
        ),
        ({"defaultRequestRatio": {"cpu": 0.5}}, asks({"cpu": "2"}, {"cpu": "3"}), asks({"cpu": "2"}, {"cpu": "3"})),
        ({"defaultRequestRatio": {"cpu": 0.5}}, asks(limits={"cpu": "0"}), asks({"cpu": "0"}, {"cpu": "0"})),
        # a share of the default limit only where no request is written, and none is defaulted
        (QUARTER, None, asks({"cpu": "250m"}, {"cpu": "1"})),
        ({**QUARTER, "default_request": {"cpu": "1"}}, None, asks({"cpu": "1"}, {"cpu": "1"})),
        (QUARTER, asks({"cpu": "1"}), asks({"cpu": "1"}, {"cpu": "1"})),
        (QUARTER, asks({"cpu": "999m"}), asks({"cpu": "999m"}, {"cpu": "1"})),
        (QUARTER, asks({"cpu": "2"}), asks({"cpu": "2"}, {"cpu": "2"})),
        ({**QUARTER, "max": {"cpu": "1"}}, asks({"cpu": "2"}), asks({"cpu": "2"}, {"cpu": "2"})),
        ({**QUARTER, "max": {"cpu": "8"}}, asks({"cpu": "1m"}), asks({"cpu": "1m"}, {"cpu": "1"})),
        (
            {"default": {"memory": "256Mi"}, "defaultRequestRatio": {"memory": 0.5}},
            asks({"memory": "1Gi"}),
            asks({"memory": "1Gi"}, {"memory": "1Gi"}),
        ),
        (
            {"defaultLimitRatio": {"cpu": 1}, "defaultRequestRatio": {"cpu": 0.5}},
            asks({"cpu": "1"}),
            asks({"cpu": "1"}, {"cpu": "1"}),
        ),
    ],
)
def test_container_gets_defaults_of_the_range(range_rules: Json, before: Json | None, after: Json | None) -> None:
    assert rewritten_resources(before, in_range(**range_rules)) == after


@pytest.mark.parametrize(
    ("range_rules", "before", "after"),
    [
        ({"max": {"cpu": "8"}}, asks({"cpu": "9"}, {"cpu": "10"}), asks({"cpu": "8"}, {"cpu": "8"})),
        ({"max": {"cpu": "8"}}, asks({"cpu": "1"}, {"cpu": 9}), asks({"cpu": "1"}, {"cpu": "8"})),
        ({"max": {"cpu": "8"}}, asks(limits={"cpu": "9"}), asks({"cpu": "8"}, {"cpu": "8"})),
        ({"max": {"cpu": "8"}}, asks({"cpu": "9"}), asks({"cpu": "8"}, {"cpu": "8"})),
        ({"min": {"cpu": "100m"}}, asks({"cpu": "10m"}), asks({"cpu": "100m"})),
        ({"min": {"cpu": "100m"}}, asks({"cpu": "10m"}, {"cpu": "20m"}), asks({"cpu": "100m"}, {"cpu": "100m"})),
        ({"min": {"cpu": "100m"}}, asks({"cpu": "10m"}, {"cpu": "1"}), asks({"cpu": "100m"}, {"cpu": "1"})),
        ({"min": {"cpu": "100m"}}, asks({"cpu": "0.1"}, {"cpu": 1}), asks({"cpu": "0.1"}, {"cpu": 1})),
        (
            {"min": {"cpu": "100m"}, "default": {"cpu": "100m"}},
            asks({"cpu": "0"}),
            asks({"cpu": "100m"}, {"cpu": "100m"}),
        ),
        (
            {"max": {"v.io/gpu": "2"}},
            asks({"v.io/gpu": 4}, {"v.io/gpu": 4}),
            asks({"v.io/gpu": "2"}, {"v.io/gpu": "2"}),
        ),
        (
            {"max": {"v.io/gpu": "2"}},
            asks(limits={"v.io/gpu": 4}),
            asks({"v.io/gpu": "2"}, {"v.io/gpu": "2"}),
        ),
        # a limit of 0 is no limit and above any max; the API server sets the absent request to 0
        ({"max": {"cpu": "8"}}, asks({"cpu": "0"}, {"cpu": "0"}), asks({"cpu": "0"}, {"cpu": "8"})),
        ({"max": {"cpu": "8"}}, asks(limits={"cpu": "0"}), asks({"cpu": "0"}, {"cpu": "8"})),
        (
            {"min": {"memory": "1Gi"}, "max": {"memory": "2Gi"}},
            asks(limits={"memory": "0"}),
            asks({"memory": "1Gi"}, {"memory": "2Gi"}),
        ),
        ({"max": {"v.io/gpu": "2"}}, asks(limits={"v.io/gpu": "0"}), asks({"v.io/gpu": "0"}, {"v.io/gpu": "0"})),
        # a share of the limit only where request and limit were equal before
        ({**QUARTER, "max": {"cpu": "8"}}, asks({"cpu": "9"}, {"cpu": "10"}), asks({"cpu": "8"}, {"cpu": "8"})),
        ({**QUARTER, "max": {"cpu": "8"}}, asks({"cpu": "10"}, {"cpu": "10"}), asks({"cpu": "2"}, {"cpu": "8"})),
        ({**QUARTER, "max": {"cpu": "8"}}, asks({"cpu": "10"}), asks({"cpu": "8"}, {"cpu": "8"})),
        ({**QUARTER, "min": {"cpu": "1"}}, asks({"cpu": "1m"}, {"cpu": "2m"}), asks({"cpu": "1"}, {"cpu": "1"})),
    ],
)
def test_clamp_writes_the_bound_as_the_policy_spells_it(range_rules: Json, before: Json, after: Json) -> None:
    assert rewritten_resources(before, in_range("Clamp", **range_rules)) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (asks({"cpu": "1"}, {"cpu": "1"}), asks({"cpu": "1"}, {"cpu": "1"})),
        (asks({"cpu": "1"}), asks({"cpu": "1"}, {"cpu": "1"})),
        (asks(limits={"cpu": "1"}), asks({"cpu": "1"}, {"cpu": "1"})),
        # a container that another webhook has added meanwhile
        (None, asks({"cpu": "250m"}, {"cpu": "1"})),
    ],
)
def test_a_later_rewrite_takes_no_request_for_an_absent_one(before: Json | None, after: Json) -> None:
    plan = in_range(**QUARTER).later
    assert rewritten_resources(before, plan) == after
    assert texts(spec_of(after), plan) == []


def test_a_plan_without_shares_is_the_same_for_later_rewrites() -> None:
    plan = in_range(default={"cpu": "1"}, maxLimitRequestRatio={"cpu": 2})
    assert plan.later is plan


def test_containers_and_init_containers_get_defaults_unless_ignored() -> None:
    plan = in_range(default={"cpu": "1"}, ignore=["istio-proxy", "vault-agent*"])
    spec = {
        "containers": [{"name": "main"}, {"name": "istio-proxy"}, {"name": "vault-agent-init"}, {"name": "vault"}],
        "initContainers": [{"name": "wait"}, {"name": "side", "restartPolicy": "Always"}, {"name": "istio-proxy"}],
    }
    found = rewritten(spec, plan)
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
    plan = in_range(default={"cpu": "1", "v.io/g~pu": "2"}, default_request={"cpu": "100m"})
    spec = {"containers": [{"name": "main"} if resources == "absent" else {"name": "main", "resources": resources}]}
    assert [operation.path for operation in operations(decoded(spec), plan)] == paths
    found = rewritten(spec, plan)["containers"][0]["resources"]
    assert found["limits"] == {"cpu": "1", "v.io/g~pu": "2"}
    own = (resources.get("requests") if isinstance(resources, dict) else None) or {}
    assert found["requests"] == {"cpu": "100m", "v.io/g~pu": "2", **own}
    assert found.get("claims") == (resources.get("claims") if isinstance(resources, dict) else None)


def test_patch_replaces_present_amounts_and_adds_absent_ones() -> None:
    plan = in_range("Clamp", max={"cpu": "8"}, default={"memory": "1Gi"})
    found = operations(decoded(spec_of(asks({"cpu": "1"}, {"cpu": "9"}))), plan)
    assert [(operation.op, operation.path.removeprefix("/spec/containers/0/resources/")) for operation in found] == [
        ("add", "limits/memory"),
        ("replace", "limits/cpu"),
        ("add", "requests/memory"),
    ]


def test_two_containers_never_share_a_map_of_the_patch() -> None:
    plan = in_range(default={"cpu": "1"})
    first, second = operations(decoded({"containers": [{"name": "a"}, {"name": "b"}]}), plan)
    assert first.value == second.value
    assert first.value is not second.value
    assert len({id(amounts) for operation in (first, second) for amounts in operation.value.values()}) == 4


WHOLE = {"cpu": "4", "memory": "4Gi"}


@pytest.mark.parametrize(
    ("pod_level", "before", "after"),
    [
        # amounts limited at Pod level need no default; those that are only requested do
        (asks(limits=WHOLE), None, None),
        (asks(WHOLE, WHOLE), asks({"cpu": "1"}), asks({"cpu": "1"})),
        (asks(WHOLE), asks({"cpu": "1"}), asks({"cpu": "1"}, {"cpu": "2"})),
        (asks(WHOLE), None, asks({"cpu": "0"}, {"cpu": "2"})),
        (asks(limits={"memory": "4Gi"}), None, asks({"cpu": "2"}, {"cpu": "2"})),
        (asks(limits={"cpu": "0"}), None, None),
        # amounts are lowered and never raised
        (asks(WHOLE), asks({"cpu": "1m"}, {"cpu": "2m"}), asks({"cpu": "1m"}, {"cpu": "2m"})),
        (asks(WHOLE), asks({"cpu": "3"}, {"cpu": "3"}), asks({"cpu": "2"}, {"cpu": "2"})),
        (asks(limits=WHOLE), asks(limits={"cpu": "0"}), asks({"cpu": "0"}, {"cpu": "0"})),
        (asks({"cpu": None}, {"cpu": None}), None, asks({"cpu": "2"}, {"cpu": "2"})),
        (asks(WHOLE), asks({"cpu": "0"}, {"cpu": "0"}), asks({"cpu": "0"}, {"cpu": "2"})),
    ],
)
def test_containers_of_a_pod_with_pod_level_resources_get_defaults_and_maximums(
    pod_level: Json, before: Json | None, after: Json | None
) -> None:
    plan = in_range("Clamp", min={"cpu": "500m"}, max={"cpu": "2"})
    found = rewritten({**spec_of(before), "resources": pod_level}, plan)
    assert found["containers"][0]["resources"] == after
    assert found["resources"] == pod_level


def test_request_below_min_is_outside_under_pod_level_resources() -> None:
    plan = in_range("Clamp", min={"cpu": "500m"})
    spec = {**spec_of(asks({"cpu": "1m"}, {"cpu": "0"})), "resources": asks(WHOLE, WHOLE)}
    assert texts(spec, plan) == [
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
    spec = {**spec_of(), "resources": asks(limits={"cpu": "0", "v.io/cpu": "0"})}
    assert operations(decoded(spec), plan) == []
    assert texts(spec, plan) == [f"ResourcesOutside: the Pod as a whole: {text}" for text in limits]


@pytest.mark.parametrize(
    ("when_outside", "resources", "text"),
    [
        (
            "Deny",
            asks({"cpu": "1"}, {"cpu": "9"}),
            "ResourcesOutside: container main: limits[cpu] is '9', at most '8' is allowed: ask for less",
        ),
        (
            "Deny",
            asks({"cpu": "9"}, {"cpu": "900"}),
            (
                "ResourcesOutside: container main: limits[cpu] is '900' and requests[cpu] is '9',"
                " at most '8' is allowed: ask for less"
            ),
        ),
        (
            "Deny",
            asks({"cpu": "1m"}, {"cpu": 1}),
            "ResourcesOutside: container main: requests[cpu] is '1m', at least '100m' is allowed: ask for more",
        ),
        (
            "Deny",
            asks({"cpu": "1"}, {"cpu": "0"}),
            "ResourcesOutside: container main: limits[cpu] is '0' (no limit), at most '8' is allowed: write a limit",
        ),
        (
            "Clamp",
            asks({"cpu": "1"}, {"cpu": "9"}),
            "ResourcesUnfulfilled: container main: limits[cpu] is '9', expected at most '8'",
        ),
        (
            "Clamp",
            asks(limits={"cpu": "0"}),
            "ResourcesUnfulfilled: container main: limits[cpu] is '0' (no limit), expected at most '8'",
        ),
        (
            "Clamp",
            asks({"cpu": "1m"}, {"cpu": "1"}),
            "ResourcesUnfulfilled: container main: requests[cpu] is '1m', expected at least '100m'",
        ),
        (
            "Deny",
            asks({"cpu": "1"}),
            "ResourcesUnfulfilled: container main: limits[cpu] is missing, expected '8'",
        ),
        (
            "Deny",
            None,
            "ResourcesUnfulfilled: container main: limits[cpu] is missing, expected '8'",
        ),
        (
            "Deny",
            asks(limits={"cpu": "9"}),
            "ResourcesOutside: container main: limits[cpu] is '9', at most '8' is allowed: ask for less",
        ),
        (
            "Deny",
            asks({"cpu": "0"}, {"cpu": "10m"}),
            (
                "ResourcesOutside: container main: limits[cpu] is '10m' and requests[cpu] is '0',"
                " at least '100m' is allowed: ask for more"
            ),
        ),
    ],
)
def test_finding_names_container_value_and_expectation(when_outside: str, resources: Json | None, text: str) -> None:
    assert texts(spec_of(resources), in_range(when_outside, min={"cpu": "100m"}, max={"cpu": "8"})) == [text]


def test_a_finding_names_the_field() -> None:
    plan = in_range(max={"cpu": "8"})
    spec = {"containers": [], "initContainers": [{"name": "wait", "resources": asks({"cpu": "9"}, {"cpu": "9"})}]}
    assert violations(decoded(spec), plan) == [
        Violation(
            OUTSIDE,
            "spec.initContainers[0].resources.limits[cpu]",
            "max[cpu] of spec.initContainers[0].resources",
            "init container wait: limits[cpu] is '9' and requests[cpu] is '9', at most '8' is allowed: ask for less",
        )
    ]


def test_amounts_that_are_absent_and_have_no_default_are_not_outside() -> None:
    plan = plan_of({"container": {"min": {"v.io/gpu": "1"}, "max": {"v.io/gpu": "2"}}})
    assert texts(spec_of(None), plan) == []


def test_rewritten_pod_has_no_findings_before_and_after_defaulting() -> None:
    plan = in_range(default={"cpu": "1"})
    assert texts(spec_of(asks(limits={"cpu": "1"})), plan) == []
    assert texts(spec_of(asks({"cpu": "1"}, {"cpu": "1"})), plan) == [], "as the API server stores it"


def test_huge_pages_of_the_pod_level_prevent_container_defaults() -> None:
    plan = in_range(default={"hugepages-2Mi": "4Mi"})
    spec = {**spec_of(asks({"cpu": "1"})), "resources": asks({"hugepages-2Mi": "8Mi"})}
    assert operations(decoded(spec), plan) == []


def test_findings_are_bounded_in_number_and_length() -> None:
    plan = in_range(max={"cpu": "8"}, default={"memory": "1Gi"})
    box = {"name": "n" * 100_000, "resources": asks({"cpu": "9"}, {"cpu": "9." + "0" * 60})}
    spec = {"containers": [box] * 200, "initContainers": [box] * 13}
    found = texts(spec, plan)
    assert len(found) == 4
    assert [line.partition(": limits")[0][-12:] for line in found] == ["and 199 more"] * 2 + [" and 12 more"] * 2
    assert max(map(len, found)) < 400


@pytest.mark.parametrize(
    ("resources", "pattern"),
    [
        (asks({"cpu": "much"}), r"^container main: resources\.requests\[cpu\]: 'much': not a Kubernetes quantity"),
        (
            asks(limits={"memory": "-1"}),
            r"^container main: resources\.limits\[memory\]: '-1': a quantity must not be negative",
        ),
        (
            asks(limits={"memory": "x" * 99}),
            r"^container main: resources\.limits\[memory\]: 'x{40}\.\.\.': not a Kubernetes",
        ),
    ],
)
def test_an_unreadable_amount_names_the_container_the_field_and_the_value(resources: Json, pattern: str) -> None:
    plan = in_range(max={"cpu": "8"})
    for function in (operations, violations, qos_change):
        with pytest.raises(ValueError, match=pattern):
            function(decoded(spec_of(resources)), plan)


def test_unreadable_amount_at_pod_level_names_the_field() -> None:
    with pytest.raises(ValueError, match=r"^the Pod as a whole: cpu: 'much': not a Kubernetes quantity"):
        violations(decoded({**spec_of(), "resources": asks(limits={"cpu": "much"})}), in_range(max={"cpu": "8"}))


def test_spelling_of_amounts_does_not_depend_on_earlier_calls() -> None:
    plan = in_range(default={"cpu": "1"})
    assert rewritten_resources(asks({"cpu": 2.0}), plan) == asks({"cpu": 2.0}, {"cpu": "2"})
    assert rewritten_resources(asks({"cpu": 2}), plan) == asks({"cpu": 2}, {"cpu": "2"})
    assert rewritten_resources(asks({"cpu": 2.5}), plan) == asks({"cpu": 2.5}, {"cpu": "2.5"})


@pytest.mark.parametrize(
    ("number", "text"),
    [(1e30, "1e+30"), (1e100, "1e+100"), (1e308, "1e+308"), (10**30, "1" + "0" * 30), ("9" * 82, "9" * 82)],
)
def test_numbers_of_any_size_are_written_exactly_and_decoded_again(number: Any, text: str) -> None:
    plan = in_range(default={"cpu": "1"}, max={"memory": "8Gi"})
    after = rewritten_resources(asks(limits={"memory": number}), plan)
    assert after is not None
    assert after["requests"]["memory"] == text
    (message,) = texts(spec_of(after), plan)
    assert message.startswith("ResourcesOutside: container main: limits[memory] is '")
    assert message.endswith("', at most '8Gi' is allowed: ask for less")
    assert len(message) < 300


def test_huge_amount_is_abbreviated_in_the_finding() -> None:
    plan = pod_range(max={"memory": "8Gi", "v.io/gpu": 1})
    spec = spec_of(asks({"memory": "10e9999999", "v.io/gpu": "1e900"}))
    message = "; ".join(texts(spec, plan))
    assert "requests[memory] is '1.00e1000'" in message
    assert "requests[v.io/gpu] is '1.00e900'" in message
    assert len(message) < 400


def pod_range(**rules: Json) -> RangePlan:
    return plan_of({"pod": rules, "container": {"ignore": ["istio-proxy"]}, "whenOutside": "Clamp"})


def containers_with(*amounts: tuple[str, str]) -> list[Json]:
    return [
        {"name": f"c{index}", "resources": asks({"memory": request}, {"memory": limit})}
        for index, (request, limit) in enumerate(amounts)
    ]


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({"containers": containers_with(("1Gi", "2Gi"), ("1Gi", "2Gi"))}, []),
        ({"containers": containers_with(("1Gi", "2Gi"), ("1Gi", "3Gi"))}, ["limits[memory] is '5Gi', at most '4Gi'"]),
        (
            {"containers": containers_with(("3Gi", "3Gi")), "initContainers": containers_with(("5Gi", "5Gi"))},
            ["limits[memory] is '5Gi' and requests[memory] is '5Gi', at most '4Gi'"],
        ),
        ({"containers": containers_with(("1Mi", "1Gi"))}, ["requests[memory] is '1Mi', at least '64Mi'"]),
        ({"containers": containers_with(("1Gi", "2Gi")), "resources": asks({"memory": "1Gi"}, {"memory": "4Gi"})}, []),
        (
            {"containers": containers_with(("1Gi", "2Gi")), "resources": asks({"memory": "1Gi"}, {"memory": "8Gi"})},
            ["limits[memory] is '8Gi', at most '4Gi'"],
        ),
        (
            {"containers": containers_with(("1Gi", "4Gi")), "overhead": {"memory": "1000"}},
            ["limits[memory] is '4294968296', at most '4Gi'"],
        ),
        ({"containers": [{"name": "a", "resources": asks({"memory": "1Gi"})}]}, []),
        (
            {"containers": [{"name": "istio-proxy", "resources": asks({"memory": "5Gi"})}]},
            ["requests[memory] is '5Gi', at most '4Gi'"],
        ),
        (
            {"containers": [{"name": "a", "resources": asks({"memory": "4294967296.5"})}]},
            ["requests[memory] is '4294967296500000000n', at most '4Gi'"],
        ),
    ],
)
def test_pod_total_is_the_schedulers_sum_and_is_never_clamped(spec: Json, found: list[str]) -> None:
    plan = pod_range(min={"memory": "64Mi"}, max={"memory": "4Gi"})
    assert operations(decoded(spec), plan) == []
    remedies = {"ask for less", "ask for more"}
    lines = [line.rpartition(" is allowed: ") for line in texts(spec, plan)]
    assert [start for start, _, _ in lines] == [f"ResourcesOutside: the Pod as a whole: {line}" for line in found]
    assert {remedy for _, _, remedy in lines} <= remedies


def test_finding_on_a_total_names_the_containers_or_the_pod_level_field() -> None:
    plan = pod_range(max={"memory": "1Gi"})
    spec = {"containers": containers_with(("2Gi", "2Gi"))}
    assert [violation.field for violation in violations(decoded(spec), plan)] == [
        "spec.containers[*].resources.limits[memory]"
    ]
    own = {**spec, "resources": asks(limits={"memory": "2Gi"})}
    assert [violation.field for violation in violations(decoded(own), plan)] == ["spec.resources.limits[memory]"]


def resized(before: Json, after: Json, plan: RangePlan) -> list[str]:
    return [violation.text for violation in violations(decoded(after), plan, decoded(before))]


def test_resize_has_findings_only_on_amounts_newly_outside() -> None:
    plan = in_range(max={"cpu": "8"})
    within, outside, farther_outside = (spec_of(asks({"cpu": "1"}, {"cpu": limit})) for limit in ("8", "9", "10"))
    assert resized(outside, outside, plan) == []
    assert resized(farther_outside, outside, plan) == [], "the amount is lowered"
    assert resized(within, outside, plan) == [
        "container main: limits[cpu] is '9', at most '8' is allowed: ask for less",
    ]
    assert len(resized(outside, farther_outside, plan)) == 1, "an amount outside may not be raised further"
    assert len(resized(farther_outside, spec_of(asks({"cpu": "1"}, {"cpu": "0"})), plan)) == 1, (
        "no limit is above any limit"
    )


def test_amount_outside_before_a_resize_excuses_its_own_container_only() -> None:
    plan = in_range(max={"cpu": "8"})
    high, low = asks({"cpu": "1"}, {"cpu": "9"}), asks({"cpu": "1"}, {"cpu": "1"})

    def pod(first: Json, second: Json) -> Json:
        return {"containers": [{"name": "a", "resources": first}, {"name": "b", "resources": second}]}

    assert [text[:11] for text in resized(pod(high, low), pod(high, high), plan)] == ["container b"]
    assert resized(pod(high, high), pod(low, high), plan) == []


def test_resize_has_a_finding_on_a_growing_total() -> None:
    plan = pod_range(max={"memory": "1Gi"})
    small, large, larger = ({"containers": containers_with((amount, amount))} for amount in ("1Gi", "2Gi", "3Gi"))
    assert resized(large, large, plan) == []
    assert resized(larger, large, plan) == []
    assert len(resized(small, large, plan)) == len(resized(large, larger, plan)) == 1


@pytest.mark.parametrize(
    ("spec", "qos"),
    [
        ({}, "BestEffort"),
        (spec_of(), "BestEffort"),
        (spec_of(asks({"cpu": "0"}, {"memory": "0"})), "BestEffort"),
        (spec_of(asks({"ephemeral-storage": "1Gi"})), "BestEffort"),
        (spec_of(asks({"cpu": "1"})), "Burstable"),
        (spec_of(asks(limits=BOTH)), "Guaranteed"),
        (spec_of(asks({"cpu": "1000m"}, BOTH)), "Guaranteed"),
        (spec_of(asks({"cpu": "0"}, BOTH)), "Burstable"),
        (spec_of(asks(BOTH)), "Burstable"),
        ({**spec_of(asks(limits=BOTH)), "initContainers": [{"name": "wait"}]}, "Burstable"),
        ({**spec_of(asks(limits=BOTH)), "resources": asks({"cpu": "1"})}, "Burstable"),
        ({**spec_of(), "resources": asks(limits=BOTH)}, "Guaranteed"),
        ({**spec_of(asks({"cpu": "500m"})), "resources": asks(limits=BOTH)}, "Burstable"),
        ({**spec_of(asks({"cpu": "0"})), "resources": asks(limits=BOTH)}, "Burstable"),
        ({**spec_of(asks(limits=BOTH)), "resources": {}}, "BestEffort"),
    ],
)
def test_qos_class_equals_that_of_kubernetes(spec: Json, qos: str) -> None:
    assert qos_class(decoded(spec)) == qos


@pytest.mark.parametrize(
    ("range_rules", "resources", "change"),
    [
        ({"default": BOTH}, None, ("BestEffort", "Guaranteed")),
        ({"default_request": {"cpu": "100m"}}, None, ("BestEffort", "Burstable")),
        ({"default": BOTH}, asks(limits={"cpu": "1"}), ("Burstable", "Guaranteed")),
        ({"default": BOTH}, asks({"cpu": "500m"}), None),
        ({"default": {"ephemeral-storage": "1Gi"}}, None, None),
        ({"default": BOTH, "ignore": ["main"]}, None, None),
        ({"max": {"cpu": "8"}, "min": {"cpu": "1"}}, asks(limits={**BOTH, "cpu": "9"}), None),
    ],
)
def test_a_change_of_qos_class_is_reported(
    range_rules: Json, resources: Json | None, change: tuple[str, str] | None
) -> None:
    assert qos_change(decoded(spec_of(resources)), in_range("Clamp", **range_rules)) == change


def test_pod_level_resources_alone_decide_the_qos_class() -> None:
    spec = {**spec_of(), "resources": asks(limits={"memory": "1Gi"})}
    assert qos_change(decoded(spec), in_range(default=BOTH)) is None


def test_empty_stanza_has_no_effect() -> None:
    plan = plan_of({})
    assert operations(decoded(spec_of()), plan) == []
    assert violations(decoded(spec_of(asks(limits={"cpu": "0"}))), plan) == []
    assert qos_change(decoded(spec_of()), plan) is None
