"""Breakers on Pod starts in a whole cluster: trips, effects and recovery.

Intervals are shorter than `lint` advises, to save time.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cli.command_runner import podgate
from tests.cluster.controller_fixture import MEMORY, ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.kwok import node
from tests.cluster.pod_starts import BAD, UNSCHEDULED, creation_failures, deploy, list_ready, report_starts, scale

pytest_plugins = ("tests.redis_servers.fixtures",)

LOST_PODS = 5
INTERVAL_SECONDS = 3
STARTS = f"""\
outcomes: {{source: PodStart, startDeadline: 15s}},
    errorRate: {{interval: {INTERVAL_SECONDS}s, consecutive: 1, minimumOutcomes: 2}},
    halfOpen: {{probes: 2, probeTimeout: 20s}}"""
"""A Pod that starts on a busy machine is within the deadline."""

SERVICES = {
    "sick": f"breaker: {{{STARTS}, openFor: 25s}}",
    "well": f"breaker: {{{STARTS}, openFor: 15s}}",
    "late": f"breaker: {{{STARTS}, openFor: 15s}}",
    "held": f"breaker: {{{STARTS.replace('15s', '2s')}, openFor: 2s}}",
    "tenant": f"modes: {{breaker: Audit}}\n  breaker: {{{STARTS}, openFor: 2s}}",
    "rolled": f"breaker: {{{STARTS}, openFor: 1h}}",
    "lost": f"""quota: {{windows: [{{window: 1h, hard: {{pods: {LOST_PODS + 1}}}}}]}}
  breaker: {{quotaExceeded: {{count: {LOST_PODS - 1}, within: 5m}}, openFor: 1h}}""",
}
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
defaults: {failureMode: Closed}
services:
""" + "".join(
    f"- name: {name}\n  match: {{namespaces: [starts-{name}-STORE]}}\n  {rules}\n" for name, rules in SERVICES.items()
)
PROBES = ("OPEN", "HALF_OPEN", "openForPassed")
MERGE = "application/merge-patch+json"
DEDICATED = "kept-for-starts"
TOLERATIONS = [{"key": DEDICATED, "operator": "Exists", "effect": "NoSchedule"}]


on_redis = pytest.mark.parametrize("store", ["redis"], indirect=True)
in_memory = pytest.mark.parametrize("store", [MEMORY], indirect=True)


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities, store: str, store_url: str) -> Iterator[ControllerFixture]:
    namespaces = [f"starts-{name}-{store}" for name in SERVICES]
    with controller_fixture(plane, identities, POLICY.replace("STORE", store), namespaces, store_url) as fixture:
        yield fixture


def breaker_status(running: ControllerFixture, service: str) -> dict[str, Any]:
    """Return a breaker as `podgate status` shows it."""
    services = running.installation.servers[0].status()["services"]
    return dict({row["name"]: row for row in services}[service]["breaker"])


def state(running: ControllerFixture, service: str) -> str:
    """Return the state of a breaker in metrics."""
    metrics = running.installation.servers[0].metrics()
    states_of_service = [
        name for name in metrics if name.startswith("podgate_breaker_state{") and f'service="{service}"' in name
    ]
    [active_state] = [name for name in states_of_service if metrics[name] == 1]
    return active_state.partition('state="')[2].partition('"')[0]


def transitions(running: ControllerFixture, service: str) -> dict[tuple[str, str, str], int]:
    """Return the counts of all transitions on servers and controllers by states and reason."""
    transition_counts: dict[tuple[str, str, str], int] = {}
    for process in {*running.installation.servers, *running.installation.controllers}:
        for name, count in process.metrics().items():
            if name.startswith("podgate_breaker_transitions_total{") and f'service="{service}"' in name:
                labels = dict(part.split("=") for part in name.partition("{")[2].rstrip("}").split(","))
                key = (labels["from"].strip('"'), labels["to"].strip('"'), labels["reason"].strip('"'))
                transition_counts[key] = transition_counts.get(key, 0) + int(count)
    return {key: count for key, count in transition_counts.items() if count}


def outcomes(running: ControllerFixture, service: str) -> dict[str, int]:
    """Return the number of Pod starts of a breaker by result."""
    counts: dict[str, int] = {}
    for process in running.controllers:
        for name, count in process.metrics().items():
            if name.startswith("podgate_outcomes_total{") and f'service="{service}"' in name:
                result = name.partition('result="')[2].partition('"')[0]
                counts[result] = counts.get(result, 0) + int(count)
    return {result: count for result, count in counts.items() if count}


