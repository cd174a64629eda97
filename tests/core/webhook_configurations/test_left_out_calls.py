"""Examples of calls that are made and left out, limits of the expressions, and the explanation."""

from typing import Any

import pytest

from tests.core.strategies import HASH, OUR_ANNOTATION, OUR_LABEL, Json
from tests.core.webhook_configurations.pod_calls import (
    CLIENT,
    DISABLED,
    PREFERENCE,
    QUOTA,
    SHARES,
    is_called,
    load_services,
)
from webhook.core.policy.model import LoadedPolicy
from webhook.core.webhook_configurations import explain_configurations, render_configurations

SHOP = ("shop", {"tier": "prod"})
CONDITIONS = {"may-be-rewritten", "may-be-refused"}


def build_selecting_service(app: str, **more: Any) -> Json:
    return {"match": {"namespaces": ["shop"], "podSelector": {"matchLabels": {"app": app}}}, **more}


def pod(labels: Json | None = None, annotation: str = "", **spec: Any) -> Json:
    metadata = {"labels": labels or {}, "annotations": {OUR_ANNOTATION: annotation} if annotation else {}}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c"}], **spec}}


def build_rewritten_pod(service: str, app: str = "web", **spec: Any) -> Json:
    return pod({"app": app, OUR_LABEL: service}, HASH, **spec)


def is_mutated(policy: LoadedPolicy, found: Json) -> bool:
    return is_called(render_configurations(policy.policy, CLIENT, HASH)[0], found, SHOP)


def is_validated(policy: LoadedPolicy, found: Json, operation: str = "CREATE") -> bool:
    return is_called(render_configurations(policy.policy, CLIENT, HASH)[1], found, SHOP, operation)


MIXED = load_services(
    build_selecting_service("web", placement=PREFERENCE),
    build_selecting_service("api", **QUOTA),
    build_selecting_service("idle", modes=DISABLED),
)


@pytest.mark.parametrize(
    ("labels", "called"),
    [
        ({"app": "web"}, True),
        ({"app": "api"}, True),
        ({"app": "idle"}, False),
        ({"app": "other"}, False),
        ({}, False),
        ({"app": "other", OUR_LABEL: "s1"}, True),
    ],
)
def test_mutating_call_is_made_where_something_is_written(labels: Json, *, called: bool) -> None:
    assert is_mutated(MIXED, pod(labels)) is called


@pytest.mark.parametrize(
    ("found", "called"),
    [
        pytest.param(build_rewritten_pod("s0"), False, id="rewritten"),
        pytest.param(build_rewritten_pod("s0", nodeName="node-1"), True, id="node name"),
        pytest.param(pod({"app": "web"}), True, id="not rewritten"),
        pytest.param(pod({"app": "web", OUR_LABEL: "s0"}, "f" * 16), True, id="rewritten by another policy"),
        pytest.param(pod({"app": "web"}, HASH), True, id="label removed"),
        pytest.param(build_rewritten_pod("s1"), True, id="label of another service"),
        pytest.param(build_rewritten_pod("s1", "api"), True, id="quota"),
        pytest.param(build_rewritten_pod("s0", "api"), True, id="forged label"),
        pytest.param(build_rewritten_pod("s2", "idle"), True, id="disabled"),
        pytest.param(pod({"app": "other"}), True, id="unmatched"),
    ],
)
def test_validating_call_is_left_out_only_for_a_rewritten_pod_that_nothing_can_refuse(
    found: Json, *, called: bool
) -> None:
    assert is_validated(MIXED, found) is called


