"""Namespace selectors: Podgate's results compared with the API server's."""

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import PATIENT, Installation, install_podgate

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: chosen
  match:
    namespaceSelector: {matchExpressions: [{key: tier, operator: In, values: [gold, silver]}]}
    podSelector: {matchLabels: {app: web}}
  failureMode: Closed
- name: not-chosen
  match:
    namespaces: ["ns-*"]
    namespaceSelector: {matchExpressions: [{key: tier, operator: Exists}, {key: tier, operator: NotIn, values: [lead]}]}
- name: free
  match:
    namespaces: ["ns-free-*"]
    namespaceSelector:
      matchExpressions: [{key: tier, operator: DoesNotExist}, {key: owner, operator: NotIn, values: [us]}]
  failureMode: Closed
"""
OWNERS = {
    "ns-gold": ({"tier": "gold"}, "chosen"),
    "silver": ({"tier": "silver", "owner": "us"}, "chosen"),
    "ns-lead": ({"tier": "lead"}, None),
    "ns-iron": ({"tier": "iron"}, "not-chosen"),
    "ns-empty": ({"tier": ""}, "not-chosen"),
    "iron": ({"tier": "iron"}, None),
    "ns-none": ({}, None),
    "ns-free-a": ({}, "free"),
    "ns-free-b": ({"owner": "them"}, "free"),
    "ns-free-us": ({"owner": "us"}, None),
    "ns-free-gold": ({"tier": "gold"}, "chosen"),
}


def owner(installation: Installation, namespace: str) -> str | None:
    """Return the service that owns a new Pod."""
    status, pod = installation.create_pod(namespace, dry_run=True)
    assert status == 201, pod
    service = pod["metadata"]["labels"].get("podgate.io/service")
    return None if service is None else str(service)


def test_namespace_selector_operators_select_the_owning_service(plane: ControlPlane, identities: Identities) -> None:
    for name, (labels, _) in OWNERS.items():
        plane.create_namespace(name, **labels)
    arguments = ("--drain", "0s", *PATIENT)
    with install_podgate(plane, identities.files, POLICY, ["ns-gold-too"], arguments=arguments) as installation:
        plane.kubectl("label", "namespace", "ns-gold-too", "tier=gold")
        installation.wait_for_calls()
        assert {name: owner(installation, name) for name in OWNERS} == {
            name: service for name, (_, service) in OWNERS.items()
        }
        plane.kubectl("label", "namespace", "ns-iron", "tier=gold", "--overwrite")
        plane.wait(lambda: owner(installation, "ns-iron") == "chosen", "the changed label to take effect")
        plane.kubectl("label", "namespace", "ns-iron", "tier-")
        plane.wait(lambda: owner(installation, "ns-iron") is None, "the removed label to take effect")
        [server] = installation.servers
        assert server.total("podgate_refused_calls_total") == 0
    plane.kubectl("delete", "namespace", "--wait=false", *OWNERS)
