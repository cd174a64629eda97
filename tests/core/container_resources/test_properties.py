"""Resources over generated Pods and policies: against a slow model, through an independent JSON Patch library."""

from copy import deepcopy

import jsonpatch
import msgspec
from hypothesis import assume, event, given
from hypothesis import strategies as st

from tests.core import api_server
from tests.core.generating.vocabulary import Json
from tests.core.ranges_model import (
    Box,
    find_owed,
    is_ignored,
    is_removed,
    list_all_boxes,
    list_written_resources,
    parse_amount,
    settle_all,
)
from tests.core.resource_strategies import LADDERS, pod_resources, resource_rules
from tests.core.strategies import examples
from webhook.core.container_resources import (
    RangePlan,
    apply_plan,
    build_operations,
    find_qos_change,
    find_qos_class,
    find_violations,
)
from webhook.core.findings import Code
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.policy_fields import QosClass, ResourceRules

PROPERTY = examples(150)
any_pods = st.builds(lambda spec: {"metadata": {}, "spec": spec}, pod_resources())
real_pods = st.builds(
    lambda spec: api_server.apply_defaults({"metadata": {}, "spec": spec}), pod_resources(strict=True)
)
any_rules = resource_rules(strict=False)


def plan_of(rules: Json) -> RangePlan:
    return RangePlan.from_rules(
        msgspec.convert(rules, ResourceRules, dec_hook=lambda _, value: Quantity.parse(str(value)))
    )


def decode_pod(pod: Json) -> Pod:
    return msgspec.json.decode(msgspec.json.encode(pod), type=Pod)


def patch_of(pod: Json, rules: Json, *, again: bool = False) -> list[Json]:
    plan = plan_of(rules)
    found: list[Json] = msgspec.to_builtins(build_operations(decode_pod(pod), plan.later if again else plan))
    return found


def apply_patch(pod: Json, patch: list[Json]) -> Json:
    found: Json = jsonpatch.apply_patch(pod, deepcopy(patch))
    return found


def rewrite_pod(pod: Json, rules: Json, *, again: bool = False) -> Json:
    return apply_patch(pod, patch_of(pod, rules, again=again))


def read_stored_form(pod: Json) -> tuple[list[Box], Json]:
    """Return the requests and limits of a Pod as stored, independent of their spelling."""
    stored = api_server.apply_defaults(pod)
    return list_all_boxes(stored), {key: value for key, value in stored["spec"].items() if "ontainers" not in key}


@PROPERTY
@given(any_pods, any_rules)
def test_rewritten_containers_equal_those_of_the_model(pod: Json, rules: Json) -> None:
    found = {box.place: box for box in read_stored_form(rewrite_pod(pod, rules))[0]}
    for (place, name), expected in settle_all(pod, rules).items():
        assert found[place].limits.get(name) == expected.limit, (place, name)
        assert found[place].requests.get(name) == expected.request, (place, name)


@PROPERTY
@given(any_pods | real_pods, any_rules)
def test_a_plan_that_is_applied_makes_the_pod_of_its_patch(pod: Json, rules: Json) -> None:
    assert apply_plan(decode_pod(pod), plan_of(rules)) == decode_pod(rewrite_pod(pod, rules))


@PROPERTY
@given(any_pods | real_pods, any_rules)
def test_api_server_defaults_no_amount_that_a_rule_applies_to(pod: Json, rules: Json) -> None:
    patched_only = rewrite_pod(pod, rules)
    stored = {box.place: box for box in list_all_boxes(api_server.apply_defaults(patched_only))}
    for box in list_all_boxes(patched_only):
        for name in list_written_resources(rules, box) if not is_ignored(rules, box.name) else ():
            assert box.limits.get(name) == stored[box.place].limits.get(name), (box.place, name)
            assert box.requests.get(name) == stored[box.place].requests.get(name), (box.place, name)


@PROPERTY
@given(any_pods, any_rules)
def test_rewrites_of_a_pod_before_and_after_defaulting_are_equal(pod: Json, rules: Json) -> None:
    pod["spec"].pop("resources", None)  # the API server sets its requests from those of the containers
    assert read_stored_form(rewrite_pod(pod, rules)) == read_stored_form(
        rewrite_pod(api_server.apply_defaults(pod), rules)
    )


@PROPERTY
@given(any_pods | real_pods, any_rules)
def test_a_second_rewrite_changes_nothing(pod: Json, rules: Json) -> None:
    first = rewrite_pod(pod, rules)
    assert patch_of(first, rules, again=True) == []
    assert patch_of(api_server.apply_defaults(first), rules, again=True) == []


@PROPERTY
@given(any_pods | real_pods, any_rules)
def test_no_default_changes_an_amount_that_is_known_to_be_written(pod: Json, rules: Json) -> None:
    rules = {**rules, "whenOutside": "Deny"}
    before = {box.place: box for box in list_all_boxes(pod)}
    for box in list_all_boxes(rewrite_pod(pod, rules)):
        own = before[box.place]
        kept = {name: limit for name, limit in own.limits.items() if not is_removed(rules, name) or name in box.limits}
        assert {name: box.limits[name] for name in kept} == kept
        written = {name: request for name, request in own.requests.items() if request != own.limits.get(name)}
        assert {name: box.requests[name] for name in written} == written


