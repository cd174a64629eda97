"""The upgrade from the former release and the way back, by the steps of docs/upgrade.md, while Pods are created.

The former release has its own manifests, two servers, a controller and a Redis. No creation may fail or be denied for a
wrong reason, no window of a service may hold more than its limit, and each Pod is charged once.
"""

import json
import os
import re
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.admission_configuration import NAMESPACE, stand_in_service
from tests.cluster.check import list_findings
from tests.cluster.controller_fixture import ControllerFixture
from tests.cluster.controlplane import API_ALONE, ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.ledger_log import LedgerLog
from tests.cluster.queue import is_gated
from tests.cluster.releases import Operator, Release, operate
from tests.cluster.server import Server
from tests.cluster.upgrade_load import (
    AMPLE,
    APPS,
    BROKEN,
    DENIALS,
    NAMESPACES,
    POLICY,
    QUEUED,
    SCARCE,
    TAGS,
    UpgradeLoad,
)
from tests.harness.revisions import ROOT
from tests.redis_servers import RedisServer
from webhook.controller.reports import ControllerTiming

pytest_plugins = ("tests.redis_servers.fixtures",)

ROUNDS = 200 if os.environ.get("PODGATE_TEST_UPGRADE") == "soak" else 2
"""Answers that each client gets between two steps."""
PAGE = (ROOT / "docs" / "upgrade.md").read_text()
OVERLAY = "manifests/overlays/redis"
WITHOUT_NODES = {
    *("no-endpoints", "deployment-unavailable", "images-differ", "scheduler-missing"),
    *("secret-missing", "webhook-timeout", "redis-forgets"),
}
"""Findings of `podgate check` on this cluster: no Pod runs, and the tests' files and timeouts are others."""
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/podgate"


