"""`podgate explain` on a real control plane after a cause has changed: no text of the past is told as the present."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.command_runner import podgate
from tests.cluster import kubelet_reports as kubelet
from tests.cluster.controlplane import ControlPlane
from tests.cluster.explained_fates import UNSEEN, delete, workload
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.cluster.pod_starts import deploy
from webhook.core.quota import STANDING

TUTORIAL, WEB, ORDERED, RETRIED, BLAMED, PARTLY = (
    f"changes-{name}" for name in ("tutorial", "web", "ordered", "retried", "blamed", "partly")
)
BREAKER = "breaker: {quotaExceeded: {count: %s, within: 1m, countBy: Request}, openFor: 1h}"
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: tutorial
  match: {{namespaces: [{TUTORIAL}]}}
  quota: {{windows: [{{window: 1h, hard: {{pods: 1}}}}]}}
  {BREAKER % 3}
- name: web
  match: {{namespaces: [{WEB}]}}
  quota: {{windows: [{{window: 1h, hard: {{pods: 1}}}}]}}
  {BREAKER % 1000}
- name: ordered
  match: {{namespaces: [{ORDERED}]}}
  quota: {{standing: {{hard: {{pods: 2}}, surge: 0}}}}
- name: retried
  match: {{namespaces: [{RETRIED}]}}
  quota: {{standing: {{hard: {{pods: 1}}, surge: 0}}}}
- name: blamed
  match: {{namespaces: [{BLAMED}]}}
  placement: {{nodeSelector: {{disk: optical}}}}
"""
NO_RECORDS = "http://127.0.0.1:1"
QUOTA = r"Denied: 1 of 2 Pods: QuotaExceeded: service web: pods in 1h: hard 1, used 1, asked 1; could pass from 20"
FULL = r"(WaitingForLivePods|Denied): \d of \d Pods: .*live at one time: hard \d, used \d, asked 1"


@pytest.fixture(scope="module")
def shop(plane: ControlPlane, identities: Identities) -> Iterator[Installation]:
    flags = ("--drain", "0s", "--decision-listen", "127.0.0.1:0")
    spaces = (TUTORIAL, WEB, ORDERED, RETRIED, BLAMED, PARTLY)
    with install_podgate(plane, identities.files, POLICY, spaces, arguments=flags) as installation:
        installation.wait_for_calls()
        plane.wait(
            lambda: is_enforced(installation), "limits on live Pods to be enforced", installation.servers[0].name
        )
        yield installation


def is_enforced(shop: Installation) -> bool:
    """Return whether the limits on live Pods hold: not before all Pods have been listed."""
    limits = [window for service in shop.servers[0].status()["services"] for window in service["windows"]]
    return all(limit["enforced"] for limit in limits if limit["window"] == STANDING)


def check_explained(shop: Installation, what: str, namespace: str, expected: str, without: str = "") -> None:
    """Wait until the first line matches, with records, and without them (there it may be another one)."""
    pages: dict[str, str] = {}
    lines = {f"http://{shop.servers[0].decisions}": expected, NO_RECORDS: without or expected}

    def matches() -> bool:
        for server in lines:
            where = ("--kubeconfig", shop.plane.kubeconfig, "--server", server)
            pages[server] = podgate("explain", what, "-n", namespace, *where).out
        return all(re.match(line, pages[server]) for server, line in lines.items())

    try:
        shop.plane.wait(matches, f"{what} to be explained", shop.servers[0].name)
    except Exception as error:
        raise AssertionError("\n".join(pages.values()) + f"\ndo not match {list(lines.values())}") from error


def breaker(shop: Installation, *arguments: str) -> None:
    done = podgate("breaker", *arguments, "--reason", "INC-1", "--kubeconfig", shop.plane.kubeconfig)
    assert done.code == 0, done.err


