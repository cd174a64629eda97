"""The Lease on a real API server, with the manifests' permissions: exactly one server counts."""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from webhook.adapters.kubernetes import Lease, LeaseTiming, connect
from webhook.errors import UserError
from webhook.ports import WatchReports

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: counted
  match: {namespaces: ["lease-*"]}
  failureMode: Closed
  quota: {windows: [{window: 1h, hard: {pods: 100}}]}
"""
_LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/podgate-leader"
QUICK = LeaseTiming(duration_seconds=3600, renew_seconds=0.05, retry_seconds=0.05)
SECOND = "podgate-second"
SHORT_WAIT = "import webhook.app.server as s; s._LEASE_PATIENCE_SECONDS = 1; from webhook.cli import main; main()"


def spec(plane: ControlPlane) -> dict[str, Any]:
    lease_object = plane.api.get(_LEASE)
    return dict(lease_object["spec"]) if lease_object else {}


@contextmanager
def install_counting(plane: ControlPlane, identities: Identities, namespace: str) -> Iterator[Installation]:
    # Only its own namespace: Pods left by earlier tests in other namespaces would be charged again.
    policy = POLICY.replace("lease-*", namespace)
    with install_podgate(plane, identities.files, policy, [namespace]) as installation:
        installation.wait_for_calls()
        yield installation


@contextmanager
def second_server(installation: Installation, *program: str) -> Iterator[None]:
    """Start another server of the same cluster, which waits for the Lease."""
    arguments = (*installation.files.arguments()[2:], "--kubeconfig", installation.kubeconfig(), "--drain", "0s")
    installation.plane.processes.start(SECOND, [sys.executable, *(program or ("-m", "webhook")), "serve", *arguments])
    try:
        yield
    finally:
        installation.plane.stop_component(SECOND)


def find_logged(plane: ControlPlane, name: str, message: str) -> dict[str, Any] | None:
    for line in plane.log(name, 1000).splitlines():
        if f'"msg":"{message}"' in line:
            row: dict[str, Any] = json.loads(line)
            return row
    return None


async def test_lease_changes_holders_as_on_the_fake_api_server(api_alone: ControlPlane, identities: Identities) -> None:
    with install_podgate(api_alone, identities.files, POLICY, ["lease-hands"], servers=0) as installation:
        async with await connect(installation.kubeconfig()) as client:
            errors: list[str] = []
            reports = WatchReports(lambda: None, errors.append, lambda _: None)

            def lease(name: str) -> Lease:
                return Lease(client, name, is_unique=False, reports=reports, on_wait=lambda _: None, timing=QUICK)

            contenders = [lease(f"racer-{number}") for number in range(5)]
            outcomes = await asyncio.gather(*(contender.take(0) for contender in contenders), return_exceptions=True)
            [first] = [contender for contender, outcome in zip(contenders, outcomes, strict=True) if outcome is None]
            acquired = await asyncio.to_thread(spec, api_alone)
            assert acquired["holderIdentity"] == first.identity
            renewing = asyncio.create_task(first.keep())
            while (renewed := await asyncio.to_thread(spec, api_alone))["renewTime"] == acquired["renewTime"]:
                assert not renewing.done()
            assert renewed["acquireTime"] == acquired["acquireTime"]
            with pytest.raises(UserError, match=f"is held by {first.identity} since {acquired['acquireTime']}"):
                await lease("late").take(0)
            renewing.cancel()
            await first.release()
            assert "holderIdentity" not in await asyncio.to_thread(spec, api_alone)
            await lease("late").take(0)
            assert (await asyncio.to_thread(spec, api_alone))["leaseTransitions"] == 1
            assert errors == []


def test_second_server_exits_and_the_first_continues(api_alone: ControlPlane, identities: Identities) -> None:
    with install_counting(api_alone, identities, "lease-second") as installation:
        holder = spec(api_alone)["holderIdentity"]
        with second_server(installation, "-c", SHORT_WAIT):
            api_alone.wait(lambda: not api_alone.processes.is_alive(SECOND), "the second server to exit", "etcd")
            log = api_alone.log(SECOND)
        assert f"error: lease {NAMESPACE}/podgate-leader is held by {holder} since " in log
        assert "run one replica, or let all share a --store redis://" in log
        assert "Traceback" not in log
        assert find_logged(api_alone, SECOND, "listening") is None
        assert spec(api_alone)["holderIdentity"] == holder
        assert installation.create_pod("lease-second")[0] == 201


@pytest.mark.parametrize("kill", [False, True], ids=["ended", "killed"])
def test_next_server_acquires_the_released_lease(
    api_alone: ControlPlane, identities: Identities, *, kill: bool
) -> None:
    (Path(api_alone.folder) / f"{SECOND}.log").unlink(missing_ok=True)
    with install_counting(api_alone, identities, f"lease-next-{int(kill)}") as installation:
        holder = spec(api_alone)["holderIdentity"]
        with second_server(installation):
            waiting = "waiting for another server to exit"
            api_alone.wait(lambda: find_logged(api_alone, SECOND, waiting), "the second server to wait", SECOND)
            installation.stop_server(installation.servers[0], kill=kill)
            api_alone.wait(lambda: find_logged(api_alone, SECOND, "listening"), "the second server to listen", SECOND)
            assert spec(api_alone)["holderIdentity"] != holder


def test_server_continues_to_count_through_restarts_of_api_server_and_etcd(
    api_alone: ControlPlane, identities: Identities
) -> None:
    with install_counting(api_alone, identities, "lease-away") as installation:
        holder, renewed = spec(api_alone)["holderIdentity"], spec(api_alone)["renewTime"]
        assert installation.create_pod("lease-away")[0] == 201
        for component, kill in (("kube-apiserver", True), ("etcd", True)):
            api_alone.restart(component, kill=kill)
            api_alone.wait_ready()
        api_alone.wait(lambda: spec(api_alone)["renewTime"] > renewed, "the lease to be renewed", "kube-apiserver")
        assert spec(api_alone)["holderIdentity"] == holder
        installation.wait_for_calls()
        [service] = installation.servers[0].status()["services"]
        assert [str(window["used"]) for window in service["windows"]] == ["1"], "the charge is kept"