def read_steps(heading: str) -> dict[str, list[str]]:
    """Return the commands of kubectl in each row of the table below a heading, by the row's first cell."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ", 2) for line in section.splitlines() if re.match(r"\| \d+ \|", line)]
    return {
        row[0].strip("| "): [
            command.replace("OVERLAY", OVERLAY) for command in re.findall(r"`(kubectl [^`]+)`", " ".join(row[1:]))
        ]
        for row in rows
    }


@pytest.fixture
def plane(identities: Identities) -> Iterator[ControlPlane]:
    """Start a cluster of its own whose workloads have Pods, without Nodes."""
    components = (*API_ALONE, "kube-controller-manager")
    with ControlPlane(callers=identities.callers, components=components) as running:
        running.apply(*stand_in_service())
        yield running


def start_all(op: Operator, release: Release) -> None:
    for _ in range(2):
        op.start_server(release)
    op.start_controller(release)
    op.render_webhooks(release)
    op.installation.wait_for_calls()


def read_service(server: Server, name: str) -> dict[str, Any]:
    [found] = [service for service in server.status()["services"] if service["name"] == name]
    return dict(found)


def count_used(server: Server) -> int:
    [used] = [limit["used"] for limit in read_service(server, AMPLE)["windows"] if limit["window"] == "1h"]
    return int(used)


def assert_agreement(op: Operator) -> None:
    """Wait until both servers count the same Pods; assert that the breaker that has opened is open on both."""
    servers = op.installation.servers
    op.plane.wait(lambda: len({count_used(server) for server in servers}) == 1, "the servers to agree")
    assert [read_service(server, BROKEN)["breaker"]["state"] for server in servers] == ["OPEN", "OPEN"]


def assert_right(op: Operator, load: UpgradeLoad) -> None:
    """Assert what must be true after the load, whichever release runs."""
    assert load.failures == []
    assert load.list_failed_creations() == []
    assert load.list_wrong_counts() == []
    assert {key.partition(":")[0] for key in load.denied} == DENIALS.keys(), "each limit was reached"
    pods = [pod for namespace in NAMESPACES for pod in op.installation.pods(namespace)]
    assert not any(is_gated(pod) for pod in pods)
    live = [pod for pod in op.installation.pods(APPS) if "deletionTimestamp" not in pod["metadata"]]
    counters = ControllerFixture(op.installation, op.store)
    counters.wait(lambda: counters.count_standing(APPS) == len(live), "the live Pods to be counted")
    for process in (*op.installation.servers, *op.installation.controllers):
        status = process.status()
        assert (status["notReady"], status["policy"]["errors"]) == ([], []), status
    assert count_used(op.installation.servers[0]) <= len(load.list_pods(AMPLE)) + load.taken


def test_an_upgrade_under_load_fails_no_creation(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer, tmp_path: Path
) -> None:
    steps = read_steps("Order")
    with operate(plane, identities, tmp_path, a_redis.url, POLICY, NAMESPACES) as op:
        op.former_site.run("kubectl apply -k manifests && kubectl apply -k manifests/redis")
        op.former_site.run("kubectl delete clusterrolebinding podgate-in-memory")
        start_all(op, op.former)
        time.sleep(ControllerTiming().skew_seconds)  # what is charged before is never refunded: clocks may differ
        with UpgradeLoad.run(plane, LedgerLog(a_redis, *TAGS)) as load:
            load.wait_for_rounds(ROUNDS)
            op.site.run(steps["1"][0])
            op.site.run(steps["2"][0])
            spec = plane.api.get(DEPLOYMENT)["spec"]
            assert spec["replicas"] == 2
            assert any(flag.startswith("--store=redis") for flag in spec["template"]["spec"]["containers"][0]["args"])
            for server in list(op.installation.servers):
                op.replace_server(op.this, server)
                load.wait_for_rounds(ROUNDS)
                assert_agreement(op)
            op.site.run(steps["3"][0])
            controller = op.start_controller(op.this)
            written = "podgate_webhook_configurations_written_total"
            plane.wait(lambda: controller.total(written), "the leader to write the configurations", controller.name)
            load.wait_for_rounds(ROUNDS)
        assert_right(op, load)
        counters = ControllerFixture(op.installation, op.store)
        counters.wait(lambda: counters.count_used(AMPLE) == len(load.list_pods(AMPLE)), "each Pod to count once")
        assert_agreement(op)
        assert list_findings(op.installation).keys() <= WITHOUT_NODES
        for process in (*op.installation.servers, controller):
            status = json.loads(op.this.run(plane, "status", "--server", f"http://{process.plain}", "-o", "json"))
            assert (status["version"], status["notReady"]) == (version("podgate"), [])


def test_a_downgrade_under_load_fails_no_creation(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer, tmp_path: Path
) -> None:
    steps = read_steps("Downgrade")
    with operate(plane, identities, tmp_path, a_redis.url, QUEUED, NAMESPACES) as op:
        op.site.run(f"kubectl apply -k {OVERLAY}")
        op.installation.apply_policy(QUEUED)
        start_all(op, op.this)
        with UpgradeLoad.run(plane, LedgerLog(a_redis, *TAGS)) as load:
            plane.wait(lambda: list_gated(op), "a Pod to wait")
            load.wait_for_rounds(ROUNDS)
            op.installation.change_policy(POLICY)
            plane.wait(lambda: not list_gated(op), "the last waiting Pod to be released")
            op.former_site.run(steps["4"][0])
            op.start_controller(op.former)
            load.wait_for_rounds(ROUNDS)
            op.render_webhooks(op.former)
            op.write_policy(op.former_site, POLICY)
            op.former_site.run(steps["6"][0])
            op.former_site.run("kubectl delete clusterrolebinding podgate-in-memory")
            for server in list(op.installation.servers):
                op.replace_server(op.former, server)
                load.wait_for_rounds(ROUNDS)
                assert_agreement(op)
        assert_right(op, load)
        assert op.installation.read_stored("podgate-policy") == POLICY


def list_gated(op: Operator) -> list[str]:
    return [pod["metadata"]["name"] for pod in op.installation.pods(SCARCE) if is_gated(pod)]
