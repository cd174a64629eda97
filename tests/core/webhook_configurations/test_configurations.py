"""Webhook configurations: each Pod that some service may own is sent once, and no others."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.strategies import OUR_ANNOTATION, PROPERTY, Json, pods, services
from tests.core.webhook_configurations.cel import is_true
from tests.core.webhook_configurations.configurations import (
    DISABLED,
    NAMES,
    names,
    patterns,
    policies,
    policy_of,
)
from webhook.core.admission.mutation import QUEUE_GATE
from webhook.core.admission.validation import check_update
from webhook.core.document import Purpose, load
from webhook.core.groups.membership import GROUP_ANNOTATION
from webhook.core.kubernetes.controllers import WORKLOAD_KINDS
from webhook.core.kubernetes.name_patterns import matches_pattern
from webhook.core.kubernetes.pod import Pod
from webhook.core.placement import SERVICE_LABEL
from webhook.core.policy.matching import Matcher
from webhook.core.policy.model import BUILT_IN_EXEMPT_NAMESPACES, FailureMode, Policy, Service, Unmatched
from webhook.core.webhook_configurations import (
    ClientConfig,
    ServiceReference,
    TooManyEntriesError,
    render_configurations,
)
from webhook.core.webhook_configurations.conditions import JUDGED_WHILE_GATED
from webhook.core.webhook_configurations.name_sets import NameSet
from webhook.core.webhook_configurations.namespace_regions import METADATA_NAME, list_all_regions, list_regions

HEAD = "apiVersion: podgate.io/v1alpha1\nkind: Policy\n"
CLIENT = ClientConfig(ServiceReference(), b"the CA")

LABELS = [{"t": t, "u": u} for t in (None, "1", "2") for u in (None, "1", "2")]
NAMESPACES = [
    (name, {METADATA_NAME: name, **{key: value for key, value in labels.items() if value is not None}})
    for name in NAMES
    for labels in LABELS
]


def find_expected_entry(policy: Policy, namespace: str, namespace_labels: dict[str, str]) -> str:
    """Return the entry of a namespace by the matching of the server, without regions."""
    matcher = Matcher(policy)
    if namespace in BUILT_IN_EXEMPT_NAMESPACES or any(
        matches_pattern(pattern, namespace) for pattern in policy.exemptions.namespaces
    ):
        return ""
    owners = [service for service in policy.services if matcher.may_own(service, namespace, namespace_labels)]
    active = [service for service in owners if not service.modes.is_all_disabled()]
    if any(service.failure_mode is FailureMode.CLOSED for service in active):
        return "closed"
    may_report = policy.unmatched is not Unmatched.ADMIT and matcher.names(namespace, namespace_labels)
    return "open" if active or may_report else ""


@PROPERTY
@given(policies)
def test_namespace_is_in_one_entry_if_a_service_may_own_it_and_else_in_none(policy: Policy) -> None:
    closed, others = list_regions(policy)
    combined = list_all_regions(policy)
    for name, labels in NAMESPACES:
        found = ["closed" for region in closed if region.holds(name, labels)]
        found += ["open" for region in others if region.holds(name, labels)]
        expected = find_expected_entry(policy, name, labels)
        assert found == ([expected] if expected else []), (name, labels)
        assert len([region for region in combined if region.holds(name, labels)]) == len(found)


@PROPERTY
@given(st.frozensets(patterns), st.frozensets(patterns), st.frozensets(patterns), names | st.sampled_from(["", "abcd"]))
def test_name_sets_match_their_patterns(
    inside: frozenset[str], outside: frozenset[str], other: frozenset[str], name: str
) -> None:
    def is_fitting(group: frozenset[str]) -> bool:
        return any(matches_pattern(pattern, name) for pattern in group)

    name_set = NameSet.from_patterns(inside, outside)
    assert (name in name_set) is (is_fitting(inside) and not is_fitting(outside))
    assert (name in name_set.intersect(other)) is (name in name_set and is_fitting(other))
    assert (name in name_set.subtract(other)) is (name in name_set and not is_fitting(other))


def _put_in_group(pod: Json, group: str | None) -> Json:
    """Return the Pod with the gate of one that waits, and its group if there is one."""
    metadata, spec = pod.get("metadata") or {}, pod["spec"]
    annotations = {**(metadata.get("annotations") or {}), **({} if group is None else {GROUP_ANNOTATION: group})}
    gates = [*(spec.get("schedulingGates") or []), {"name": QUEUE_GATE}]
    return {**pod, "metadata": {**metadata, "annotations": annotations}, "spec": {**spec, "schedulingGates": gates}}


_groups = st.sampled_from([None, "", "{}", "[]"])
_regrouped = st.builds(
    lambda pod, first, second: (_put_in_group(pod, first), _put_in_group(pod, second)), pods, _groups, _groups
)


@PROPERTY
@given(st.tuples(pods, pods) | _regrouped, services)
def test_updates_that_the_guard_denies_differ_in_a_field_of_the_conditions(
    pair: tuple[Json, Json], service: Service
) -> None:
    """The match conditions compare the fields listed here; see `conditions.render_updates`."""
    before, after = pair
    old, new = (msgspec.json.decode(msgspec.json.encode(raw), type=Pod) for raw in pair)
    plan = service.placement_plan
    assert plan is not None
    differing = [
        old.annotations.get(OUR_ANNOTATION) != new.annotations.get(OUR_ANNOTATION),
        any(old.annotations.get(key) != new.annotations.get(key) for key in plan.annotations),
        plan.allow.tolerations is not None and old.spec.tolerations != new.spec.tolerations,
        any(old.labels.get(key) != new.labels.get(key) for key in (SERVICE_LABEL, *plan.labels)),
        bool(old.spec.scheduling_gates) and old.labels != new.labels,
        bool(old.spec.scheduling_gates)
        and old.annotations.get(GROUP_ANNOTATION) != new.annotations.get(GROUP_ANNOTATION),
        before["spec"].get("schedulingGates") != after["spec"].get("schedulingGates"),
        bool(old.spec.scheduling_gates)
        and any(before["spec"].get(field) != after["spec"].get(field) for field in JUDGED_WHILE_GATED),
    ]
    assert any(differing) or not check_update(old, new, service)


_GROUP, _OTHER = '{"source":"Job","name":"train"}', '{"source":"Job","name":"other"}'


@pytest.mark.parametrize("gates", [[], [QUEUE_GATE]])
@pytest.mark.parametrize(("before", "after"), [(_GROUP, _OTHER), (_GROUP, None), (None, _GROUP), (_GROUP, _GROUP)])
def test_a_changed_group_is_sent_while_its_pod_waits(before: str | None, after: str | None, gates: list[str]) -> None:
    old, new = (
        {
            "metadata": {"annotations": {} if group is None else {GROUP_ANNOTATION: group}},
            "spec": {"schedulingGates": [{"name": name} for name in gates]},
        }
        for group in (before, after)
    )
    webhook = webhooks("services: [{name: a, match: {namespaces: [shop]}}]")["validate-open.podgate.io"]
    request = {"operation": "UPDATE", "userInfo": {"username": "alice"}}
    is_sent = is_true(expression(webhook, "judged-fields-differ"), request=request, object=new, oldObject=old)
    assert is_sent is (bool(gates) and before != after)


def policy(document: str) -> Policy:
    return load((HEAD + document).encode(), Purpose.LINT).policy.policy


def webhooks(document: str, kind: int = 1) -> dict[str, Json]:
    return {webhook["name"]: webhook for webhook in render_configurations(policy(document), CLIENT)[kind]["webhooks"]}


def expression(webhook: Json, name: str) -> str:
    return {condition["name"]: condition["expression"] for condition in webhook["matchConditions"]}[name]


def list_native(webhook: Json) -> list[Json]:
    """Return the native expressions except the exemption."""
    listed = webhook["namespaceSelector"]["matchExpressions"]
    return [
        expression for expression in listed if expression["key"] != METADATA_NAME or expression["operator"] != "NotIn"
    ]


CLOSED_AND_OPEN = """
services:
- {name: a, failureMode: Closed, match: {namespaces: [payments, "payments-*"]}}
- {name: b, match: {namespaces: [shop, payments-eu, "p*"]}}
"""


def test_a_simple_policy_has_one_webhook_of_each_kind() -> None:
    mutating, validating, own = render_configurations(policy(CLOSED_AND_OPEN), CLIENT)
    assert [webhook["name"] for webhook in mutating["webhooks"]] == ["mutate.podgate.io"]
    assert [webhook["name"] for webhook in validating["webhooks"]] == [
        "validate-closed.podgate.io",
        "validate-open.podgate.io",
        "workloads.podgate.io",
    ]
    assert [webhook["name"] for webhook in own["webhooks"]] == ["policy.podgate.io"]
    assert [found["metadata"]["name"] for found in (mutating, validating, own)] == [
        "podgate",
        "podgate",
        "podgate-policy",
    ]
    assert [found["kind"] for found in (mutating, validating, own)] == [
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ]


def test_open_entry_excludes_namespaces_of_closed_services() -> None:
    found = webhooks(CLOSED_AND_OPEN)
    closed, others = found["validate-closed.podgate.io"], found["validate-open.podgate.io"]
    assert (closed["failurePolicy"], others["failurePolicy"]) == ("Fail", "Ignore")
    assert expression(closed, "in-service-namespaces") == (
        "request.namespace == 'payments' || request.namespace.startsWith('payments-')"
    )
    assert (
        expression(others, "in-service-namespaces")
        == "request.namespace == 'shop' || request.namespace.startsWith('p')"
    )
    assert expression(others, "not-in-other-entries") == f"!({expression(closed, 'in-service-namespaces')})"


def test_mutating_webhook_fails_open_and_reviews_new_pods_only() -> None:
    webhook = webhooks(CLOSED_AND_OPEN, 0)["mutate.podgate.io"]
    assert [(rule["operations"], rule["resources"]) for rule in webhook["rules"]] == [(["CREATE"], ["pods"])]
    fields = {key: webhook[key] for key in ("failurePolicy", "reinvocationPolicy", "sideEffects", "timeoutSeconds")}
    assert fields == {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "sideEffects": "None",
        "timeoutSeconds": 3,
    }


def test_validating_webhook_reviews_new_updated_and_resized_pods() -> None:
    webhook = webhooks(CLOSED_AND_OPEN)["validate-closed.podgate.io"]
    assert [(rule["operations"], rule["resources"]) for rule in webhook["rules"]] == [
        (["CREATE", "UPDATE"], ["pods"]),
        (["UPDATE"], ["pods/resize"]),
    ]
    fields = {key: webhook[key] for key in ("sideEffects", "timeoutSeconds", "matchPolicy", "admissionReviewVersions")}
    assert fields == {
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": 5,
        "matchPolicy": "Equivalent",
        "admissionReviewVersions": ["v1"],
    }


def test_template_webhook_fails_open_and_reviews_workloads_without_side_effects() -> None:
    webhook = webhooks(CLOSED_AND_OPEN)["workloads.podgate.io"]
    built_in = [rule for rule in webhook["rules"] if rule["apiVersions"] == ["v1"]]
    assert [(rule["apiGroups"], rule["resources"], rule["operations"]) for rule in built_in] == [
        (["apps"], ["deployments", "replicasets", "statefulsets"], ["CREATE", "UPDATE"]),
        (["batch"], ["jobs", "cronjobs"], ["CREATE", "UPDATE"]),
        ([""], ["replicationcontrollers"], ["CREATE", "UPDATE"]),
    ]
    assert webhook["clientConfig"]["service"]["path"] == "/validate"
    fields = {key: webhook[key] for key in ("failurePolicy", "sideEffects", "timeoutSeconds", "matchPolicy")}
    assert fields == {
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "timeoutSeconds": 2,
        "matchPolicy": "Equivalent",
    }
    assert [condition["name"] for condition in webhook["matchConditions"]] == [
        "in-service-namespaces",
        "not-made-by-a-controller",
        "not-being-deleted",
        "template-differs",
    ]


def get_custom_rule(policy: Policy) -> Json:
    webhook = render_configurations(policy, CLIENT)[1]["webhooks"][-1]
    (rule,) = (rule for rule in webhook["rules"] if rule["apiVersions"] == ["*"])
    assert (rule["operations"], rule["scope"]) == (["CREATE", "UPDATE"], "Namespaced")
    return rule


def test_template_webhook_reviews_the_kinds_that_podgate_knows_in_all_their_versions() -> None:
    rule = get_custom_rule(policy(CLOSED_AND_OPEN))
    assert {"jobset.x-k8s.io", "batch.volcano.sh", "ray.io", "argoproj.io"} < {*rule["apiGroups"]}
    assert {"jobsets", "jobs", "cronjobs", "rayjobs", "sandboxes", "rollouts"} < {*rule["resources"]}
    assert len(rule["resources"]) == len({*rule["resources"]})


def test_template_webhook_reviews_the_kinds_of_the_policy_and_not_those_without_templates() -> None:
    service, workloads = (
        {"match": {"namespaces": ["shop"]}},
        [
            {"apiGroup": "example.com", "kind": "Train", "templates": ["template", "spec.workers.*.template"]},
            {"apiGroup": "example.com", "kind": "Ox", "templates": ["spec.template"], "resource": "oxen"},
            {"apiGroup": "example.com", "kind": "Policy", "templates": ["spec.template"]},
            {"apiGroup": "example.com", "kind": "Queue", "templates": []},
            {"apiGroup": "ray.io", "kind": "RayJob", "templates": []},
            {"apiGroup": "argoproj.io", "kind": "Rollout", "templates": []},
        ],
    )
    of_ones_own = policy_of(service, workloads=workloads)
    rule = get_custom_rule(of_ones_own)
    assert "example.com" in rule["apiGroups"]
    assert "argoproj.io" not in rule["apiGroups"], "none of its kinds has templates"
    assert {"trains", "oxen", "policies", "rayclusters"} < {*rule["resources"]}
    assert {"queues", "rayjobs", "rollouts"}.isdisjoint(rule["resources"])
    differs = expression(render_configurations(of_ones_own, CLIENT)[1]["webhooks"][-1], "template-differs")
    assert "object.?spec != oldObject.?spec" in differs
    assert "object.?template != oldObject.?template" in differs


@pytest.mark.parametrize(
    ("group", "before", "after", "expected"),
    [
        ("example.com", {"workers": 1}, {"workers": 2}, True),
        ("example.com", {"workers": 1}, {"workers": 1}, False),
        ("apps", {"template": {}, "replicas": 1}, {"template": {}, "replicas": 2}, False),
        ("apps", {"template": {}}, {"template": {"spec": {}}}, True),
    ],
)
def test_an_update_of_a_custom_kind_is_called_for_if_its_spec_differs(
    group: str, before: Json, after: Json, *, expected: bool
) -> None:
    webhook = render_configurations(policy(CLOSED_AND_OPEN), CLIENT)[1]["webhooks"][-1]
    request = {"operation": "UPDATE", "resource": {"group": group}}
    documents = {"object": {"spec": after}, "oldObject": {"spec": before}}
    assert is_true(expression(webhook, "template-differs"), request=request, **documents) is expected


def test_template_webhook_covers_the_namespaces_of_the_pod_webhook() -> None:
    mutating, validating, _ = render_configurations(policy(CLOSED_AND_OPEN), CLIENT)
    (pod_webhook,) = mutating["webhooks"]
    template_webhook = validating["webhooks"][-1]
    assert template_webhook["namespaceSelector"] == pod_webhook["namespaceSelector"]
    assert expression(template_webhook, "in-service-namespaces") == expression(pod_webhook, "in-service-namespaces")


def test_workload_kinds_with_exempt_controllers_are_not_reviewed() -> None:
    controllers = [f"system:serviceaccount:kube-system:{name}-controller" for name in ("job", "replication")]
    service = {"match": {"anyNamespace": True}}
    some_exempt = policy_of(service, exemptions={"usernames": controllers})
    webhook = render_configurations(some_exempt, CLIENT)[1]["webhooks"][-1]
    assert [rule["resources"] for rule in webhook["rules"] if rule["apiVersions"] == ["v1"]] == [
        ["deployments", "replicasets", "statefulsets"]
    ]
    all_controllers = [source.controller for source in WORKLOAD_KINDS]
    all_exempt = policy_of(service, exemptions={"usernames": all_controllers})
    without_templates = render_configurations(all_exempt, CLIENT)[1]["webhooks"]
    assert [webhook["name"] for webhook in without_templates] == ["validate-open.podgate.io"]


def test_no_webhook_has_an_object_selector() -> None:
    for found in render_configurations(policy(CLOSED_AND_OPEN), CLIENT):
        assert all("objectSelector" not in webhook for webhook in found["webhooks"])


def test_closed_selector_is_excluded_from_open_names_by_negated_expressions() -> None:
    found = webhooks("""
