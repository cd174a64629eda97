"""`podgate check` with two servers that do not agree, each asked through the API server's port-forward."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.command_runner import podgate
from tests.cluster.controlplane import ControlPlane
from tests.cluster.forwarded_pods import run_pods
from tests.cluster.kubelet_ports import kubelet_ports
from tests.harness.server_process import Files, run_server
from tests.redis_servers import RedisServer, names

pytest_plugins = ("tests.redis_servers.fixtures",)

POLICY = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices: [{name: web, match: {namespaces: [shop]}}]\n"
OTHER = POLICY.replace("name: web", "name: other")
SECTION = "servers and controllers together"


async def test_two_servers_that_do_not_agree_are_found(
    api_alone: ControlPlane, tmp_path: Path, shared_redis: Callable[[str], RedisServer]
) -> None:
    pki, url = api_alone.folder / "pki", shared_redis(names()[0]).url
    first, second = (tmp_path / name for name in ("first", "second"))
    first.mkdir()
    second.mkdir()
    database = url.rpartition("/")[0] if url.count("/") > 2 else url
    options = ("--store", f"{database}/0"), ("--store", f"{database}/1", "--cluster", "staging")
    async with (
        run_server(Files.create(first, POLICY), *options[0]) as one,
        run_server(Files.create(second, OTHER), *options[1]) as other,
    ):
        ports = {("podgate-0", 8081): one.plain, ("podgate-1", 8081): other.plain}
        with (
            kubelet_ports(pki / "apiserver.crt", pki / "apiserver.key", ports) as port,
            run_pods(api_alone, "podgate", ["podgate-0", "podgate-1"], port),
        ):
            arguments = ("--kubeconfig", api_alone.kubeconfig, "--server", f"http://{one.plain}", "-o", "json")
            done = await asyncio.to_thread(podgate, "check", *arguments)
    (checks,) = [section["checks"] for section in json.loads(done.out)["sections"] if section["title"] == SECTION]
    found: dict[str, Any] = {check["code"]: check["findings"][0]["value"] for check in checks if check["findings"]}
    assert found.keys() == {"stores-differ", "cluster-names-differ", "policies-differ"}, found
    assert found["cluster-names-differ"] == "default: podgate-0; staging: podgate-1"
    assert "database 0: podgate-0" in found["stores-differ"]
    assert "database 1: podgate-1" in found["stores-differ"]
