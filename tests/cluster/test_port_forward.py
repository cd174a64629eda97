"""The decision port of a server Pod through a real API server: the right to port-forward decides who reads it."""

import asyncio
import json
from pathlib import Path

from tests.cli.command_runner import podgate
from tests.cluster.controlplane import ControlPlane
from tests.cluster.forwarded_pods import FORWARDS, LISTS, NODE, grant, run_pods
from tests.cluster.kubelet_ports import kubelet_ports
from tests.harness.server_process import Files, pod, run_server
from webhook.commands.simulator import Ask

UID = "6f6b9a8e-1c1e-4a52-9a7e-000000000001"
POLICY = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices: [{name: web, match: {namespaces: [shop]}}]\n"


async def test_right_to_port_forward_decides_who_reads_decisions(api_alone: ControlPlane, tmp_path: Path) -> None:
    pki = api_alone.folder / "pki"
    async with run_server(Files.create(tmp_path, POLICY)) as server:
        await server.create(Ask(pod(), "shop", UID, "alice"))
        ports = {("podgate-0", 8082): server.decisions}
        with (
            kubelet_ports(pki / "apiserver.crt", pki / "apiserver.key", ports) as port,
            run_pods(api_alone, "podgate", ["podgate-0"], port),
        ):
            operator = grant(api_alone, "operator", LISTS, FORWARDS)
            decided = await asyncio.to_thread(podgate, "decisions", "--kubeconfig", str(operator), "-o", "json")
            explained = await asyncio.to_thread(podgate, "explain", UID, "--kubeconfig", str(operator))
            reader = grant(api_alone, "reader", LISTS)
            refused = await asyncio.to_thread(podgate, "decisions", "--kubeconfig", str(reader), "-o", "json")
    assert [decision["half"] for decision in json.loads(decided.out)] == ["mutate", "validate"], decided.err
    assert (explained.code, explained.out.partition(":")[0]) == (0, "Admitted"), explained.err
    assert UID in decided.out
    assert UID not in refused.out
    # Another test's server may listen on port 8082 of this machine, which is tried last.
    found_another = "http://127.0.0.1:8082" in refused.err
    assert found_another or "grant the right to create pods/portforward in podgate-system" in refused.err


def test_later_pods_are_at_their_own_kubelet_port(api_alone: ControlPlane) -> None:
    for port in (10001, 10002):
        with run_pods(api_alone, "podgate", ["podgate-0"], port):
            status = api_alone.api.get(f"/api/v1/nodes/{NODE}")["status"]
            assert status["daemonEndpoints"]["kubeletEndpoint"]["Port"] == port
    assert api_alone.api.get(f"/api/v1/nodes/{NODE}") is None