services:
- {name: a, failureMode: Closed, match: {namespaceSelector: {matchLabels: {team: x, tier: prod}}}}
- {name: b, match: {namespaces: [shop]}}
""")
    assert [list_native(webhook) for name, webhook in found.items() if "open" in name] == [
        [{"key": "team", "operator": "NotIn", "values": ["x"]}],
        [{"key": "team", "operator": "In", "values": ["x"]}, {"key": "tier", "operator": "NotIn", "values": ["prod"]}],
    ]


def test_selectors_become_native_entries_and_values_of_one_label_are_merged() -> None:
    teams = "".join(
        f"- {{name: t{number}, match: {{namespaceSelector: {{matchLabels: {{team: t{number}}}}}}}}}\n"
        for number in range(10, 40)
    )
    other = "- {name: o, match: {namespaceSelector: {matchExpressions: [{key: tier, operator: Exists}]}}}\n"
    found = webhooks(f"services:\n{teams}{other}")
    assert [list_native(webhook) for name, webhook in found.items() if "validate" in name] == [
        [{"key": "tier", "operator": "Exists"}],
        [
            {"key": "team", "operator": "In", "values": [f"t{number}" for number in range(10, 40)]},
            {"key": "tier", "operator": "DoesNotExist"},
        ],
    ]
    assert list(found) == [
        *("validate-open.podgate.io", "validate-open-2.podgate.io"),
        *("workloads.podgate.io", "workloads-2.podgate.io"),
    ]


def test_any_namespace_has_no_condition_on_names() -> None:
    webhook = webhooks("services: [{name: a, match: {anyNamespace: true}}]")["validate-open.podgate.io"]
    assert list_native(webhook) == []
    assert not [condition for condition in webhook["matchConditions"] if "request.namespace" in condition["expression"]]


def test_exact_exempt_namespaces_are_excluded_by_selector_and_patterns_by_condition() -> None:
    exemptions = 'exemptions: {namespaces: [infra, "ops-*", "zzz-*"]}\n'
    webhook = webhooks(exemptions + 'services: [{name: a, match: {namespaces: ["o*"]}}]')["validate-open.podgate.io"]
    assert webhook["namespaceSelector"]["matchExpressions"] == [
        {
            "key": METADATA_NAME,
            "operator": "NotIn",
            "values": ["infra", "kube-node-lease", "kube-system", "podgate-system"],
        }
    ]
    assert expression(webhook, "not-in-exempt-namespaces") == "!(request.namespace.startsWith('ops-'))"


@pytest.mark.parametrize(("head", "reviewed"), [("", False), ("exemptions: {daemonSets: false}\n", True)])
@pytest.mark.parametrize("kind", [0, 1])
def test_daemon_set_pods_are_reviewed_only_without_their_exemption(
    head: str,
    reviewed: bool,  # noqa: FBT001
    kind: int,
) -> None:
    found = webhooks(f"{head}services: [{{name: a, match: {{anyNamespace: true}}}}]", kind)
    names = {
        condition["name"]
        for webhook in found.values()
        if "pods" in webhook["rules"][0]["resources"]
        for condition in webhook["matchConditions"]
    }
    assert ("not-daemonset-pods" not in names) is reviewed
    assert "not-mirror-pods" in names
    templates = {name for webhook in found.values() for rule in webhook["rules"] for name in rule["resources"]}
    assert ("daemonsets" in templates) is (reviewed and kind == 1), "DaemonSet templates are reviewed, too"


def test_names_are_escaped_in_expressions() -> None:
    hostile = r"""exemptions: {usernames: ["a' || true || '", "b\\\n\" é"]}