def try_again(shop: Installation, namespace: str) -> None:
    """Let a ReplicaSet try again at once: it waits longer after each denial."""
    shop.plane.kubectl("annotate", "rs", "--all", "-n", namespace, "tests/again=1", "--overwrite")


def occupy(shop: Installation, namespace: str, count: int) -> list[str]:
    """Create Pods that take all room; return their paths."""
    paths = []
    for number in range(count):
        spec = {**UNSEEN, "terminationGracePeriodSeconds": 0}
        status, answer = shop.create_pod(namespace, f"first-{number}", **spec)
        assert status == 201, answer
        paths.append(f"/api/v1/namespaces/{namespace}/pods/first-{number}")
    return paths


def only_pod(shop: Installation, namespace: str) -> str:
    """Return the path of the only Pod of a namespace, once there is one."""

    def found() -> str:
        names = [pod["metadata"]["name"] for pod in shop.pods(namespace)]
        return names[0] if len(names) == 1 else ""

    return f"/api/v1/namespaces/{namespace}/pods/{shop.plane.wait(found, f'a Pod in {namespace}')}"


def report(shop: Installation, path: str, status: dict[str, Any]) -> None:
    kubelet.write(shop.plane, path, status)


def test_a_deployment_that_quota_and_then_the_breaker_denied_is_told_the_breaker(shop: Installation) -> None:
    """As in the tutorial: three denials open the breaker, and the condition keeps the first message."""
    deploy(shop.plane, TUTORIAL, "web", 5)
    check_explained(
        shop, "deploy/web", TUTORIAL, r"BreakerOpen: 4 of 5 Pods: service tutorial: the breaker is open until 20"
    )
    [replica_set] = shop.plane.api.get(f"/apis/apps/v1/namespaces/{TUTORIAL}/replicasets")["items"]
    [failure] = [
        condition for condition in replica_set["status"]["conditions"] if condition["type"] == "ReplicaFailure"
    ]
    assert "QuotaExceeded" in failure["message"], "Kubernetes has refreshed the condition: the test shows nothing"


def test_the_first_line_of_a_deployment_follows_its_cause(shop: Installation) -> None:
    deploy(shop.plane, WEB, "web", 2)
    check_explained(shop, "deploy/web", WEB, QUOTA)
    breaker(shop, "open", "web", "--for", "1h")
    try_again(shop, WEB)
    check_explained(
        shop, "deploy/web", WEB, r"BreakerOpen: 1 of 2 Pods: service web: the breaker was forced open until 20"
    )
    breaker(shop, "reset", "web")
    try_again(shop, WEB)
    check_explained(shop, "deploy/web", WEB, QUOTA)
    grant = ("quota", "grant", "web", "--window", "1h", "--hard", "pods=5", "--for", "1h", "--reason", "INC-1")
    done = podgate(*grant, "--kubeconfig", shop.plane.kubeconfig)
    assert done.code == 0, done.err
    try_again(shop, WEB)
    check_explained(shop, "deploy/web", WEB, r"Running: 2 of 2 Pods: ")


def test_a_stateful_set_that_waits_for_its_first_pod_is_not_told_an_old_denial(shop: Installation) -> None:
    first = occupy(shop, ORDERED, 2)
    workload("StatefulSet", "s", ORDERED, of={"serviceName": "s", "replicas": 2}, **UNSEEN)(shop)
    check_explained(shop, "sts/s", ORDERED, FULL)
    for path in first:
        delete(path)(shop)
    waits = r"(Starting|Unschedulable): 1 of 2 Pods: s-0 .*; s-1 is created once s-0 is Ready \(podManagementPolicy Ord"
    check_explained(shop, "sts/s", ORDERED, waits)
    report(shop, only_pod(shop, ORDERED), kubelet.ready())
    check_explained(shop, "sts/s", ORDERED, r"(Starting|Unschedulable): 2 of 2 Pods: (?!.*is created once)")


