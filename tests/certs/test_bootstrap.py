"""`podgate certs bootstrap`: its effects beside a running leader, and its output."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio.client import ApiClient, Configuration

from certs.cluster.ca_controller import CLIENT, CaController
from certs.cluster.port_switch import PEMS, PORTS, PortSwitch
from tests.certs.memory_objects import PLAN, SECRETS, Objects, settle
from tests.cli.command_runner import Done, podgate
from webhook.adapters import kubernetes


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Objects:
    objects = Objects()

    async def connect(*_: Any) -> ApiClient:
        return ApiClient(Configuration(host="http://127.0.0.1:1"))

    monkeypatch.setattr(kubernetes, "connect", connect)
    monkeypatch.setattr("certs.cluster.api.Api", lambda *_: objects)
    return objects


def bootstrap(folder: Path) -> Done:
    (kubeconfig := folder / "kubeconfig").write_text("{}")
    return podgate("certs", "bootstrap", "--kubeconfig", kubeconfig)


def test_bootstrap_creates_missing_objects_once(cluster: Objects, tmp_path: Path) -> None:
    result = bootstrap(tmp_path)
    assert (result.code, result.err) == (0, "")
    assert "podgate-tls: issued by" in result.out
    assert set(cluster.secret(CLIENT)) == {"tls.crt", "tls.key", "ca.crt"}
    assert bootstrap(tmp_path) == Done(0, "nothing to do: everything exists\n", "")


def test_bootstrap_keeps_the_port_certificates_of_the_leader(cluster: Objects, tmp_path: Path) -> None:
    """It does not know --caller-ports; without the port certificates, the certificate in use would change in place."""
    asyncio.run(settle(cluster, [CaController(PLAN), PortSwitch((443, 444))], datetime.now(UTC)))
    before = cluster.secret(CLIENT)
    assert {*PEMS, PORTS} < set(before)
    assert bootstrap(tmp_path) == Done(0, "nothing to do: everything exists\n", "")
    assert cluster.secret(CLIENT) == before


def test_bootstrap_reports_completeness_only_after_reading(cluster: Objects, tmp_path: Path) -> None:
    bootstrap(tmp_path)
    cluster.unreadable.add(f"{SECRETS}/{CLIENT}")
    result = bootstrap(tmp_path)
    assert (result.code, result.out) == (1, "")
    assert f"{CLIENT}: HTTP 403: grant the right" in result.err


def test_without_a_cluster_bootstrap_requests_a_kubeconfig_and_no_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PODGATE_KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    result = podgate("certs", "bootstrap")
    assert (result.code, result.out) == (2, "")
    assert result.error == "--kubeconfig: missing, and this is no Pod with a service account's token: name the cluster"
