"""A watched Pod's owner, cost, and time as a live Pod."""

from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from tests.controller.controller_simulation import START_US, compile_policy, format_moment, pod
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import (
    Container,
    ContainerStatus,
    OwnerReference,
    Pod,
    PodCondition,
    PodStatus,
    Resources,
    SchedulingGate,
)
from webhook.core.pods.ownership import (
    FOREVER_US,
    NOT_LIVE_US,
    OwnedPod,
    compute_end_us,
    find_ownership,
    ignores_label,
    update_known,
)

SERVICES = """
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  quota: {windows: [{window: 1h, hard: {pods: 9}}], standing: {hard: {requests.memory: 9Gi, cpu: 9}}}
- name: all
  match: {namespaces: [shop, plain]}
- name: prod
  match: {namespaceSelector: {matchLabels: {tier: prod}}}
"""
WINDOWS_ONLY = """
- name: web
  match: {namespaces: [shop]}
  quota: {windows: [{window: 1h, hard: {requests.memory: 9Gi}}]}
"""
LABEL = "podgate.io/service"
DAEMON_SET = (OwnerReference("apps/v1", "DaemonSet", "d", "u", controller=True),)
OF_ANOTHER_GROUP = (OwnerReference("x.example/v1", "DaemonSet", "d", "u", controller=True),)


def find_owned(watched_pod: Pod, head: str = "", labels: dict[str, str] | None = None) -> OwnedPod | None:
    return find_ownership(watched_pod, compile_policy(SERVICES, head), labels or {})


def find_owner(watched_pod: Pod, head: str = "", **labels: str) -> tuple[str, bool] | None:
    """Return the owner of a Pod, and whether it is sure."""
    owned_pod = find_owned(watched_pod, head, labels)
    return None if owned_pod is None else (owned_pod.service, owned_pod.is_sure)


def test_label_is_accepted_if_its_service_matches_the_pod() -> None:
    assert find_owner(pod("u", labels={"app": "web", LABEL: "web"})) == ("web", True)
    assert find_owner(pod("u", labels={"app": "web", LABEL: "all"})) == ("all", True), (
        "an earlier policy may have set it"
    )


def test_label_counts_whatever_the_other_labels_say() -> None:
    assert find_owner(pod("u", labels={"app": "other", LABEL: "web"})) == ("web", True)


@pytest.mark.parametrize("label", ["gone", "prod"])
def test_label_of_a_service_that_cannot_own_the_pod_is_ignored(label: str) -> None:
    forged = pod("u", labels={"app": "web", LABEL: label})
    assert find_owner(forged) == ("web", True)
    assert ignores_label(forged, find_owned(forged))
    elsewhere = pod("u", labels={LABEL: label}, namespace="elsewhere")
    assert find_owner(elsewhere) is None
    assert ignores_label(elsewhere, find_owned(elsewhere))


def test_pod_that_may_have_waited_is_charged_again_as_of_its_scheduling_and_others_as_of_their_creation() -> None:
    hour_us = 3_600_000_000
    queue = "quota: {windows: [{window: 10s, hard: {pods: 9}}], whenExceeded: Queue, queue: {maxWait: 2h}}"
    queueing = compile_policy(f"- name: web\n  match: {{namespaces: [shop]}}\n  {queue}\n")
    created = pod("u")
    created = replace(created, metadata=replace(created.metadata, creation_timestamp=format_moment(START_US)))
    scheduled = PodCondition("PodScheduled", "True", last_transition_time=format_moment(START_US + hour_us))
    released = replace(created, status=PodStatus(conditions=(scheduled,)))
    gated = replace(created, spec=replace(created.spec, scheduling_gates=(SchedulingGate("podgate.io/quota"),)))

    def find_charge_us(watched: Pod, policy: CompiledPolicy) -> int:
        found = find_ownership(watched, policy, {})
        assert found is not None
        return found.created_at_us

    assert [find_charge_us(watched, queueing) for watched in (gated, created, released)] == [
        0,
        START_US,
        START_US + hour_us,
    ]
    assert find_charge_us(released, compile_policy(SERVICES)) == START_US


def test_accepted_or_absent_label_is_not_ignored() -> None:
    for watched_pod in (pod("u"), pod("u", labels={"app": "web"})):
        assert not ignores_label(watched_pod, find_owned(watched_pod))


def test_pod_without_a_label_belongs_to_the_first_matching_service() -> None:
    assert find_owner(pod("u", labels={"app": "web"})) == ("web", True)
    assert find_owner(pod("u", labels={})) == ("all", True)
    assert find_owner(pod("u", labels={}, namespace="elsewhere")) is None


KINDS = """
- name: jobs
  match: {namespaces: [shop], ownerKinds: [Job]}
- name: rest
  match: {namespaces: [shop]}
"""


