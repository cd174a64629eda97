"""A canary whose candidate has another variant on a real control plane: it opens, and its Pods fall back."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.command_runner import podgate
from tests.cluster.controller_fixture import MEMORY, ControllerFixture, controller_fixture
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.shares import KIND, ON_DEMAND, SPOT, Workload, build_policy, two_kinds_of_nodes
from tests.harness.policy_revisions import hash_of
from tests.timeouts import HANG_SECONDS

NAMESPACE, GONE = "shares-canary", "gone"
ROLLOUT = {"canary": {"steps": [{"namespaces": [NAMESPACE], "for": "1h"}]}, "rollback": {"pending": {"grace": "10m"}}}


def write_policy(variant: str) -> str:
    """Return a policy whose first variant has this name, and nodes of this kind."""
    document = json.loads(build_policy({"web": [NAMESPACE]}, unschedulableFor="30s"))
    shares = document["services"][0]["placement"]["shares"]
    shares["variants"][0] |= {"name": variant, "nodeSelector": {KIND: variant}}
    return json.dumps({**document, "rollout": ROLLOUT})


STABLE, CANDIDATE = write_policy(SPOT), write_policy(GONE)


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities) -> Iterator[ControllerFixture]:
    """Install Podgate with one server, which counts in memory and leads itself."""
    with two_kinds_of_nodes(plane), controller_fixture(plane, identities, STABLE, [NAMESPACE], MEMORY) as fixture:
        yield fixture


def list_variants(running: ControllerFixture) -> dict[str, dict[str, Any]]:
    [server] = running.installation.servers
    [service] = server.status()["services"]
    return {variant["name"]: variant for variant in service["shares"]["variants"]}


def test_a_variant_of_the_candidate_alone_opens_and_its_pods_fall_back(running: ControllerFixture) -> None:
    plane, workload = running.plane, Workload(running, "Deployment", NAMESPACE, "web", 5)
    [server] = running.installation.servers
    assert set(list_variants(running)) == {SPOT, ON_DEMAND}
    running.installation.apply_policy(CANDIDATE)
    candidate = hash_of(CANDIDATE.encode())
    plane.wait(
        lambda: (server.status()["rollout"] or {}).get("candidate") == candidate,
        "the candidate to be in force",
        server.name,
        timeout_seconds=HANG_SECONDS,
    )
    found = list_variants(running)
    assert (found[GONE]["ofCandidate"], found[GONE]["breaker"]["state"]) == (True, "CLOSED")
    workload.create()
    workload.wait(HANG_SECONDS)
    hashes = {pod["metadata"]["annotations"]["podgate.io/policy-hash"] for pod in workload.list_pods()}
    assert hashes == {candidate}
    assert workload.count_variants() == {SPOT: 0, ON_DEMAND: 5}
    assert workload.list_slots() == [1, 2, 3, 4, 5]
    found = list_variants(running)
    assert (found[GONE]["breaker"]["state"], found[SPOT]["breaker"]["state"]) == ("OPEN", "CLOSED")
    metrics = server.metrics()
    assert metrics[f'podgate_variant_evictions_total{{service="web",variant="{GONE}"}}'] >= 1
    assert metrics[f'podgate_variant_breaker_state{{service="web",state="OPEN",variant="{GONE}"}}'] == 1


def test_explain_shows_the_variants_as_they_are_now(running: ControllerFixture) -> None:
    [server] = running.installation.servers
    pod = f"{NAMESPACE}/{Workload(running, 'Deployment', NAMESPACE, 'web', 5).list_pods()[0]['metadata']['name']}"
    ports = ("--server", f"http://{server.decisions}", "--status", f"http://{server.plain}")
    where = ("--kubeconfig", running.plane.kubeconfig, *ports)
    for what in (("pod", pod), ("deploy/web", "-n", NAMESPACE)):
        found = podgate("explain", *what, *where, "-o", "json").document
        assert found["token"] == "Running", found
        states = {variant["name"]: variant.get("state") for variant in found["shares"]}
        assert states == {SPOT: "CLOSED", ON_DEMAND: None, GONE: "OPEN"}
    page = podgate("explain", "pod", pod, *where).out
    reason = r"unschedulable: no node for 30s, [1-5] Pods?"
    assert re.search(rf"\n  shares    {SPOT} CLOSED; {GONE} OPEN \({reason}\), probes from \S+, of the", page), page