def trip(running: ControllerFixture, namespace: str, service: str, replicas: int = 4, name: str = "web") -> None:
    """Create unschedulable Pods, and wait until the breaker is open."""
    deploy(running.plane, namespace, name, replicas, nodeSelector={DEDICATED: service}, tolerations=TOLERATIONS)
    running.wait(lambda: breaker_status(running, service)["state"] == "OPEN", f"{service} to trip")


@in_memory
def test_unschedulable_pods_trip_their_service_which_closes_when_nodes_appear(
    running: ControllerFixture, store: str
) -> None:
    sick, well = f"starts-sick-{store}", f"starts-well-{store}"
    deploy(running.plane, well, "web", 2)
    running.wait(lambda: outcomes(running, "well") == {"ok": 2}, "the healthy starts to be counted")
    trip(running, sick, "sick")
    status, response = running.installation.create_pod(sick)
    assert (status, "BreakerOpen: service sick: the breaker is open until 20" in response["message"]) == (503, True), (
        response
    )
    assert "Z (errorRate: >= 95% in each of 1 intervals of 3s, " in response["message"]
    assert "probes are admitted from then on" in response["message"]
    scale(running.plane, sick, "web", 6)
    running.wait(lambda: "BreakerOpen: service sick" in creation_failures(running, sick), "the ReplicaSet to be denied")
    assert running.installation.create_pod(well)[0] == 201

    opened = breaker_status(running, "sick")
    assert (opened["openRemainingSeconds"] > 0, opened["trippedBy"].startswith("errorRate: >= 95%")) == (True, True)
    assert state(running, "sick") == "OPEN"
    running.wait(lambda: outcomes(running, "sick") == {"Unschedulable": 4}, "each start to be counted")
    [server] = running.installation.servers
    assert server.metrics()['podgate_breaker_tripped_timestamp_seconds{service="sick"}'] > 0
    assert server.metrics()['podgate_breaker_not_permitted_total{service="sick"}'] > 0
    assert "OPEN" in podgate("status", "--server", f"http://{server.plain}").out

    taint = {"key": DEDICATED, "effect": "NoSchedule"}
    running.plane.add_nodes(node(f"starts-{store}", [taint], **{DEDICATED: "sick"}))
    running.wait(lambda: PROBES in transitions(running, "sick"), "the breaker to be half-open")
    scale(running.plane, sick, "web", 7)  # a change ends the backoff of the ReplicaSet
    running.wait(lambda: state(running, "sick") == "CLOSED", "probes to close it")
    assert transitions(running, "sick") == {
        ("CLOSED", "OPEN", "errorRate"): 1,
        PROBES: 1,
        ("HALF_OPEN", "CLOSED", "probesSucceeded"): 1,
    }
    assert server.total("podgate_breaker_probes_leased_total", 'service="sick"') == 2
    running.wait(lambda: len(list_ready(running, sick)) == 7, "all to run")
    assert (transitions(running, "well"), state(running, "well")) == ({}, "CLOSED")
    assert set(outcomes(running, "well")) == {"ok"}
    running.plane.kubectl("delete", "deployment", "web", "-n", sick)
    running.plane.kubectl("delete", "node", f"starts-{store}")


