"""A watched Pod's owner, cost, and time as a live Pod."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.controller.controller_simulation import START_US, at, compiled, pod
from webhook.core.kubernetes.pod import OwnerReference, Pod, PodStatus, SchedulingGate
from webhook.core.pods.ownership import FOREVER_US, NOT_LIVE_US, Owned, ends_at_us, ignores_label, owned

SERVICES = """
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  quota: {windows: [{window: 1h, hard: {pods: 9}}], standing: {hard: {requests.memory: 9Gi, cpu: 9}}}
- name: all
  match: {namespaces: [shop, plain]}
- name: prod
  match: {namespaceSelector: {matchLabels: {tier: prod}}}
"""
LABEL = "podgate.io/service"
DAEMON_SET = (OwnerReference(kind="DaemonSet", name="d", uid="u", controller=True),)


def found(one: Pod, head: str = "", labels: dict[str, str] | None = None) -> Owned | None:
    return owned(one, compiled(SERVICES, head), labels or {})


def service(one: Pod, head: str = "", **labels: str) -> tuple[str, bool] | None:
    """Return whose a Pod is, and whether that is sure."""
    who = found(one, head, labels)
    return None if who is None else (who.service, who.is_sure)


def test_a_label_is_accepted_where_the_policy_makes_its_service_the_owner() -> None:
    assert service(pod("u", labels={"app": "web", LABEL: "web"})) == ("web", True)
    assert service(pod("u", labels={"app": "web", LABEL: "all"})) == ("all", True), "earlier policies may have said so"


def test_where_only_the_namespace_fits_the_store_must_know_the_pod() -> None:
    assert service(pod("u", labels={"app": "other", LABEL: "web"})) == ("web", False)


@pytest.mark.parametrize("label", ["gone", "prod"])
def test_a_label_of_a_service_that_owns_nothing_there_is_ignored(label: str) -> None:
    forged = pod("u", labels={"app": "web", LABEL: label})
    assert service(forged) == ("web", True)
    assert ignores_label(forged, found(forged))
    elsewhere = pod("u", labels={LABEL: label}, namespace="elsewhere")
    assert service(elsewhere) is None
    assert ignores_label(elsewhere, found(elsewhere))


def test_a_accepted_label_is_not_ignored_and_no_label_is_none() -> None:
    for one in (pod("u"), pod("u", labels={"app": "web"})):
        assert not ignores_label(one, found(one))


def test_who_has_no_label_is_whose_it_would_be_today() -> None:
    assert service(pod("u", labels={"app": "web"})) == ("web", True)
    assert service(pod("u", labels={})) == ("all", True)
    assert service(pod("u", labels={}, namespace="elsewhere")) is None


def test_labels_of_the_namespace_count() -> None:
    assert service(pod("u", labels={}, namespace="x"), tier="prod") == ("prod", True)
    assert service(pod("u", labels={LABEL: "prod"}, namespace="x"), tier="prod") == ("prod", True)
    assert service(pod("u", labels={LABEL: "prod"}, namespace="x"), tier="test") is None


EXEMPT = "exemptions: {namespaces: [plain], usernames: [bot], runtimeClasses: [kata]}"


def test_what_no_admission_can_have_counted_is_nobodys() -> None:
    assert service(pod("u", labels={}, namespace="plain"), EXEMPT) is None
    assert service(pod("u", labels={LABEL: "web"}, namespace="kube-system")) is None
    assert service(pod("u", runtime_class_name="kata"), EXEMPT) is None
    assert service(pod("u", runtime_class_name="kata")) == ("web", True)


@pytest.mark.parametrize(
    "fields",
    [{"owners": DAEMON_SET}, {"annotations": {"kubernetes.io/config.mirror": "x"}}],
    ids=["daemon set", "mirror"],
)
def test_who_looks_exempt_may_pretend_so_the_store_must_know_it(fields: dict[str, Any]) -> None:
    assert service(pod("u", **fields)) == ("web", False)
    assert service(pod("u", labels={"app": "web"}, **fields)) == ("web", False)


def test_daemon_sets_count_like_others_where_the_policy_says_so() -> None:
    assert service(pod("u", owners=DAEMON_SET), "exemptions: {daemonSets: false}") == ("web", True)


def test_where_users_are_exempt_a_pod_without_our_label_may_be_theirs() -> None:
    assert service(pod("u", labels={"app": "web"}), EXEMPT) == ("web", False)
    assert service(pod("u"), EXEMPT) == ("web", True)


def test_it_takes_what_its_service_counts() -> None:
    who = found(pod("u", cpu="1500m"))
    assert who is not None
    assert who.cost == {"pods": 1, "requests.cpu": 1500, "requests.memory": 0}
    unreadable = found(pod("u", cpu="x"))
    assert unreadable is not None
    assert unreadable.cost == {"pods": 1}


def test_it_counts_as_resource_quota_counts() -> None:
    one = pod("u")
    assert ends_at_us(one) == FOREVER_US
    for phase in ("Pending", "Running", "Unknown", "New"):
        assert ends_at_us(replace(one, status=PodStatus(phase))) == FOREVER_US
    for phase in ("Succeeded", "Failed"):
        assert ends_at_us(replace(one, status=PodStatus(phase))) == NOT_LIVE_US
    going = replace(one.metadata, deletion_timestamp=at(START_US))
    assert ends_at_us(replace(one, metadata=going)) == FOREVER_US, "no grace is told"
    going = replace(going, deletion_grace_period_seconds=30)
    assert ends_at_us(replace(one, metadata=going)) == START_US + 30_000_000


def test_it_lives_up_to_its_end() -> None:
    who = found(pod("u"))
    assert who is not None
    ending = replace(who, ends_at_us=START_US)
    assert ending.lives(START_US)
    assert not ending.lives(START_US + 1)
    assert who.lives(START_US * 2)


def test_a_pod_that_waits_at_our_gate_holds_nothing() -> None:
    waits = found(pod("u", scheduling_gates=(SchedulingGate("podgate.io/quota"),)))
    others = found(pod("u", scheduling_gates=(SchedulingGate("example.com/mine"),)))
    assert waits is not None
    assert others is not None
    assert (waits.ends_at_us, waits.created_at_us, others.ends_at_us) == (NOT_LIVE_US, 0, FOREVER_US)


def test_only_a_young_pod_is_charged_afterwards() -> None:
    policy = compiled(SERVICES)
    plan = policy.plans["web"]
    one = pod("u")
    who = owned(replace(one, metadata=replace(one.metadata, creation_timestamp=at(START_US))), policy, {})
    assert who is not None
    young = who.sighting("u", plan, START_US + plan.remember_us - 1)
    assert (young.created_at_us, young.uid, young.name, young.namespace) == (START_US, "u", "pod-u", "shop")
    assert who.sighting("u", plan, START_US + plan.remember_us).created_at_us == 0
