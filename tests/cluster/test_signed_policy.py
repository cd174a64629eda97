"""Signed policies: a server with keys takes no document without a signature, wherever it comes from."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import LAST_GOOD, POLICY, Installation, install_podgate
from tests.cluster.server import Server
from webhook.adapters.kubernetes import ConfigMapRolloutStateStore, ControllerRevisions, connect
from webhook.core.document.configmap import KEY, ROLLOUT_STATE, SIGNATURE_KEY
from webhook.core.document.loading import compute_hash
from webhook.core.rollout.state import RolloutState
from webhook.errors import RolloutError
from webhook.policy_in_force.policy_signatures import PolicySignatures, sign_document

FIRST = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: ["signed-*"]}
  placement: {nodeSelector: {tier: first}}
"""
SECOND, FORGED = FIRST.replace("first", "second"), FIRST.replace("first", "forged")
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
KEYS = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
STRANGER = Ed25519PrivateKey.generate()


def sign(text: str, key: Ed25519PrivateKey = KEYS[0]) -> str:
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return sign_document(text.encode(), private, "key")


def compute_text_hash(text: str) -> str:
    return compute_hash(text.encode())


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "policy-keys.pem"
    encoded = (key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo) for key in KEYS)
    path.write_bytes(b"".join(encoded))
    return path


@pytest.fixture
def installation(plane: ControlPlane, identities: Identities) -> Iterator[Installation]:
    with install_podgate(plane, identities.files, FIRST, ["signed-policy"], servers=0) as installation:
        try:
            yield installation
        finally:
            for kind in ("controllerrevisions", f"configmap/{ROLLOUT_STATE}"):
                which = ("--all",) if kind == "controllerrevisions" else ("--ignore-not-found",)
                plane.kubectl("delete", kind, *which, "-n", NAMESPACE)


def apply(installation: Installation, text: str, signature: str | None, name: str = POLICY) -> None:
    """Store a policy with its signature; the API server may call a deleted webhook for another moment."""
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": {KEY: text, **({SIGNATURE_KEY: signature} if signature is not None else {})},
    }
    installation.plane.kubectl("delete", "configmap", name, "-n", NAMESPACE, "--ignore-not-found")

    def create() -> bool:
        return not installation.plane.kubectl("create", "-f", "-", input=json.dumps(config_map), check=False).returncode

    installation.plane.wait(create, f"{name} to be stored")


def find_hash(server: Server) -> str | None:
    found: str | None = server.status()["policy"]["hash"]
    return found


def find_problem(server: Server) -> str:
    return str((server.status()["rollout"] or {}).get("problem"))


def wait_for_hash(installation: Installation, server: Server, text: str) -> None:
    wanted = compute_text_hash(text)
    installation.plane.wait(lambda: find_hash(server) == wanted, f"policy {wanted} to be in force", server.name)


def wait_for_error(installation: Installation, server: Server, part: str) -> None:
    plane = installation.plane
    plane.wait(lambda: any(part in error for error in server.status()["policy"]["errors"]), part, server.name)


def test_only_signed_documents_come_into_force_and_survive_a_restart(installation: Installation, keys: Path) -> None:
    arguments = ("--drain", "0s", "--policy-keys", str(keys))
    installation.plane.delete(VALIDATING)  # it would refuse them
    server = installation.start_server(*arguments)
    missing = f"configmap {NAMESPACE}/{POLICY}: data['policy.sig'] is missing: the policy is not signed"
    wait_for_error(installation, server, missing)
    assert find_hash(server) is None
    apply(installation, FIRST, sign(FIRST))
    wait_for_hash(installation, server, FIRST)
    assert server.status()["policy"]["errors"] == []
    apply(installation, SECOND, sign(SECOND, KEYS[1]))
    wait_for_hash(installation, server, SECOND)
    for signature in (None, "?", sign(FORGED, STRANGER), sign(SECOND)):
        apply(installation, FORGED, signature)
        wait_for_error(installation, server, "data['policy.sig']")
        assert find_hash(server) == compute_text_hash(SECOND)
    installation.stop_server(server)
    again = installation.start_server(*arguments)
    wait_for_hash(installation, again, SECOND)
    installation.stop_server(again)
    apply(installation, FORGED, None, LAST_GOOD)
    apply(installation, FORGED, sign(SECOND))
    refusing = installation.start_server(*arguments)
    wait_for_error(installation, refusing, "not made for this document")
    wait_for_hash(installation, refusing, SECOND)  # of its signed revision


def test_an_unsigned_policy_is_refused_when_it_is_applied(installation: Installation, keys: Path) -> None:
    apply(installation, FIRST, sign(FIRST))
    server = installation.start_server("--drain", "0s", "--policy-keys", str(keys))
    installation.configure()
    wait_for_hash(installation, server, FIRST)
    installation.wait_for_calls()
    printed = installation.apply_policy(SECOND, check=False)
    assert 'admission webhook "policy.podgate.io" denied the request: PolicyInvalid' in printed
    assert "data['policy.sig']" in printed
    assert installation.read_stored(POLICY) == FIRST


def test_a_revision_is_verified_again_and_signed_when_its_document_is(installation: Installation, keys: Path) -> None:
    first, second = FIRST.encode(), SECOND.encode()

    async def run() -> None:
        client = await connect(installation.plane.kubeconfig)
        try:
            signatures = PolicySignatures(keys)
            revisions = ControllerRevisions(client, signatures=signatures)
            await ControllerRevisions(client).keep(compute_hash(first), first)
            with pytest.raises(RolloutError, match=r"data\['policy.sig'\] is missing: the policy is not signed"):
                await revisions.read(compute_hash(first))
            await revisions.mark_in_force(compute_hash(first))
            signatures.verify(first, sign(FIRST), "here")
            await revisions.keep(compute_hash(first), first)
            assert await revisions.read(compute_hash(first)) == first
            await revisions.keep(compute_hash(first), first)
            await ControllerRevisions(client).keep(compute_hash(second), second)
            listed = await revisions.list_all()
            marks = [(kept.hash, kept.was_in_force) for kept in listed]
            assert marks == [(compute_hash(second), False), (compute_hash(first), True)]
            state = ConfigMapRolloutStateStore(client)
            assert await state.read() is None
            assert await state.write(RolloutState(compute_hash(second), governed=True))
        finally:
            await client.close()

    asyncio.run(run())
    apply(installation, FIRST, sign(FIRST))
    server = installation.start_server("--drain", "0s", "--policy-keys", str(keys))
    unsigned = f"controllerrevision {NAMESPACE}/podgate-policy-{compute_hash(second)}: data['policy.sig'] is missing"
    installation.plane.wait(
        lambda: unsigned in find_problem(server), "the unsigned revision to be refused", server.name
    )
    assert find_hash(server) != compute_hash(second), "whoever may write revisions cannot put one into force"


def test_a_file_has_its_signature_beside_it(installation: Installation, keys: Path, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(FIRST)
    server = installation.start_server("--drain", "0s", "--policy-keys", str(keys), "--policy", str(file))
    wait_for_error(installation, server, f"{file}.sig is missing")
    Path(f"{file}.sig").write_text(f"{sign(FIRST)}\n")
    wait_for_hash(installation, server, FIRST)
    file.write_text(FORGED)
    wait_for_error(installation, server, "not made for this document")
    assert find_hash(server) == compute_text_hash(FIRST)