@on_redis
def test_crashing_rollout_trips_and_a_rollback_closes_early(running: ControllerFixture, store: str) -> None:
    namespace = f"starts-rolled-{store}"
    wait = running.wait

    def add_reports(condition: Callable[[], Any]) -> Callable[[], Any]:
        def report_and_check() -> Any:
            report_starts(running, namespace)
            return condition()

        return report_and_check

    deploy(running.plane, namespace, "web", 3, kind="Recreate", **UNSCHEDULED)
    wait(add_reports(lambda: outcomes(running, "rolled") == {"ok": 3}), "the first starts to be counted")
    interval_number = time.time() // INTERVAL_SECONDS
    wait(
        lambda: time.time() // INTERVAL_SECONDS > interval_number,
        "their interval to end, so that they do not dilute the failures",
    )
    running.plane.kubectl("set", "image", "deployment/web", f"c={BAD}", "-n", namespace)
    wait(add_reports(lambda: breaker_status(running, "rolled")["state"] == "OPEN"), "the rollout to trip")
    assert outcomes(running, "rolled") == {"ok": 3, "CrashLoop": 3}
    [failed] = breaker_status(running, "rolled")["failed"]
    scale(running.plane, namespace, "web", 4)
    wait(
        lambda: "roll back (a controller that did not cause" in creation_failures(running, namespace),
        "the denial to advise a rollback",
    )
    assert running.installation.create_pod(namespace)[0] == 503

    running.plane.kubectl("rollout", "undo", "deployment/web", "-n", namespace)
    wait(
        add_reports(lambda: state(running, "rolled") == "CLOSED"),
        "the rollback to close the breaker before openFor has passed",
    )
    assert transitions(running, "rolled") == {
        ("CLOSED", "OPEN", "errorRate"): 1,
        ("OPEN", "CLOSED", "probesSucceeded"): 1,
    }
    wait(add_reports(lambda: len(list_ready(running, namespace)) == 4), "all Pods of the previous version to run")
    owners = {pod["metadata"]["ownerReferences"][0]["uid"] for pod in running.installation.pods(namespace)}
    assert failed.partition(":")[2] not in owners


@on_redis
def test_lost_node_trips_no_breaker_when_quota_denies_the_replacements(running: ControllerFixture, store: str) -> None:
    namespace, plane = f"starts-lost-{store}", running.plane
    taint = {"key": DEDICATED, "effect": "NoSchedule"}
    plane.add_nodes(node(f"lost-{store}", [taint], **{DEDICATED: "lost"}))
    for number in range(LOST_PODS):
        deploy(plane, namespace, f"web-{number}", 1, nodeSelector={DEDICATED: "lost"}, tolerations=TOLERATIONS)
    running.wait(lambda: len(list_ready(running, namespace)) == LOST_PODS, "all to run")
    plane.kubectl("taint", "node", f"lost-{store}", "lost=true:NoExecute")
    denials = 'podgate_quota_denied_total{of="service",resource="pods",service="lost",window="1h"}'
    [server] = running.installation.servers
    running.wait(
        lambda: creation_failures(running, namespace).count("QuotaExceeded") == LOST_PODS - 1,
        "all replacements but one to be denied",
    )
    running.wait(lambda: server.metrics()[denials] >= LOST_PODS, "more replacements to be denied")
    assert running.count_used("lost") == LOST_PODS + 1, "replacements are charged"
    assert (transitions(running, "lost"), state(running, "lost")) == ({}, "CLOSED")
    excused = sum(
        controller.total("podgate_breaker_excused_total", 'service="lost"') for controller in running.controllers
    )
    assert excused == LOST_PODS
    # Denials of other Pods count: they trip the breaker.
    for number in range(LOST_PODS):
        deploy(plane, namespace, f"more-{number}", 1)
    running.wait(lambda: transitions(running, "lost") == {("CLOSED", "OPEN", "quotaExceeded"): 1}, "others to trip it")
    plane.kubectl("delete", "deployment", "--all", "-n", namespace)
    plane.kubectl("delete", "node", f"lost-{store}")


# --- one tenant, and the breaker of another ---


def create_labelled(
    running: ControllerFixture, namespace: str, service: str, **metadata: Any
) -> tuple[str, dict[str, str]]:
    """Create a Pod with the label of a service; return its path and its stored labels."""
    labels = {"podgate.io/service": service, "app": "web"}
    path = f"/api/v1/namespaces/{namespace}/pods"
    body = {"containers": [{"name": "c", "image": BAD}], **UNSCHEDULED}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "evil-", "labels": labels, **metadata}}
    status, answer = running.plane.api.request("POST", path, {**pod, "spec": body})
    assert status == 201, answer
    return f"{path}/{answer['metadata']['name']}", answer["metadata"]["labels"]


def finish(running: ControllerFixture, path: str, phase: str = "Failed") -> None:
    status, answer = running.plane.api.request("PATCH", f"{path}/status", {"status": {"phase": phase}}, MERGE)
    assert status in {200, 404}, answer  # a Pod with a foreign owner may already be garbage-collected


