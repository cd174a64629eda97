"""`podgate explain` on a real control plane: twelve fates of Pods, each with its token and its cause."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import Done, podgate
from tests.cluster import kubelet_reports
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.cluster.kwok import ZONE, node
from tests.cluster.pod_starts import deploy
from tests.redis_servers import RedisServer, names

WEB, PLACED = "checkout", "reports"  # as on the page
OPEN, SIZED, NOWHERE, FREE = (f"explain-{name}" for name in ("open", "sized", "nowhere", "free"))
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
exemptions: {{namespaces: [{FREE}]}}
services:
- name: web
  match: {{namespaces: [{WEB}]}}
  quota: {{windows: [{{window: 1h, hard: {{pods: 1}}}}]}}
- name: open
  match: {{namespaces: [{OPEN}]}}
  breaker: {{quotaExceeded: {{count: 9, within: 1m}}, openFor: 1h}}
- name: placed
  match: {{namespaces: [{PLACED}]}}
  placement: {{topology: [{{level: Zone, in: [zone-a]}}], nodeSelector: {{kubernetes.io/os: linux}}}}
- name: sized
  match: {{namespaces: [{SIZED}]}}
  resources: {{container: {{max: {{cpu: 1}}}}, whenOutside: Deny}}
- name: nowhere
  match: {{namespaces: [{NOWHERE}]}}
  placement: {{nodeSelector: {{disk: optical}}}}
"""
pytest_plugins = ("tests.redis_servers.fixtures",)

DEDICATED = "explain-dedicated"
REPORTED: list[Callable[[], None]] = []
"""Of each Pod whose status was written: writes it again where kwok has overwritten it."""
_WAITING = {
    "ImagePullBackOff": 'Back-off pulling image "i"',
    "CrashLoopBackOff": "back-off 10s restarting failed container",
}


@pytest.fixture(scope="module")
def store_url(shared_redis: Callable[[str], RedisServer]) -> str:
    return shared_redis(names()[0]).url


@pytest.fixture(scope="module")
def shop(plane: ControlPlane, identities: Identities, store_url: str) -> Iterator[Installation]:
    """Install Podgate, and create a workload or Pod for each fate."""
    namespaces = [WEB, OPEN, PLACED, SIZED, NOWHERE, FREE]
    with install_podgate(plane, identities.files, POLICY, namespaces, arguments=flags(store_url)) as installation:
        installation.wait_for_calls()
        taint = {"key": DEDICATED, "value": "gpu", "effect": "NoSchedule"}
        plane.add_nodes(node(DEDICATED, [taint], zone="zone-a", **{DEDICATED: "yes"}))
        create_workloads(installation)
        create_pods(installation)
        yield installation
        plane.delete(f"/api/v1/nodes/{DEDICATED}", f"/api/v1/namespaces/{NAMESPACE}/configmaps/podgate-overrides")


def flags(store_url: str) -> tuple[str, ...]:
    return ("--drain", "0s", "--decision-listen", "127.0.0.1:0", "--store", store_url, "--store-deadline", "10s")


def create_workloads(installation: Installation) -> None:
    plane = installation.plane
    options = ("--for", "1h", "--reason", "INC-1", "--kubeconfig", plane.kubeconfig)
    assert podgate("breaker", "open", "open", *options).code == 0
    states = installation.servers[0].status
    plane.wait(lambda: states()["services"][1]["breaker"]["state"] == "FORCED_OPEN", "the breaker to be forced open")
    deploy(plane, WEB, "web", 3)
    deploy(plane, OPEN, "web", 1)
    deploy(plane, PLACED, "conflict", 1, nodeSelector={"kubernetes.io/os": "windows"})
    greedy = {"name": "c", "image": "i", "resources": {"limits": {"cpu": "5"}}}
    template = {"metadata": {"labels": {"app": "greedy"}}, "spec": {"restartPolicy": "Never", "containers": [greedy]}}
    job = {"template": template, "backoffLimit": 0}
    plane.apply(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "greedy", "namespace": SIZED}, "spec": job}
    )