def test_a_job_in_its_back_off_is_not_told_an_old_denial(shop: Installation) -> None:
    [first] = occupy(shop, RETRIED, 1)
    workload("Job", "j", RETRIED, of={"backoffLimit": 4}, **UNSEEN)(shop)
    check_explained(shop, "job/j", RETRIED, FULL)
    delete(first)(shop)
    check_explained(shop, "job/j", RETRIED, r"(Starting|Unschedulable): ")
    failed = kubelet.make_waiting_status("Error")
    failed["phase"] = "Failed"
    failed["containerStatuses"][0]["state"] = {"terminated": kubelet.make_last_state(1)}
    report(shop, only_pod(shop, RETRIED), failed)
    backs_off = r"Failed: 1 of \d Pods: .*exit code 1; the Job's controller creates the next Pod after its back-off\n"
    check_explained(shop, "job/j", RETRIED, backs_off)


def test_what_may_not_be_read_of_a_workload_is_not_said_to_be_absent(shop: Installation) -> None:
    """The caller gets the right to one kind of object after another; no unreadable object is reported as absent."""
    plane = shop.plane
    deploy(plane, PARTLY, "web", 1, **UNSEEN)
    plane.wait(lambda: len(shop.pods(PARTLY)) == 1, "the Pod to exist")
    plane.kubectl("create", "role", "partly", "--verb=get,list", "--resource=deployments.apps", "-n", PARTLY)
    plane.kubectl("create", "rolebinding", "partly", "--role=partly", "--user=partly", "-n", PARTLY)
    where = ("--kubeconfig", plane.write_kubeconfig("partly"), "--server", NO_RECORDS)

    def read_first_line(what: str) -> str:
        return podgate("explain", what, "-n", PARTLY, *where).out.partition("\n")[0]

    expected = (
        "Unknown: its controllers cannot be read, so why Pods are missing cannot be told: you may not list replica"
    )
    plane.wait(lambda: read_first_line("deploy/web").startswith(expected), "the role to be known")
    value = {"apiGroups": ["apps"], "resources": ["replicasets"], "verbs": ["list"]}
    rule = {"op": "add", "path": "/rules/-", "value": value}
    plane.kubectl("patch", "role", "partly", "-n", PARTLY, "--type=json", "-p", json.dumps([rule]))
    expected = "Unknown: its Pods cannot be read, so why Pods are missing cannot be told: you may not list pods in "
    plane.wait(lambda: read_first_line("deploy/web").startswith(expected), "the role to be known")
    absent = podgate("explain", "deploy/absent", "-n", PARTLY, *where)
    assert absent.err.splitlines()[0].endswith(": no such object, and its records cannot be read")


def test_a_dry_run_is_found_and_marked(shop: Installation) -> None:
    status, answer = shop.create_pod(WEB, "rehearsed", dry_run=True)
    assert status in {201, 429}, answer
    where = ("--kubeconfig", shop.plane.kubeconfig, "--server", f"http://{shop.servers[0].decisions}")
    page = podgate("explain", "pod/rehearsed", "-n", WEB, *where).out
    assert re.match(r"(Admitted|Denied): dry run, nothing was created: ", page), page


def test_what_a_former_policy_wrote_is_not_blamed_on_the_pod(shop: Installation) -> None:
    status, answer = shop.create_pod(BLAMED, "lost")
    assert status == 201, answer
    by_policy = r"Unschedulable: by the policy: placement.nodeSelector\[disk\] \(disk=optical\) leaves 0 of \d+ nodes\n"
    check_explained(shop, "pod/lost", BLAMED, by_policy)
    shop.change_policy(POLICY.replace("disk: optical", "disk: magnetic"))
    untold = (
        r"Unschedulable: spec.nodeSelector\[disk\] \(disk=optical\) fits 0 of \d+ nodes; whether the Pod or the policy"
        r" wrote it cannot be told: policy [0-9a-f]{16}, which rewrote the Pod, cannot be read\n"
    )
    check_explained(shop, "pod/lost", BLAMED, by_policy, untold)