def breaker_record(running: ControllerFixture, service: str) -> tuple[Any, ...]:
    """Return what a tenant must not change: the status of a breaker, its transitions, and its counted errors."""
    status = {key: value for key, value in breaker_status(running, service).items() if key != "openRemainingSeconds"}
    errors = {result: count for result, count in outcomes(running, service).items() if result != "ok"}
    return status, transitions(running, service), errors


def wait_for_later_start(running: ControllerFixture, store: str) -> None:
    """Wait until all earlier changes are processed: one more Pod starts, of an otherwise unused service."""
    before = outcomes(running, "late").get("ok", 0)
    assert running.installation.create_pod(f"starts-late-{store}")[0] == 201
    running.wait(lambda: outcomes(running, "late").get("ok", 0) == before + 1, "a later start to be counted")


@in_memory
def test_pod_labels_of_a_tenant_trip_no_breaker_of_others(running: ControllerFixture, store: str) -> None:
    namespace, before = f"starts-tenant-{store}", breaker_record(running, "well")
    pods = [create_labelled(running, namespace, "well") for _ in range(4)]
    assert {labels["podgate.io/service"] for _, labels in pods} == {"tenant"}
    labels = {"metadata": {"labels": {"podgate.io/service": "well"}}}
    status, answer = running.plane.api.request("PATCH", pods[0][0], labels, MERGE)
    assert (status, answer["metadata"]["labels"]["podgate.io/service"]) == (200, "well"), "Audit denies nothing"
    for path, _ in pods:
        finish(running, path)
    running.wait(lambda: ("CLOSED", "OPEN", "errorRate") in transitions(running, "tenant"), "its own breaker to trip")
    running.wait(lambda: outcomes(running, "tenant") == {"Failed": 4}, "all failures to be counted")
    wait_for_later_start(running, store)
    assert breaker_record(running, "well") == before


@in_memory
def test_namespaces_of_a_tenant_trip_no_breaker_of_others(running: ControllerFixture, store: str) -> None:
    namespace, before = f"starts-elsewhere-{store}", breaker_record(running, "well")
    running.plane.create_namespace(namespace, **{"podgate.io/service": "well", "app": "web"})
    [server] = running.installation.servers
    ignored = server.total("podgate_labels_ignored_total")
    pods = [create_labelled(running, namespace, "well") for _ in range(4)]
    assert {labels["podgate.io/service"] for _, labels in pods} == {"well"}, "Pods there are not reviewed"
    for path, _ in pods:
        finish(running, path)
    wait_for_later_start(running, store)
    assert breaker_record(running, "well") == before
    assert server.total("podgate_labels_ignored_total") == ignored + 4
    running.plane.kubectl("delete", "namespace", namespace, "--wait=false")


@in_memory
def test_pod_churn_of_a_tenant_trips_no_breaker_of_others(running: ControllerFixture, store: str) -> None:
    namespace, well = f"starts-tenant-{store}", f"starts-well-{store}"
    deploy(running.plane, well, "web", 2)
    running.wait(lambda: len(list_ready(running, well)) >= 2, "the healthy ones to run")
    running.wait(lambda: outcomes(running, "well")["ok"] >= 2, "the starts to be counted")
    owner = next(pod for pod in list_ready(running, well) if "ownerReferences" in pod["metadata"])
    owners = owner["metadata"]["ownerReferences"]
    before = breaker_record(running, "well")
    for number in range(20):
        path, _ = create_labelled(running, namespace, "well", ownerReferences=owners)
        if number % 2:
            finish(running, path)
        assert running.plane.api.request("DELETE", path)[0] in {200, 404}
    wait_for_later_start(running, store)
    assert breaker_record(running, "well") == before
    scale(running.plane, well, "web", 3)
    running.wait(lambda: len(list_ready(running, well)) == 3, "its Pods to be admitted as before")


@in_memory
def test_successful_starts_of_a_tenant_close_no_breaker_of_others(running: ControllerFixture, store: str) -> None:
    trip(running, f"starts-held-{store}", "held")
    running.wait(lambda: PROBES in transitions(running, "held"), "the breaker to be half-open")
    before = breaker_record(running, "held")
    for namespace in (f"starts-tenant-{store}", f"starts-well-{store}"):
        for _ in range(4):
            path, _ = create_labelled(running, namespace, "held")
            finish(running, path, "Succeeded")
    wait_for_later_start(running, store)
    assert (breaker_record(running, "held"), before[0]["probes"]["succeeded"]) == (before, 0)