@pytest.mark.parametrize(
    ("changed", "called"),
    [
        ({"labels": {"podgate.io/variant": "on-demand"}}, True),
        ({"annotations": {"podgate.io/slot": "2"}}, True),
        ({"annotations": {"podgate.io/slot-claim": "d"}}, True),
        ({"annotations": {"podgate.io/intended-variant": "spot"}}, True),
        ({"annotations": {"controller.kubernetes.io/pod-deletion-cost": "0"}}, False),
        ({"labels": {"other": "value"}}, False),
    ],
)
def test_changes_of_a_slot_are_called_for(changed: Json, *, called: bool) -> None:
    policy = load_services(build_selecting_service("web", placement=SHARES))
    before = build_rewritten_pod("s0")
    before["metadata"]["labels"]["podgate.io/variant"] = "spot"
    before["metadata"]["annotations"] |= {"podgate.io/slot": "1", "podgate.io/slot-claim": "c"}
    metadata = {kind: entries | changed.get(kind, {}) for kind, entries in before["metadata"].items()}
    configuration = render_configurations(policy.policy, CLIENT, HASH)[1]
    after = {"metadata": metadata, "spec": before["spec"]}
    assert is_called(configuration, after, SHOP, "UPDATE", before) is called


def test_updates_are_validated() -> None:
    changed = build_rewritten_pod("s0")
    policy = render_configurations(MIXED.policy, CLIENT, HASH)[1]
    [webhook] = [webhook for webhook in policy["webhooks"] if "pods" in webhook["rules"][0]["resources"]]
    [condition] = [condition for condition in webhook["matchConditions"] if condition["name"] == "may-be-refused"]
    assert condition["expression"].startswith("request.operation != 'CREATE' ||")
    webhook["matchConditions"] = [condition]
    assert is_called({"webhooks": [webhook]}, changed, SHOP, "UPDATE")


@pytest.mark.parametrize(
    ("earlier", "called"),
    [
        pytest.param({"match": {"namespaces": ["bank"]}, **QUOTA}, False, id="in another namespace"),
        pytest.param(build_selecting_service("api", **QUOTA), False, id="with other labels"),
        pytest.param(build_selecting_service("web", **QUOTA), True, id="with the same labels"),
        pytest.param(
            {"match": {"namespaces": ["shop"], "namespaceSelector": {"matchLabels": {"tier": "test"}}}, **QUOTA},
            True,
            id="depending on labels of the namespace",
        ),
    ],
)
def test_pod_that_an_earlier_service_may_own_is_validated(earlier: Json, *, called: bool) -> None:
    policy = load_services(earlier, build_selecting_service("web"))
    assert is_validated(policy, build_rewritten_pod("s1")) is called


@pytest.mark.parametrize(
    ("other", "called"),
    [
        pytest.param({"namespaceSelector": {"matchLabels": {"tier": "prod"}}}, False, id="all selected"),
        pytest.param({"namespaceSelector": {"matchLabels": {"tier": "test"}}}, True, id="some selected"),
    ],
)
def test_service_is_left_out_only_if_it_selects_every_namespace_of_the_webhook(other: Json, *, called: bool) -> None:
    """Namespaces of equal selectors share a webhook, and so do those that differ in the values of one label."""
    prod = {
        "match": {"namespaceSelector": {"matchLabels": {"tier": "prod"}}, "podSelector": {"matchLabels": {"a": "1"}}}
    }
    policy = load_services(prod, {"match": {**other, "podSelector": {"matchLabels": {"a": "2"}}}})
    assert is_validated(policy, pod({"a": "1", OUR_LABEL: "s0"}, HASH)) is called


def names_of_conditions(*found: Json) -> set[str]:
    return {
        condition["name"]
        for configuration in found
        for webhook in configuration["webhooks"]
        for condition in webhook["matchConditions"]
    }


def test_no_call_is_left_out_where_a_service_may_own_every_pod_and_refuse_it() -> None:
    policy = load_services(build_selecting_service("web", **QUOTA), {"match": {"namespaces": ["shop"]}, **QUOTA})
    assert not names_of_conditions(*render_configurations(policy.policy, CLIENT, HASH)) & CONDITIONS


