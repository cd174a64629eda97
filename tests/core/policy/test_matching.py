"""The owner of a Pod: the first match, Kubernetes' selector semantics, unforgeable exemptions."""

from typing import Any

import msgspec
import pytest

from tests.core.strategies import Json
from webhook.core.admission.exemptions import DAEMON_SET_CONTROLLER, find_exemption
from webhook.core.admission.review import Request
from webhook.core.kubernetes.controllers import find_owner_kind
from webhook.core.kubernetes.pod import MIRROR_ANNOTATION, Pod
from webhook.core.kubernetes.selector_match import selects
from webhook.core.kubernetes.types import LabelSelector
from webhook.core.policy.matching import Matcher
from webhook.core.policy.model import Exemptions, Match, Policy, Service


def service(name: str, **match: Any) -> Service:
    return Service(name, msgspec.convert(match, Match))


def matcher(*services: Service) -> Matcher:
    return Matcher(Policy("podgate.io/v1alpha1", "Policy", services))


def find_owner(
    policy_matcher: Matcher, namespace: str, labels: dict[str, str] | None = None, **namespace_labels: str
) -> str | None:
    found = policy_matcher.find_owner(namespace, namespace_labels, labels or {})
    return found.name if found else None


def test_the_first_matching_service_of_the_list_owns_the_pod() -> None:
    narrow = service("narrow", namespaces=["a"], podSelector={"matchLabels": {"app": "x"}})
    wide = service("wide", namespaces=["a"])
    assert find_owner(matcher(narrow, wide), "a", {"app": "x"}) == "narrow"
    assert find_owner(matcher(narrow, wide), "a", {"app": "y"}) == "wide"
    assert find_owner(matcher(wide, narrow), "a", {"app": "x"}) == "wide"


@pytest.mark.parametrize(
    ("pattern", "namespace", "fits"),
    [
        ("pay", "pay", True),
        ("pay", "pay-eu", False),
        ("pay-*", "pay-eu", True),
        ("pay-*", "pay-", True),
        ("pay-*", "pay", False),
        ("pay*", "pay", True),
        ("pay-*", "xpay-eu", False),
        ("*-eu", "pay-eu", True),
        ("*-eu", "-eu", True),
        ("*-eu", "eu", False),
        ("*-eu", "pay-eu-1", False),
        ("*", "anything", True),
    ],
)
def test_namespaces_are_exact_or_have_one_star_at_an_end(pattern: str, namespace: str, fits: bool) -> None:  # noqa: FBT001
    assert (find_owner(matcher(service("s", namespaces=[pattern])), namespace) == "s") is fits


def build_controlled_pod(kind: str, name: str, **labels: str) -> Pod:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": True}
    return msgspec.convert({"metadata": {"ownerReferences": [owner], "labels": labels}, "spec": {}}, Pod)


BY = "system:serviceaccount:kube-system:{}-controller"
HASH = {"pod-template-hash": "7d4b6c9f5d"}
BARE = msgspec.convert({"metadata": {"labels": HASH}, "spec": {}}, Pod)


@pytest.mark.parametrize(
    ("user", "pod", "kind"),
    [
        (BY.format("replicaset"), build_controlled_pod("ReplicaSet", "web-7d4b6c9f5d", **HASH), "Deployment"),
        (BY.format("replicaset"), build_controlled_pod("ReplicaSet", "web", **HASH), "ReplicaSet"),
        (BY.format("replicaset"), build_controlled_pod("ReplicaSet", "web-7d4b6c9f5d"), "ReplicaSet"),
        (BY.format("statefulset"), build_controlled_pod("StatefulSet", "db"), "StatefulSet"),
        (BY.format("job"), build_controlled_pod("Job", "backup-29012345"), "Job"),
        (BY.format("daemon-set"), build_controlled_pod("DaemonSet", "agent"), "DaemonSet"),
        (BY.format("replication"), build_controlled_pod("ReplicationController", "old"), "ReplicationController"),
        ("system:kube-controller-manager", build_controlled_pod("Job", "backup"), "Job"),
        # nobody else is believed, whatever the Pod says
        ("alice", build_controlled_pod("ReplicaSet", "web-7d4b6c9f5d", **HASH), ""),
        ("system:serviceaccount:kube-system:other", build_controlled_pod("Job", "backup"), ""),
        ("system:serviceaccount:shop:job-controller", build_controlled_pod("Job", "backup"), ""),
        (BY.format("replicaset"), BARE, ""),
    ],
)
def test_owner_kind_is_that_of_the_controller_that_creates_the_pod(user: str, pod: Pod, kind: str) -> None:
    assert find_owner_kind(user, pod) == kind
    ordered = matcher(
        service("of-kinds", namespaces=["a"], ownerKinds=["Deployment", "Job"]), service("rest", namespaces=["a"])
    )
    found = ordered.find_owner("a", {}, {}, find_owner_kind(user, pod))
    assert found is not None
    assert found.name == ("of-kinds" if kind in {"Deployment", "Job"} else "rest")


def test_unknown_owner_kind_may_be_any() -> None:
    found = matcher(service("jobs", namespaces=["a"], ownerKinds=["Job"])).find_owner("a", {}, {}, None)
    assert found is not None


