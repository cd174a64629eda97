"""Authentication of the API server: every invalid caller is rejected, and a metric counts the reason."""

import json
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
import yaml

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.authentication import is_rewritten
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import CLUSTER_TOKEN, Identities
from tests.cluster.installation import Installation, install_podgate

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: closed
  match: {namespaces: ["closed-*"]}
  failureMode: Closed
  placement: {schedulerName: podgate-scheduler}
- name: open
  match: {namespaces: ["open-*"]}
  placement: {schedulerName: podgate-scheduler}
"""
CALLER = "kube-apiserver-caller"
CLOSED, OPEN = "closed-rejecting", "open-rejecting"
REJECTED_CALLS = "podgate_refused_calls_total"


def test_token_of_the_podgate_issuer_is_accepted(plane: ControlPlane, identities: Identities) -> None:
    with install_podgate(plane, identities.files, POLICY, ["closed-own"]) as installation:
        installation.wait_for_calls()
        assert is_rewritten(installation, "closed-own")
        [server] = installation.servers
        assert server.total("podgate_calls_total", 'client_id="kube-apiserver"') >= 2


def test_token_of_the_cluster_issuer_is_accepted(plane: ControlPlane, identities: Identities, tmp_path: Path) -> None:
    """The API server's token file has a token by `kubectl create token` with Podgate's audience."""
    plane.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": CALLER, "namespace": NAMESPACE}})
    token = plane.kubectl("create", "token", CALLER, "-n", NAMESPACE, "--audience", "podgate").stdout
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims["jti"], "it can be revoked by its jti"
    path = identities.callers[CLUSTER_TOKEN].token
    assert path is not None
    path.write_text(token)
    arguments = ("--drain", "0s", *cluster_issuer_flags(plane, tmp_path))
    with install_podgate(
        plane, identities.files, POLICY, ["closed-cluster"], load_balancer=CLUSTER_TOKEN, arguments=arguments
    ) as installation:
        installation.wait_for_calls()
        assert is_rewritten(installation, "closed-cluster")
        [server] = installation.servers
        assert server.total("podgate_keys", 'source="cluster"') >= 1
        assert server.total("podgate_calls_total", f'client_id="system:serviceaccount:podgate-system:{CALLER}"') >= 2


def cluster_issuer_flags(plane: ControlPlane, folder: Path) -> list[str]:
    """Return the flags of a server that accepts tokens of the cluster's issuer, with its published keys."""
    discovery = json.loads(plane.kubectl("get", "--raw", "/.well-known/openid-configuration").stdout)
    identity = {
        "role": "apiserver",
        "certificate": {"commonName": "kube-apiserver"},
        "issuer": discovery["issuer"],
        "audience": "podgate",
        "subject": f"system:serviceaccount:{NAMESPACE}:{CALLER}",
        "clientId": {"from": "subject"},
    }
    (folder / "identities.yaml").write_text(yaml.safe_dump([identity]))
    return ["--cluster-keys", "true", "--identities", str(folder / "identities.yaml")]


@pytest.fixture(scope="module")
def rejecting(plane: ControlPlane, identities: Identities) -> Iterator[Installation]:
    """Install one server for all callers that it rejects."""
    with install_podgate(plane, identities.files, POLICY, [CLOSED, OPEN]) as installation:
        yield installation


@pytest.mark.parametrize(
    ("load_balancer", "reason"),
    [
        ("without-certificate", "handshake_no_certificate"),
        ("stranger", "handshake_certificate_foreign"),
        ("expired-certificate", "handshake_certificate_expired"),
        ("server-certificate", "handshake_certificate_purpose"),
        ("wrong-name", "authentication_identity_mismatch"),
        ("without-token", "authentication_no_token"),
        ("expired-token", "authentication_expired"),
        ("wrong-audience", "authentication_audience"),
        ("wrong-issuer", "authentication_issuer"),
        ("wrong-subject", "authentication_identity_mismatch"),
        ("wrong-key", "authentication_signature"),
        ("not-yet-valid", "authentication_not_yet_valid"),
        ("too-long-a-life", "authentication_lifetime"),
        ("without-subject", "authentication_claims"),
        ("two-audiences", "authentication_audience"),
        ("unsigned", "authentication_algorithm"),
        ("unknown-key", "authentication_unknown_key"),
        ("no-token-at-all", "authentication_malformed_token"),
        ("reporter", "authentication_role"),
        ("another-role", "authentication_identity_mismatch"),
    ],
)
def test_other_callers_are_rejected_and_the_failure_policy_applies(
    rejecting: Installation, load_balancer: str, reason: str
) -> None:
    call_through(rejecting, load_balancer)
    [server] = rejecting.servers

    def create_until_both_are_rejected() -> tuple[int, dict[str, str]] | None:
        before = server.total(REJECTED_CALLS, f'reason="{reason}"')
        status, answer = rejecting.create_pod(CLOSED, dry_run=True)
        return (status, answer) if server.total(REJECTED_CALLS, f'reason="{reason}"') >= before + 2 else None

    status, answer = rejecting.plane.wait(create_until_both_are_rejected, f"the API server to be rejected by {reason}")
    assert (status, answer["reason"]) == (500, "InternalError")
    assert 'failed calling webhook "validate-closed.podgate.io"' in answer["message"]
    assert server.total("podgate_reviews_total") == 0
    assert rejecting.pods(CLOSED) == []
    assert not is_rewritten(rejecting, OPEN)


def call_through(installation: Installation, load_balancer: str) -> None:
    """Let the API server call as the caller of a load balancer, and no longer through the one before."""
    installation.load_balancer.targets = []
    installation.load_balancer.cut()
    installation.load_balancer = installation.plane.load_balancers[load_balancer]
    installation.route()
    installation.configure()
