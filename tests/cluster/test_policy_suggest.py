"""`podgate policy suggest` on a real API server: a first policy of its namespaces, and numbers of real decisions."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cli.command_runner import podgate
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.cluster.workloads import workload
from webhook.core.document.configmap import NAME

WORKING, EMPTY, NIGHTLY = "suggest-shop", "0-suggest-empty", "suggest-nightly"
JUDGED, IDLE = "suggest-judged", "suggest-idle"
LIVE = (
    "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n"
    "- {name: judged, match: {namespaces: [suggest-judged]}, quota: {windows: [{window: 1s, hard: {pods: 500}}]}}\n"
    "- {name: none, match: {namespaces: [suggest-idle]}}\n"
)
PODS = 6


@pytest.fixture(scope="module")
def spaces(api_alone: ControlPlane) -> ControlPlane:
    for name in (WORKING, EMPTY, NIGHTLY):
        api_alone.create_namespace(name)
    return api_alone


def create(plane: ControlPlane, group: str, namespace: str, document: object) -> None:
    status, created = plane.api.request("POST", f"{group}/namespaces/{namespace}/{resource_of(document)}", document)
    assert status == 201, created


def resource_of(document: object) -> str:
    assert isinstance(document, dict)
    return f"{document['kind'].lower()}s"


def test_a_first_policy_has_the_namespaces_with_workloads_all_in_audit(spaces: ControlPlane, tmp_path: Path) -> None:
    create(spaces, "/apis/apps/v1", WORKING, workload("Deployment", "web", {}, replicas=4))
    create(spaces, "/apis/apps/v1", EMPTY, workload("DaemonSet", "agent", {}))
    create(spaces, "/apis/batch/v1", NIGHTLY, workload("CronJob", "report", {}, schedule="0 2 * * *"))
    requests = {"resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}}
    for number in range(PODS):
        pod = {"metadata": {"name": f"p{number}"}, "spec": {"containers": [{"name": "c", "image": "i", **requests}]}}
        create(spaces, "/api/v1", WORKING, {"apiVersion": "v1", "kind": "Pod", **pod})
    done = podgate("policy", "suggest", "--audit", "--kubeconfig", spaces.kubeconfig)
    assert done.code == 0, done.err
    policy = tmp_path / "policy.yaml"
    policy.write_text(done.out)
    lint = podgate("policy", "lint", policy)
    assert (lint.code, lint.out) == (0, "")
    assert lint.err == f"{policy} is valid\n"
    document = yaml.safe_load(done.out)
    assert set(document["defaults"]["modes"].values()) == {"Audit"}
    assert document["exemptions"]["namespaces"] == ["kube-*", "podgate-system"]
    found = {service["name"]: service for service in document["services"]}
    assert EMPTY not in found
    assert not any(name.startswith("kube-") for name in found)
    assert found[WORKING]["quota"] == {
        "windows": [{"window": "1m", "hard": {"pods": 8}}, {"window": "1h", "hard": {"pods": 15}}],
        "standing": {"hard": {"pods": 8, "requests.cpu": "750m", "requests.memory": "7680Mi"}},
    }
    lines = done.out.splitlines()
    assert "  # 1 Deployment: 4 Pods wanted, 6 live now" in lines
    assert "  # seldom seen: CronJobs report (0 2 * * *)" in lines
    assert EMPTY in next(line for line in lines if line.startswith("# Left out"))
    as_json = podgate("policy", "suggest", "--audit", "--kubeconfig", spaces.kubeconfig, "-o", "json")
    assert as_json.document == document


def test_a_cluster_that_cannot_be_read_ends_with_2(spaces: ControlPlane, tmp_path: Path) -> None:
    gone = podgate("policy", "suggest", "--audit", "--kubeconfig", tmp_path / "none")
    assert gone.code == 2
    mixed = podgate("policy", "suggest", "web", "--audit", "--kubeconfig", spaces.kubeconfig)
    assert mixed.error == "--audit: with a service or with requests: leave them out: it reads the cluster"


@pytest.fixture
def installation(api_alone: ControlPlane, identities: Identities) -> Iterator[Installation]:
    arguments = ("--drain", "0s", "--decision-listen", "127.0.0.1:0")
    with install_podgate(api_alone, identities.files, LIVE, [JUDGED, IDLE], arguments=arguments) as installation:
        yield installation


def test_numbers_come_from_the_decisions_of_the_live_policy(installation: Installation) -> None:
    installation.wait_for_calls()
    live = installation.read_stored(NAME)
    assert live is not None
    installation.wait_for_policy(live)
    for number in range(PODS):
        time.sleep(0.3)  # so that more time is seen than the window is long
        assert installation.create_pod(JUDGED, f"pod-{number}")[0] == 201
    server = f"http://{installation.servers[0].decisions}"
    done = podgate("policy", "suggest", "--kubeconfig", installation.plane.kubeconfig, "--server", server)
    assert done.code == 0, done.err
    [judged] = yaml.safe_load(done.out)["services"]
    assert judged["match"] == {"namespaces": [JUDGED]}
    [window] = judged["quota"]["windows"]
    assert window["window"] == "1s"
    assert 2 <= window["hard"]["pods"] <= 8
    assert "  # proof: 6 past Pods replayed: 0 denied" in done.out.splitlines()
    assert "  # live now: 6 pods" in done.out.splitlines()
    assert "  # starts not done: 6 pending" in done.out.splitlines()
    assert "# none: no requests seen: no numbers" in done.out.splitlines()
    assert installation.read_stored(NAME) == live
