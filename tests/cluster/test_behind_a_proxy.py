"""kube-apiserver behind a proxy: each shipped proxy example forwards reviews and the identity."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from certs.authority import KeyPair
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.cluster.load_balancer import Target
from tests.harness.identity import Pki
from tests.harness.proxied_server import BEHIND_A_PROXY, PROXY, Forwarding
from tests.harness.server_process import Files
from tests.proxies import Hop, hop, names

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  failureMode: Closed
  match: {{namespaces: [{namespace}]}}
  placement: {{schedulerName: podgate-scheduler}}
"""
CALLS = ("podgate_calls_total", 'client_id="kube-apiserver"')


@dataclass
class ForwardedFiles(Files):
    """The files of a server that accepts forwarded identities of a proxy with its own CA."""

    proxies: Pki = field(kw_only=True)

    @classmethod
    def create_from(cls, files: Files, folder: Path) -> "ForwardedFiles":
        (folder / "identities.yaml").write_text(BEHIND_A_PROXY)
        proxies = Pki.create(folder / "proxies", "proxies-ca")
        return cls(files.folder, files.pki, files.signer, files.other, files.caller, proxies=proxies)

    def arguments(self) -> list[str]:
        flags = super().arguments()
        flags[flags.index("--client-ca") + 1] = str(self.proxies.folder / "ca.crt")
        flags[flags.index("--identities") + 1] = str(self.proxies.folder.parent / "identities.yaml")
        return [*flags, "--client-identity", "forwarded", "--forwarded-ca", str(self.pki.paths.client_ca)]

    def make_forwarding(self) -> Forwarding:
        proxy: KeyPair = self.proxies.client(PROXY)
        return Forwarding(self, proxy, self.pki, self.caller)


@dataclass
class ProxiedSite:
    installation: Installation
    hop: Hop

    def calls(self) -> float:
        return sum(server.total(*CALLS) for server in self.installation.servers)


@pytest.fixture(params=names())
def site(
    request: pytest.FixtureRequest, api_alone: ControlPlane, identities: Identities, tmp_path: Path
) -> Iterator[ProxiedSite]:
    namespace = f"behind-{request.param}"
    files = ForwardedFiles.create_from(identities.files, tmp_path)
    with install_podgate(api_alone, files, POLICY.format(namespace=namespace), [namespace]) as installation:
        upstream = installation.servers[0].admission
        with hop(request.param, files.make_forwarding(), upstream, tmp_path / "hop") as running:
            installation.load_balancer.targets = [Target(f"127.0.0.1:{running.address.rpartition(':')[2]}")]
            installation.wait_for_calls()
            yield ProxiedSite(installation, running)


def test_pods_are_evaluated_and_the_caller_is_identified(site: ProxiedSite) -> None:
    before = site.calls()
    [namespace] = site.installation.namespaces
    code, pod = site.installation.create_pod(namespace)
    assert (code, pod["spec"]["schedulerName"]) == (201, "podgate-scheduler"), site.hop.log
    assert site.calls() == before + 2
    # Without the proxy, kube-apiserver's certificate is rejected, because only the proxy's CA is trusted.
    site.installation.load_balancer.targets = [site.installation.servers[0].target]
    site.installation.load_balancer.cut()
    code, answer = site.installation.create_pod(namespace)
    assert code == 500, answer
    assert "failed calling webhook" in answer["message"]