def create_pods(installation: Installation) -> None:
    pods: dict[str, tuple[str, dict[str, Any]]] = {
        "fine": (PLACED, {}),
        "gated": (PLACED, {"schedulingGates": [{"name": "example.com/budget"}]}),
        "monthly": (PLACED, {"nodeSelector": {ZONE: "zone-b"}}),
        "tainted": (PLACED, {"nodeSelector": {DEDICATED: "yes"}}),
        "daily": (PLACED, {}),
        "crashing": (PLACED, {}),
        "lost": (NOWHERE, {}),
        "hasty": (PLACED, {"nodeSelector": {"disk": "floppy"}}),
        "free": (FREE, {}),
    }
    for name, (namespace, spec) in pods.items():
        status, answer = installation.create_pod(namespace, name, **spec)
        assert status == 201, answer
    for name, reason in (("daily", "ImagePullBackOff"), ("crashing", "CrashLoopBackOff")):
        fail(installation, name, reason)


def fail(installation: Installation, name: str, reason: str) -> None:
    """Write the status that a kubelet writes for a container which waits for this reason."""
    path = f"/api/v1/namespaces/{PLACED}/pods/{name}"
    installation.plane.wait(lambda: installation.plane.api.get(path)["status"]["phase"] == "Running", f"{name} to run")
    container: dict[str, Any] = {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    container["state"] = {"waiting": {"reason": reason, "message": _WAITING[reason]}}
    if reason == "CrashLoopBackOff":
        container["restartCount"] = 4
    conditions = [{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}]
    uid = installation.plane.api.get(path)["metadata"]["uid"]
    status = {"conditions": conditions, "containerStatuses": [container]}
    written = kubelet_reports.write(installation.plane, path, status)
    REPORTED.append(lambda: kubelet_reports.write_again(installation.plane, path, uid, written))


NO_RECORDS = "http://127.0.0.1:1"


def explain(installation: Installation, *arguments: str, server: str = "") -> Done:
    where = server or f"http://{installation.servers[0].decisions}"
    return podgate("explain", *arguments, "--kubeconfig", installation.plane.kubeconfig, "--server", where)


def wait_for_page(installation: Installation, expected: str, *arguments: str) -> str:
    """Wait until the first line matches, and return the page: controllers and the scheduler need a moment."""
    seen: list[str] = []

    def matches() -> bool:
        for write_again in REPORTED:
            write_again()
        seen.append(explain(installation, *arguments).out)
        return re.match(expected, seen[-1]) is not None

    try:
        installation.plane.wait(matches, f"{arguments} to be explained", installation.servers[0].name)
    except Exception as error:
        raise AssertionError(f"{seen[-1]}\ndoes not match {expected}") from error
    return seen[-1]


QUOTA = r"QuotaExceeded: service web: pods in 1h: hard 1, used 1, asked 1; could pass from 20\S+Z"
IN_ZONE_A = r"placement.topology[0] (topology.kubernetes.io/zone In [zone-a])"
FATES: dict[str, tuple[tuple[str, ...], str]] = {
    "quota": (("deploy/web", "-n", WEB), rf"Denied: 2 of 3 Pods: {QUOTA}\n"),
    "breaker": (
        ("deploy/web", "-n", OPEN),
        r"BreakerOpen: 1 of 1 Pods: service open: the breaker was forced open until 20",
    ),
    "placement conflict": (
        ("deploy/conflict", "-n", PLACED),
        r"Denied: 1 of 1 Pods: PlacementConflict: service placed: spec.nodeSelector\[kubernetes.io/os\] is 'windows', ",
    ),
    "resources": (
        ("job/greedy", "-n", SIZED),
        r"Denied: 1 of 1 Pods: ResourcesOutside: service sized: container c",
    ),
    "gated": (("pod", f"{PLACED}/gated"), r"GatedByOthers: example.com/budget: its owner must remove the gate\n"),
    "unschedulable by the policy": (
        ("pod", f"{NOWHERE}/lost"),
        r"Unschedulable: by the policy: placement.nodeSelector\[disk\] \(disk=optical\) leaves 0 of \d+ nodes\n",
    ),
    "unschedulable by its own terms": (
        ("pod", f"{PLACED}/hasty"),
        r"Unschedulable: by its own terms: spec.nodeSelector\[disk\] \(disk=floppy\) fits 0 of \d+ nodes\n",
    ),
    "unschedulable by both": (
        ("pod", f"{PLACED}/monthly"),
        r"Unschedulable: by the policy and its own terms together: the policy leaves 3 of 5 nodes, its own terms 2, ",
    ),
    "unschedulable by taints": (
        ("pod", f"{PLACED}/tainted"),
        rf"Unschedulable: by taints: {DEDICATED}=gpu:NoSchedule on 1 of the 1 nodes that fit its terms\n",
    ),
    "no image": (("pod", f"{PLACED}/daily"), r"Failed: container c: ImagePullBackOff: Back-off pulling image"),
    "crash loop": (
        ("pod", f"{PLACED}/crashing"),
        r"Failed: container c: CrashLoopBackOff: 4 restarts: back-off 10s",
    ),
    "running": (("pod", f"{PLACED}/fine"), r"Running: on node-a\d, 1 of 1 containers ready\n"),
    "exempt": (
        ("pod", f"{FREE}/free"),
        rf"Exempt: namespace {FREE} is exempt \(exemptions.namespaces, .*\); Running on node-",
    ),
}
"""Of each fate: what is asked, and the first line. A Pod that waits for quota needs the queue, which is not there."""


@pytest.mark.parametrize("fate", FATES)
def test_fate_has_its_token_and_cause(shop: Installation, fate: str) -> None:
    arguments, expected = FATES[fate]
    page = wait_for_page(shop, expected, *arguments)
    code = explain(shop, *arguments).code
    assert code == (3 if expected.startswith(("Denied", "BreakerOpen")) else 0), page


def test_figures_of_a_refused_pod_are_those_of_the_denial(shop: Installation) -> None:
    wait_for_page(shop, "Denied: 2 of 3", "deploy/web", "-n", WEB)
    document = json.loads(explain(shop, "deploy/web", "-n", WEB, "-o", "json").out)
    [replica_set] = shop.plane.api.get(f"/apis/apps/v1/namespaces/{WEB}/replicasets")["items"]
    [failure] = [
        condition for condition in replica_set["status"]["conditions"] if condition["type"] == "ReplicaFailure"
    ]
    figures = document["summary"].partition("QuotaExceeded: ")[2].partition("; could pass")[0]
    assert figures == "service web: pods in 1h: hard 1, used 1, asked 1"
    assert figures in failure["message"]
    assert document["pods"] == {"Denied": 2, "Running": 1}
    [limit] = document["quota"]
    assert {name: limit[name] for name in ("hard", "used", "asked", "over")} == {
        "hard": 1,
        "used": 1,
        "asked": 1,
        "over": True,
    }
    assert f"could pass from {limit['freeAt']}" in document["summary"]


def test_refused_pod_is_explained_without_a_record(shop: Installation) -> None:
    page = explain(shop, "deploy/web", "-n", WEB, server=NO_RECORDS).out
    assert re.match(rf"Denied: 2 of 3 Pods: {QUOTA}\n", page), page
    assert "by the controller's Event; no record of the review was found" in page
    assert "not read    records: no server answers at http://127.0.0.1:1" in page


def test_admission_of_a_pod_has_its_rules_and_its_node_filters(shop: Installation) -> None:
    page = explain(shop, "pod", f"{PLACED}/monthly", "--rules").out
    assert "Admit, service placed (services[2]: namespaces reports)" in page
    assert "rewritten spec.nodeSelector[kubernetes.io/os]=linux (placement.nodeSelector[kubernetes.io/os])" in page
    assert "placement.topology[0] (topology.kubernetes.io/zone In [zone-a]) fits 3" in page
    assert "spec.nodeSelector[topology.kubernetes.io/zone] (topology.kubernetes.io/zone=zone-b) fits 2" in page
    assert "  rule      validate own      service placed" in page


def test_a_pod_is_found_by_its_uid(shop: Installation) -> None:
    """The search uses the namespace of its record, and all namespaces if there is no record."""
    uid = shop.plane.api.get(f"/api/v1/namespaces/{NOWHERE}/pods/lost")["metadata"]["uid"]
    by_name = explain(shop, "pod", f"{NOWHERE}/lost").out
    assert explain(shop, uid).out == by_name
    assert explain(shop, uid, server=NO_RECORDS).out.splitlines()[:2] == by_name.splitlines()[:2]


def test_what_the_user_may_not_read_is_named(shop: Installation) -> None:
    shop.plane.kubectl("create", "rolebinding", "explain-view", "--clusterrole=view", "--user=viewer", "-n", NOWHERE)
    viewer = shop.plane.write_kubeconfig("viewer")

    def page() -> str:
        return podgate(
            "explain", "pod", f"{NOWHERE}/lost", "--kubeconfig", viewer, "--server", "http://127.0.0.1:1"
        ).out

    shop.plane.wait(lambda: page().startswith("Unschedulable: 0/5 nodes are available"), "the viewer to read the Pod")
    assert "not read    nodes: you may not list nodes" in page()
    kubeconfig = shop.plane.write_kubeconfig("nobody")
    nobody = podgate("explain", "pod", f"{NOWHERE}/lost", "--kubeconfig", kubeconfig, "--server", NO_RECORDS)
    assert nobody.code == 4
    first, *unread = nobody.err.splitlines()
    assert first.endswith(": the object cannot be read, and its records cannot be read")
    assert any(
        line.startswith(f"  not read: pod lost: you may not get pods named lost in {NOWHERE}; ") for line in unread
    ), unread
    absent = podgate(
        "explain", "pod", f"{NOWHERE}/absent", "--kubeconfig", shop.plane.kubeconfig, "--server", NO_RECORDS
    )
    assert absent.err.splitlines()[0].endswith(": no such object, and its records cannot be read")


# --- the page ---

PAGE = (Path(__file__).parents[2] / "docs" / "explain.md").read_text()
STORIES = re.findall(r"^```sh\npodgate explain ([^\n]*)\n```\n\n```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def remove_varying(text: str) -> str:
    """Return a page without what differs between runs: times, hashes, the node, and the width of the terminal."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    return " ".join(re.sub(r"(policy|node) (?:[0-9a-f]{8}|node-a\d)", r"\1 X", text).split())


def test_the_page_begins_with_three_stories() -> None:
    assert len(STORIES) == 3
    assert PAGE.index(STORIES[-1][1]) < PAGE.index("\n## ")


@pytest.mark.parametrize("story", range(3))
def test_the_page_shows_what_the_command_prints(shop: Installation, story: int) -> None:
    command, shown = STORIES[story]
    page = wait_for_page(shop, re.escape(shown.partition(":")[0]), *command.split())
    assert remove_varying(page) == remove_varying(shown)


def test_decisions_of_a_dead_replica_are_explained_by_another(shop: Installation, store_url: str) -> None:
    [first] = shop.servers

    def explain_by_record() -> dict[str, Any]:
        document: dict[str, Any] = json.loads(explain(shop, "pod", f"{PLACED}/fine", "-o", "json").out)
        return document

    decided, kept = explain_by_record(), first.status()["decisions"]["kept"]
    shop.plane.wait(lambda: first.status()["decisions"]["written"] >= kept, "the records to be written", first.name)
    second = shop.start_server(*flags(store_url))
    shop.stop_server(first, kill=True)
    assert (decided["admission"]["source"], shop.servers) == ("record", [second])
    shop.plane.wait(
        lambda: explain_by_record()["admission"] == decided["admission"], "the second to know it", second.name
    )
    assert explain_by_record()["rules"] == decided["rules"]