def test_owner_kind_of_a_watched_pod_is_sure_only_with_the_label() -> None:
    jobs = (OwnerReference("batch/v1", "Job", "j", "u", controller=True),)

    def find_service(labels: dict[str, str], owners: tuple[OwnerReference, ...] = ()) -> tuple[str, bool]:
        watched = pod("u", labels=labels)
        watched = replace(watched, metadata=replace(watched.metadata, owner_references=owners))
        owned_pod = find_ownership(watched, compile_policy(KINDS), {})
        assert owned_pod is not None
        return owned_pod.service, owned_pod.is_sure

    assert find_service({LABEL: "jobs"}, jobs) == ("jobs", True)
    assert find_service({}, jobs) == ("jobs", False), "a tenant may have written the owner while no webhook was called"
    assert find_service({LABEL: "jobs"}) == ("jobs", True)
    assert find_service({}, (OwnerReference("x.example/v1", "Job", "j", "u", controller=True),)) == ("rest", True)
    assert find_service({}) == ("rest", True)


def test_namespace_labels_select_the_owner() -> None:
    assert find_owner(pod("u", labels={}, namespace="x"), tier="prod") == ("prod", True)
    assert find_owner(pod("u", labels={LABEL: "prod"}, namespace="x"), tier="prod") == ("prod", True)
    assert find_owner(pod("u", labels={LABEL: "prod"}, namespace="x"), tier="test") is None


EXEMPT = "exemptions: {namespaces: [plain], usernames: [bot], runtimeClasses: [kata]}"


def test_exempt_pods_have_no_owner() -> None:
    assert find_owner(pod("u", labels={}, namespace="plain"), EXEMPT) is None
    assert find_owner(pod("u", labels={LABEL: "web"}, namespace="kube-system")) is None
    assert find_owner(pod("u", runtime_class_name="kata"), EXEMPT) is None
    assert find_owner(pod("u", runtime_class_name="kata")) == ("web", True)


@pytest.mark.parametrize(
    "fields",
    [{"owners": DAEMON_SET}, {"annotations": {"kubernetes.io/config.mirror": "x"}}],
    ids=["daemon set", "mirror"],
)
def test_owner_of_a_pod_that_looks_exempt_is_unsure_without_the_label(fields: dict[str, Any]) -> None:
    assert find_owner(pod("u", **fields)) == ("web", True)
    assert find_owner(pod("u", labels={"app": "web"}, **fields)) == ("web", False)


SENT = Raw(
    b'[{"manager":"kube-controller-manager","fieldsV1":{"f:metadata":{"f:labels":{"f:podgate.io/service":{}}}}}]'
)
NAMESAKE = Raw(
    b'[{"manager":"kube-controller-manager","fieldsV1":{"f:metadata":{"f:labels":{"f:app":{}},'
    b'"f:annotations":{"f:podgate.io/service":{}}},"f:spec":{"f:containers":{}}}}]'
)
WRITTEN = Raw(b'[{"manager":"kube-controller-manager","fieldsV1":{"f:metadata":{"f:labels":{"f:app":{}}}}}]')


@pytest.mark.parametrize(
    ("fields", "head", "is_sure"),
    [
        ({"owners": DAEMON_SET}, "", False),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, "", False),
        ({"owners": DAEMON_SET}, "exemptions: {daemonSets: false}", True),
        ({"owners": OF_ANOTHER_GROUP}, "", True),
        ({}, EXEMPT, True),
    ],
    ids=["daemon set", "mirror", "judged daemon set", "another group", "exempt users"],
)
def test_label_that_the_creator_of_an_exempt_pod_sent_is_unsure(
    fields: dict[str, Any], head: str, *, is_sure: bool
) -> None:
    watched = pod("u", **fields)
    sent, written, namesake = (
        replace(watched, metadata=replace(watched.metadata, managed_fields=managed))
        for managed in (SENT, WRITTEN, NAMESAKE)
    )
    assert find_owner(sent, head) == ("web", is_sure)
    assert find_owner(written, head) == ("web", True)
    assert find_owner(namesake, head) == ("web", True)


def test_owner_of_another_api_group_exempts_no_pod() -> None:
    assert find_owner(pod("u", labels={"app": "web"}, owners=OF_ANOTHER_GROUP)) == ("web", True)


@pytest.mark.parametrize(("gate", "ends"), [("podgate.io/quota", NOT_LIVE_US), ("podgate.io/other", FOREVER_US)])
def test_only_a_pod_that_waits_for_podgate_is_not_live(gate: str, ends: int) -> None:
    watched = pod("u")
    watched = replace(watched, spec=replace(watched.spec, scheduling_gates=(SchedulingGate(gate),)))
    owned_pod = find_owned(watched)
    assert owned_pod is not None
    assert owned_pod.ends_at_us == ends


def test_daemon_set_pods_have_an_owner_without_their_exemption() -> None:
    assert find_owner(pod("u", owners=DAEMON_SET), "exemptions: {daemonSets: false}") == ("web", True)


def test_owner_of_an_unlabelled_pod_is_unsure_if_users_are_exempt() -> None:
    assert find_owner(pod("u", labels={"app": "web"}), EXEMPT) == ("web", False)
    assert find_owner(pod("u"), EXEMPT) == ("web", True)


