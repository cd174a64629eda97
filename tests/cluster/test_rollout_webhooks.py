"""During a canary the API server calls for Pods of either policy, and afterwards as for the one in force."""

import json
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import install_podgate
from tests.cluster.server import SHORT_INTERVALS

A, B = "union-a", "union-b"
ROLLOUT = {"canary": {"by": "Namespace", "steps": [{"namespaces": [B], "for": "5s"}]}, "whenNoData": "Advance"}
_MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/podgate"


def write_policy(tier: str, *namespaces: str) -> str:
    service = {
        "name": "web",
        "match": {"namespaces": list(namespaces)},
        "placement": {"nodeSelector": {"tier": tier}},
    }
    document = {"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "rollout": ROLLOUT, "services": [service]}
    return f"{json.dumps(document)}\n"


def read_conditions(plane: ControlPlane) -> Any:
    return [webhook.get("matchConditions") for webhook in plane.api.get(_MUTATING)["webhooks"]]


def test_a_namespace_that_only_the_candidate_matches_is_called_for(plane: ControlPlane, identities: Identities) -> None:
    plane.create_namespace(B)
    with install_podgate(plane, identities.files, write_policy("old", A), [A], servers=0) as installation:
        installation.program = SHORT_INTERVALS
        server = installation.start_server("--drain", "0s", "--webhook-configurations", "keep")
        installation.wait_for_calls()
        plane.wait(lambda: server.status()["rollout"] is not None, "the first state", server.name)
        assert (installation.find_tier(A), installation.find_tier(B)) == ("old", None)
        installation.apply_policy(write_policy("new", A, B))
        plane.wait(lambda: installation.find_tier(B) == "new", "the candidate in its namespace", server.name)
        assert server.status()["rollout"]["phase"] in {"Canary", "Stable"}
        plane.wait(lambda: installation.find_tier(A) == "new", "the promotion", server.name)
        assert server.status()["rollout"]["phase"] == "Stable"
        installation.configure(write_policy("new", A, B))
        rendered = read_conditions(plane)
        plane.wait(lambda: server.status()["webhooks"]["outdated"] == [], "the comparison", server.name)
        assert read_conditions(plane) == rendered, "no union is left"
