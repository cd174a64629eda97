"""Discovery of the leader that `podgate queue` reads: by the Lease, through the API server's Pod proxy."""

import json
from pathlib import Path

from tests.app.server_discovery import PROXY, cluster, unused_local_port
from tests.cli.command_runner import podgate
from tests.harness.canned_http import serve_answers

__all__ = ["unused_local_port"]

LEASE = "/apis/coordination.k8s.io/v1/namespaces/podgate-system/leases/podgate-leader"
POD = "/api/v1/namespaces/podgate-system/pods/http:podgate-controller-7d-x2:8081/proxy"
LED = json.dumps(
    {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "podgate-controller-7d-x2_0a1b2c3d"}}
).encode()
LEADS = json.dumps({"leads": True, "time": "2026-12-01T04:00:00.000Z", "waiting": 0}).encode()
STANDS_BY = json.dumps(
    {"leads": False, "time": "2026-12-01T04:00:00.000Z", "waitsFor": "lease podgate-system/podgate-leader is held by b"}
).encode()


def pages(path: str, document: bytes) -> dict[str, tuple[int, bytes]]:
    return {f"{path}/queue?limit=0": (200, document), f"{path}/queue?service=": (200, document)}


def test_the_leading_pod_is_found_by_its_lease(tmp_path: Path) -> None:
    with cluster(tmp_path, {LEASE: (200, LED), **pages(POD, LEADS)}) as kubeconfig:
        done = podgate("queue", "--kubeconfig", kubeconfig)
    assert (done.code, json.loads(done.out)["leads"]) == (0, True)
    assert done.err.startswith("server: the leader in podgate-system through http://127.0.0.1:")


def test_a_server_that_releases_pods_itself_is_found_through_its_service(tmp_path: Path) -> None:
    with cluster(tmp_path, {LEASE: (200, LED), **pages(PROXY, LEADS)}) as kubeconfig:
        done = podgate("queue", "-o", "yaml", "--kubeconfig", kubeconfig)
    assert (done.code, "leads: true" in done.out) == (0, True)


def test_without_a_leader_all_that_was_tried_is_named(tmp_path: Path) -> None:
    forbidden = json.dumps({"message": "leases is forbidden"}).encode()
    with cluster(tmp_path, {LEASE: (403, forbidden), **pages(PROXY, STANDS_BY)}) as kubeconfig:
        done = podgate("queue", "web", "--kubeconfig", kubeconfig)
    assert done.code == 2
    assert done.err.startswith("error: no process releases Pods: start one with `podgate controller`")
    assert "grant the right to get leases named podgate-leader in podgate-system" in done.err
    assert "podgate-metrics" in done.err
    assert "lease podgate-system/podgate-leader is held by b" in done.err


def test_a_process_that_does_not_lead_names_who_does() -> None:
    with serve_answers(pages("", STANDS_BY)) as url:
        done = podgate("queue", "--server", url)
    assert done.code == 2
    assert f"{url} does not release Pods: lease podgate-system/podgate-leader is held by b" in done.err


def test_a_service_without_a_queue_is_an_error() -> None:
    with serve_answers({"/queue?limit=0": (200, LEADS), "/queue?service=none": (200, LEADS)}) as url:
        done = podgate("queue", "none", "--server", url)
    assert (done.code, "no service 'none' has a queue" in done.err) == (4, True)


def test_a_misspelt_subcommand_is_suggested() -> None:
    with serve_answers({"/queue?limit=0": (200, LEADS), "/queue?service=puase": (200, LEADS)}) as url:
        done = podgate("queue", "puase", "--server", url)
    assert done.code == 4
    assert "no service 'puase' has a queue" in done.err
    assert "did you mean `podgate queue pause`?" in done.err
