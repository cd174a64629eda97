"""`podgate policy impact` with the live policy, a server's decisions, and the labels of the Namespaces."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_runner import podgate
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from webhook.core.document.configmap import NAME

SPACE = "policy-impact"
HEAD = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n"
BY_NAME = f"namespaces: [{SPACE}]"
LIVE = f"{HEAD}- {{name: web, match: {{{BY_NAME}}}, quota: {{windows: [{{window: 1h, hard: {{pods: 50}}}}]}}}}\n"
BY_LABEL = f"namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {SPACE}}}}}"
CANDIDATE = LIVE.replace(BY_NAME, BY_LABEL).replace("pods: 50", "pods: 1")


@pytest.fixture
def installation(plane: ControlPlane, identities: Identities) -> Iterator[Installation]:
    arguments = ("--drain", "0s", "--decision-listen", "127.0.0.1:0")
    with install_podgate(plane, identities.files, LIVE, [SPACE], arguments=arguments) as installation:
        yield installation


def test_a_candidate_is_compared_with_the_live_policy(installation: Installation, tmp_path: Path) -> None:
    installation.wait_for_calls()
    live = installation.read_stored(NAME)
    assert live is not None
    installation.wait_for_policy(live)
    for name in ("first", "second", "third"):
        assert installation.create_pod(SPACE, name)[0] == 201
    candidate = tmp_path / "candidate.yaml"
    candidate.write_text(CANDIDATE)
    server = f"http://{installation.servers[0].decisions}"
    options = ("--kubeconfig", installation.plane.kubeconfig, "--server", server, "--fail-on", "denials")
    done = podgate("policy", "impact", candidate, *options, "-o", "json")
    assert done.code == 3, done.err
    report = json.loads(done.out)
    (web,) = [service for service in report["services"] if service["service"] == "web"]
    assert (report["leftOut"], web["deniedBefore"], web["differences"]["denied"]) == ({}, 0, 2)
    assert installation.read_stored(NAME) == live