def test_cost_of_a_pod_has_the_resources_that_its_service_counts() -> None:
    owned_pod = find_owned(pod("u", cpu="1500m"))
    assert owned_pod is not None
    assert owned_pod.cost == {"pods": 1, "requests.cpu": 1500, "requests.memory": 0}
    unreadable = find_owned(pod("u", cpu="x"))
    assert unreadable is not None
    assert unreadable.cost == {"pods": 1}


def resized(spec_memory: str, status_memory: str, *, phase: str = "Running", **more: Any) -> Pod:
    """Return a Pod whose node has not done a resize."""
    asked, kept = Resources({"memory": spec_memory}), Resources({"memory": status_memory})
    statuses = (ContainerStatus(name="c", resources=kept, allocated_resources=kept.requests),)
    made = pod("u", **more)
    spec = replace(made.spec, containers=(Container("c", asked),))
    return replace(made, spec=spec, status=PodStatus(phase, container_statuses=statuses))


def test_pod_whose_resize_is_not_done_takes_live_what_its_node_keeps() -> None:
    shrunk = find_owned(resized("1Gi", "4Gi"))
    assert shrunk is not None
    assert shrunk.cost == {"pods": 1, "requests.cpu": 0, "requests.memory": 2**30}
    assert shrunk.live_cost == {**shrunk.cost, "requests.memory": 2**32}
    sighting = shrunk.build_sighting("u", compile_policy(SERVICES).plans["web"], START_US)
    assert (sighting.cost, sighting.live_cost) == (shrunk.cost, shrunk.live_cost)
    for done in (resized("1Gi", "1Gi"), resized("1Gi", "1024Mi"), resized("4Gi", "1Gi"), resized("1Gi", "much")):
        found = find_owned(done)
        assert found is not None
        assert found.live_cost is None


def test_pod_that_has_lost_its_label_takes_live_what_its_node_keeps() -> None:
    policy, before = compile_policy(SERVICES), find_owned(resized("4Gi", "4Gi"))
    assert before is not None
    found = update_known(resized("1Gi", "4Gi", labels={"app": "other"}), before, None, policy)
    assert found is not None
    assert (found.cost["requests.memory"], found.live_cost) == (2**30, before.cost)
    done = update_known(resized("1Gi", "1Gi", labels={"app": "other"}), found, None, policy)
    assert done is not None
    assert done.live_cost is None


def test_status_of_a_pod_is_not_read_where_live_pods_have_no_limit() -> None:
    found = find_ownership(resized("1Gi", "4Gi"), compile_policy(WINDOWS_ONLY), {})
    assert found is not None
    assert (found.cost["requests.memory"], found.live_cost) == (2**30, None)


def test_pod_is_live_as_long_as_resource_quota_counts_it() -> None:
    watched_pod = pod("u")
    assert compute_end_us(watched_pod) == FOREVER_US
    for phase in ("Pending", "Running", "Unknown", "New"):
        assert compute_end_us(replace(watched_pod, status=PodStatus(phase))) == FOREVER_US
    for phase in ("Succeeded", "Failed"):
        assert compute_end_us(replace(watched_pod, status=PodStatus(phase))) == NOT_LIVE_US
    terminating = replace(watched_pod.metadata, deletion_timestamp=format_moment(START_US))
    assert compute_end_us(replace(watched_pod, metadata=terminating)) == FOREVER_US, "without a grace period"
    terminating = replace(terminating, deletion_grace_period_seconds=30)
    assert compute_end_us(replace(watched_pod, metadata=terminating)) == START_US + 30_000_000


def test_pod_is_live_until_its_end() -> None:
    owned_pod = find_owned(pod("u"))
    assert owned_pod is not None
    ended = replace(owned_pod, ends_at_us=START_US)
    assert ended.is_live(START_US)
    assert not ended.is_live(START_US + 1)
    assert owned_pod.is_live(START_US * 2)


def test_pod_gated_by_podgate_is_not_live() -> None:
    gated = find_owned(pod("u", scheduling_gates=(SchedulingGate("podgate.io/quota"),)))
    gated_by_others = find_owned(pod("u", scheduling_gates=(SchedulingGate("example.com/mine"),)))
    assert gated is not None
    assert gated_by_others is not None
    assert (gated.ends_at_us, gated.created_at_us, gated_by_others.ends_at_us) == (NOT_LIVE_US, 0, FOREVER_US)


def test_only_a_young_pod_is_charged_late() -> None:
    policy = compile_policy(SERVICES)
    plan = policy.plans["web"]
    watched_pod = pod("u")
    owned_pod = find_ownership(
        replace(watched_pod, metadata=replace(watched_pod.metadata, creation_timestamp=format_moment(START_US))),
        policy,
        {},
    )
    assert owned_pod is not None
    young = owned_pod.build_sighting("u", plan, START_US + plan.remember_us - 1)
    assert (young.created_at_us, young.uid, young.name, young.namespace) == (START_US, "u", "pod-u", "shop")
    assert owned_pod.build_sighting("u", plan, START_US + plan.remember_us).created_at_us == 0