@pytest.mark.parametrize(
    ("expression", "labels", "holds"),
    [
        ({"operator": "In", "values": ["x", "y"]}, {"app": "y"}, True),
        ({"operator": "In", "values": ["x"]}, {"app": "y"}, False),
        ({"operator": "In", "values": ["x"]}, {}, False),
        ({"operator": "In", "values": [""]}, {}, False),
        ({"operator": "NotIn", "values": ["x"]}, {"app": "x"}, False),
        ({"operator": "NotIn", "values": ["x"]}, {"app": "y"}, True),
        ({"operator": "NotIn", "values": ["x"]}, {}, True),
        ({"operator": "Exists"}, {"app": ""}, True),
        ({"operator": "Exists"}, {}, False),
        ({"operator": "DoesNotExist"}, {}, True),
        ({"operator": "DoesNotExist"}, {"app": ""}, False),
    ],
)
def test_selector_operators_with_present_and_absent_keys(
    expression: Json,
    labels: dict[str, str],
    holds: bool,  # noqa: FBT001
) -> None:
    selector = msgspec.convert({"matchExpressions": [{"key": "app", **expression}]}, LabelSelector)
    assert selects(selector, labels) is holds


def test_all_parts_of_a_selector_must_hold() -> None:
    both = {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}
    selector = msgspec.convert(both, LabelSelector)
    assert selects(selector, {"a": "1", "b": ""})
    assert not selects(selector, {"a": "1"})
    assert not selects(selector, {"b": ""})
    assert selects(LabelSelector(), {}), "an empty selector selects everything"
    assert selects(None, {})


def test_namespace_selector_and_names_must_both_match() -> None:
    policy_matcher = matcher(service("s", namespaces=["a*"], namespaceSelector={"matchLabels": {"tier": "prod"}}))
    assert find_owner(policy_matcher, "ab", tier="prod") == "s"
    assert find_owner(policy_matcher, "ab", tier="test") is None
    assert find_owner(policy_matcher, "b", tier="prod") is None


def test_namespace_is_named_only_by_services_that_select_it() -> None:
    policy_matcher = matcher(
        service("s", namespaces=["a"], podSelector={"matchLabels": {"x": "y"}}), service("t", anyNamespace=True)
    )
    assert policy_matcher.names("a", {})
    assert not policy_matcher.names("b", {})


def test_eviction_of_cached_namespaces_changes_no_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.core.policy.matching._NAMESPACES_MAX", 2)
    policy_matcher = matcher(service("s", namespaces=["a*"]))
    for _ in range(2):
        assert [find_owner(policy_matcher, name) for name in ("a1", "b1", "a2", "b2")] == ["s", None, "s", None]
    assert len(policy_matcher.by_namespace) <= 2


NODE = "system:node:n1"
OWNED_BY_DAEMON_SET = {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}]}
MIRROR = {"annotations": {MIRROR_ANNOTATION: "hash"}}
POLICY = Policy(
    "podgate.io/v1alpha1",
    "Policy",
    (service("s", anyNamespace=True),),
    exemptions=Exemptions(("infra", "ops-*"), ("admin", NODE + "x"), ("firecracker",)),
)


@pytest.mark.parametrize(
    ("namespace", "user", "metadata", "spec", "expected"),
    [
        ("shop", "alice", {}, {}, ""),
        ("kube-system", "alice", {}, {}, "namespace"),
        ("podgate-system", "alice", {}, {}, "namespace"),
        ("kube-system-2", "alice", {}, {}, ""),
        ("infra", "alice", {}, {}, "namespace"),
        ("infra-2", "alice", {}, {}, ""),
        ("ops-eu", "alice", {}, {}, "namespace"),
        ("shop", "admin", {}, {}, "username"),
        ("shop", "administrator", {}, {}, ""),
        ("shop", "alice", {}, {"runtimeClassName": "firecracker"}, "runtimeClass"),
        ("shop", "alice", {}, {"runtimeClassName": ""}, ""),
        ("shop", DAEMON_SET_CONTROLLER, {}, {}, "daemonSet"),
        ("shop", "alice", OWNED_BY_DAEMON_SET, {}, ""),
        ("shop", "system:serviceaccount:shop:daemon-set-controller", OWNED_BY_DAEMON_SET, {}, ""),
        ("shop", NODE, MIRROR, {}, "mirror"),
        ("shop", "alice", MIRROR, {}, ""),
        ("shop", NODE, {}, {}, ""),
        ("shop", "system:serviceaccount:shop:system:node:n1", MIRROR, {}, ""),
    ],
)
def test_exemptions_cannot_be_forged(namespace: str, user: str, metadata: Json, spec: Json, expected: str) -> None:
    pod = msgspec.convert({"metadata": {"namespace": "kube-system", **metadata}, "spec": spec}, Pod)
    request = Request("u", "CREATE", "pods", "", namespace, user, dry_run=False, pod=pod, old_pod=None)
    assert find_exemption(request, pod, POLICY) == expected


def test_empty_runtime_class_exempts_no_pod() -> None:
    policy = msgspec.structs.replace(POLICY, exemptions=Exemptions(runtime_classes=("",)))
    pod = msgspec.convert({"metadata": {}, "spec": {}}, Pod)
    request = Request("u", "CREATE", "pods", "", "shop", "alice", dry_run=False, pod=pod, old_pod=None)
    assert find_exemption(request, pod, policy) == ""


@pytest.mark.parametrize(("user", "metadata"), [(DAEMON_SET_CONTROLLER, OWNED_BY_DAEMON_SET), (NODE, MIRROR)])
def test_daemon_set_exemption_can_be_disabled_and_mirror_exemption_cannot(user: str, metadata: Json) -> None:
    policy = msgspec.structs.replace(POLICY, exemptions=msgspec.convert({"daemonSets": False}, Exemptions))
    pod = msgspec.convert({"metadata": metadata, "spec": {}}, Pod)
    request = Request("u", "CREATE", "pods", "", "shop", user, dry_run=False, pod=pod, old_pod=None)
    assert find_exemption(request, pod, policy) == ("" if user == DAEMON_SET_CONTROLLER else "mirror")
    elsewhere = msgspec.structs.replace(request, namespace="kube-system")
    assert find_exemption(elsewhere, pod, policy) == "namespace"