def test_no_call_is_left_out_on_request_and_no_validating_call_without_a_hash() -> None:
    assert names_of_conditions(*render_configurations(MIXED.policy, CLIENT, HASH)) >= CONDITIONS
    assert not names_of_conditions(*render_configurations(MIXED.policy, CLIENT, HASH, all_calls=True)) & CONDITIONS
    assert names_of_conditions(*render_configurations(MIXED.policy, CLIENT)) & CONDITIONS == {"may-be-rewritten"}


def test_first_hundred_services_are_left_out_and_later_ones_called() -> None:
    policy = load_services(*(build_selecting_service(f"a{number}") for number in range(102)))
    found = [pods["call"] for pods in explain_configurations(policy.policy, HASH)["webhooks"][1]["newPods"]]
    assert found == ["LeftOut"] * 100 + ["Made"] * 3
    assert not is_validated(policy, build_rewritten_pod("s99", "a99"))
    assert is_validated(policy, build_rewritten_pod("s100", "a100"))


def test_expression_that_would_be_too_long_leaves_out_nothing() -> None:
    policy = load_services(*(build_selecting_service(f"{'a' * 50}{number}") for number in range(2000)))
    assert names_of_conditions(*render_configurations(policy.policy, CLIENT, HASH)) & CONDITIONS == {"may-be-refused"}
    webhook, _ = explain_configurations(policy.policy, HASH)["webhooks"]
    assert {pod["call"] for pod in webhook["newPods"]} == {"Made"}
    assert {pod["reason"] for pod in webhook["newPods"]} == {"the expression would be longer than 60000 characters"}


def test_many_alternating_services_do_not_nest_the_expression() -> None:
    services = [
        build_selecting_service(f"a{number}", **({"modes": DISABLED} if number % 2 else {})) for number in range(60)
    ]
    policy = load_services(*services, build_selecting_service("a1"))
    assert is_mutated(policy, pod({"app": "a0"}))
    assert is_mutated(policy, pod({"app": "a1"})), "s1 writes nothing, and s60 may own the Pod as well"
    assert not is_mutated(policy, pod({"app": "a3"}))


def test_explanation_agrees_with_the_expressions() -> None:
    webhooks = explain_configurations(MIXED.policy, HASH)["webhooks"]
    called = {
        webhook["path"]: {pod["service"]: pod["call"] == "Made" for pod in webhook["newPods"]} for webhook in webhooks
    }
    apps = {"s0": "web", "s1": "api", "s2": "idle", None: "other"}
    assert called == {
        "mutate": {service: is_mutated(MIXED, pod({"app": app})) for service, app in apps.items()},
        "validate": {
            service: is_validated(MIXED, build_rewritten_pod(str(service), app)) for service, app in apps.items()
        },
    }
    reasons = {pod["service"]: pod["reason"] for pod in webhooks[1]["newPods"]}
    assert reasons["s1"] == "quota (Enforce)"


@pytest.mark.parametrize(
    ("service", "reason"),
    [
        (QUOTA, "quota (Enforce)"),
        ({**QUOTA, "modes": {"quota": "Disabled"}}, "quota (Disabled, which an override may change)"),
        ({"pool": "shared", "modes": {"quota": "Audit"}}, "pool (Audit)"),
        ({"placement": PREFERENCE, "modes": {"placement": "Warn"}}, "placement (Warn)"),
        ({**QUOTA, "placement": {"schedulerName": "ours"}}, "quota (Enforce), placement (Enforce)"),
        ({"resources": {"container": {"default": {"cpu": "1"}}}}, "resources (Enforce)"),
        ({"placement": SHARES}, "placement (Enforce)"),
        (
            {"placement": SHARES, "modes": {"placement": "Disabled"}},
            "placement (Disabled, which an override may change)",
        ),
    ],
)
def test_explanation_names_the_stanzas_that_need_the_validating_call(service: Json, reason: str) -> None:
    [_, webhook] = explain_configurations(load_services(build_selecting_service("web", **service)).policy, HASH)[
        "webhooks"
    ]
    assert webhook["newPods"][0] == {"service": "s0", "call": "Made", "reason": reason}