services: [{name: a, match: {anyNamespace: true}}]"""
    webhook = webhooks(hostile)["validate-open.podgate.io"]
    assert expression(webhook, "not-exempt-users") == (
        r"!(request.userInfo.username in ['a\U00000027 || true || \U00000027', "
        r"""'b\U0000005c\U0000000a" é'])"""
    )


DISABLED_SERVICE = f"services:\n- {{name: idle, failureMode: Closed, match: {{namespaces: [a]}}, modes: {DISABLED}}}\n"


def test_disabled_service_has_no_webhook() -> None:
    assert [found["webhooks"] for found in render_configurations(policy(DISABLED_SERVICE), CLIENT)[:2]] == [[], []]


def test_unmatched_deny_adds_open_webhooks_for_namespaces_of_a_disabled_service() -> None:
    found = webhooks(f"unmatched: Deny\n{DISABLED_SERVICE}")
    assert {name: webhook["failurePolicy"] for name, webhook in found.items()} == {
        "validate-open.podgate.io": "Ignore",
        "workloads.podgate.io": "Ignore",
    }


def test_a_disabled_service_hides_no_namespace_of_a_later_one() -> None:
    found = webhooks(DISABLED_SERVICE + "- {name: active, failureMode: Closed, match: {namespaces: [a, b]}}\n")
    assert expression(found["validate-closed.podgate.io"], "in-service-namespaces") == "request.namespace in ['a', 'b']"


def test_too_many_names_for_one_expression_become_several_webhooks() -> None:
    listed = [f"{'n' * 50}-{number:05}" for number in range(5000)]
    services = "".join(
        f"- {{name: s{start}, match: {{namespaces: [{', '.join(listed[start : start + 1000])}]}}}}\n"
        for start in range(0, 5000, 1000)
    )
    found = webhooks(f"services:\n{services}")
    for entry in ("validate-open", "workloads"):
        texts = [expression(webhook, "in-service-namespaces") for name, webhook in found.items() if entry in name]
        assert len(texts) == 4
        assert max(map(len, texts)) < 100_000, "CEL's own limit"
        assert sorted(re.findall(r"'(n+-\d+)'", "".join(texts))) == listed, "each of them once"


def test_largest_list_of_exempt_usernames_fits_the_match_conditions() -> None:
    users = [f"{number:04}{chr(0x2028) * 200}" for number in range(1000)]
    odd = policy_of({"match": {"anyNamespace": True}}, exemptions={"usernames": users})
    webhook = render_configurations(odd, CLIENT)[1]["webhooks"][0]
    conditions = webhook["matchConditions"]
    assert len(conditions) <= 64, "the API server's own limit"
    assert len({condition["name"] for condition in conditions}) == len(conditions)
    assert max(len(condition["expression"]) for condition in conditions) < 100_000


def overlapping_selectors(labels: int) -> Policy:
    selectors = ({f"a{place}": "1", f"b{place}": "1"} for place in range(labels))
    return policy_of(*({"match": {"namespaceSelector": {"matchLabels": selector}}} for selector in selectors))


def test_too_many_overlapping_selectors_are_rejected_with_a_remedy() -> None:
    assert render_configurations(overlapping_selectors(5), CLIENT)
    with pytest.raises(TooManyEntriesError, match="more than 100 webhooks") as raised:
        render_configurations(overlapping_selectors(30), CLIENT)
    assert raised.value.remedy


def test_unsatisfiable_selector_has_no_entry() -> None:
    never = {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}
    assert list_regions(policy_of({"match": {"namespaceSelector": never}})) == ((), ())


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (
            ServiceReference("ns", "name", 8443),
            {"service": {"namespace": "ns", "name": "name", "port": 8443, "path": "/mutate"}, "caBundle": "dGhlIENB"},
        ),
        ("https://10.0.0.1:8443", {"url": "https://10.0.0.1:8443/mutate", "caBundle": "dGhlIENB"}),
        ("https://10.0.0.1:8443/", {"url": "https://10.0.0.1:8443/mutate", "caBundle": "dGhlIENB"}),
    ],
)
def test_client_config_has_a_service_or_a_url(target: ServiceReference | str, expected: Json) -> None:
    (webhook,) = render_configurations(policy_of({"match": {"anyNamespace": True}}), ClientConfig(target, b"the CA"))[
        0
    ]["webhooks"]
    assert webhook["clientConfig"] == expected


def test_policy_webhook_reviews_config_maps_of_podgate_and_fails_open() -> None:
    (webhook,) = render_configurations(policy(CLOSED_AND_OPEN), CLIENT)[2]["webhooks"]
    assert webhook["clientConfig"]["service"]["path"] == "/validate-policy"
    assert [(rule["operations"], rule["resources"]) for rule in webhook["rules"]] == [
        (["CREATE", "UPDATE"], ["configmaps"])
    ]
    assert webhook["namespaceSelector"] == {
        "matchExpressions": [{"key": METADATA_NAME, "operator": "In", "values": ["podgate-system"]}]
    }
    assert expression(webhook, "podgate-policy") == "object.metadata.name in ['podgate-policy', 'podgate-overrides']"
    assert (webhook["failurePolicy"], webhook["sideEffects"], webhook["timeoutSeconds"]) == ("Ignore", "None", 30)