@PROPERTY
@given(any_pods, any_rules)
def test_rewrite_changes_nothing_but_amounts_of_the_rules(pod: Json, rules: Json) -> None:
    after, before = rewrite_pod(pod, rules), deepcopy(pod)
    for spec in (after["spec"], before["spec"]):
        for field in ("containers", "initContainers"):
            for container in spec.get(field) or []:
                if is_ignored(rules, container["name"]):
                    continue
                resources = container.pop("resources", None) or {}
                kept = {
                    side: {name: value for name, value in amounts.items() if name not in LADDERS}
                    for side, amounts in resources.items()
                    if side in {"requests", "limits"} and amounts
                }
                container["kept"] = [{side: found for side, found in kept.items() if found}, resources.get("claims")]
    assert after == before


@PROPERTY
@given(any_pods | real_pods, any_rules)
def test_violations_equal_those_of_the_model(pod: Json, rules: Json) -> None:
    for state in (pod, rewrite_pod(pod, rules)):
        found = set()
        for violation in find_violations(decode_pod(state), plan_of(rules)):
            party = "user" if violation.code is Code.RESOURCES_OUTSIDE else "rewrite"
            rule, _, rest = violation.owed.partition("[")
            name, _, places = rest.partition("] of ")
            found |= {(party, rule, name, place) for place in places.split(", ")}
        if api_server.list_errors(api_server.apply_defaults(state)):
            found -= {place for place in found if place[1] == "qosClasses"}  # a Pod that is rejected has no class
        assert found == find_owed(state, rules) | api_server.find_owed_class(state, rules)


@PROPERTY
@given(any_pods | real_pods, any_rules)
def test_rewritten_pod_has_only_findings_about_amounts_of_the_user(pod: Json, rules: Json) -> None:
    for state in (rewrite_pod(pod, rules), api_server.apply_defaults(rewrite_pod(pod, rules))):
        assert {violation.code for violation in find_violations(decode_pod(state), plan_of(rules))} <= {
            Code.RESOURCES_OUTSIDE
        }


@PROPERTY
@given(any_pods, any_rules)
def test_pod_is_unfulfilled_exactly_if_a_rewrite_changes_its_stored_form(pod: Json, rules: Json) -> None:
    codes = {violation.code for violation in find_violations(decode_pod(pod), plan_of(rules))}
    after = rewrite_pod(pod, rules, again=True)
    assert (Code.RESOURCES_UNFULFILLED in codes) == (read_stored_form(after) != read_stored_form(pod))


@PROPERTY
@given(any_pods | real_pods, any_rules)
def test_a_patch_is_minimal(pod: Json, rules: Json) -> None:
    patch = patch_of(pod, rules)
    event(f"operations: {min(len(patch), 5)}")
    expected_form = read_stored_form(apply_patch(pod, patch))
    for index in range(len(patch)):
        without = apply_patch(pod, patch[:index] + patch[index + 1 :])
        assert patch_of(without, rules) or read_stored_form(without) != expected_form, patch[index]


@PROPERTY
@given(real_pods, resource_rules())
def test_rewrite_of_a_valid_pod_is_valid(pod: Json, rules: Json) -> None:
    assume(api_server.list_errors(pod) == [])
    after = rewrite_pod(pod, rules)
    assert api_server.list_errors(api_server.apply_defaults(after)) == []


@PROPERTY
@given(any_pods, any_rules)
def test_rewrite_sets_no_limit_below_its_request(pod: Json, rules: Json) -> None:
    before = {box.place: box for box in list_all_boxes(pod)}
    for box in list_all_boxes(rewrite_pod(pod, rules)):
        for name, limit in box.limits.items():
            request, own = box.requests.get(name), before[box.place]
            if own.limits.get(name) is None or own.requests.get(name, parse_amount(0)) <= own.limits[name]:
                assert request is None or request <= limit


@PROPERTY
@given(real_pods, resource_rules())
def test_qos_class_before_and_after_a_rewrite_equals_that_of_kubernetes(pod: Json, rules: Json) -> None:
    assume(api_server.list_errors(pod) == [])
    after = api_server.apply_defaults(rewrite_pod(pod, rules))
    classes = api_server.compute_qos_class(pod), api_server.compute_qos_class(after)
    event(f"QoS: {classes[0]} to {classes[1]}")
    assert (find_qos_class(decode_pod(pod)), find_qos_class(decode_pod(after))) == classes
    assert find_qos_change(decode_pod(pod), plan_of(rules)) == (classes if classes[0] != classes[1] else None)


@PROPERTY
@given(real_pods, st.sets(st.sampled_from(list(QosClass)), min_size=1))
def test_only_pods_of_an_allowed_qos_class_are_admitted(pod: Json, classes: set[QosClass]) -> None:
    assume(api_server.list_errors(pod) == [])
    found = find_violations(decode_pod(pod), plan_of({"pod": {"qosClasses": sorted(classes)}}))
    assert [violation.owed for violation in found] == ["qosClasses"] * (
        api_server.compute_qos_class(pod) not in classes
    )


@PROPERTY
@given(any_pods, any_rules)
def test_unchanged_pod_has_no_findings(pod: Json, rules: Json) -> None:
    assert find_violations(decode_pod(pod), plan_of(rules), decode_pod(pod)) == []
