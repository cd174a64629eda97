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
from tests.cluster.installation import Installation, installed
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
IMPATIENT = "import webhook.app.server as s; s._LEASE_PATIENCE_SECONDS = 1; from webhook.cli import main; main()"


def spec(plane: ControlPlane) -> dict[str, Any]:
    found = plane.api.get(_LEASE)
    return dict(found["spec"]) if found else {}


@contextmanager
def counting(plane: ControlPlane, identities: Identities, namespace: str) -> Iterator[Installation]:
    # Of its own namespace alone: Pods that former tests have left elsewhere would be charged again.
    policy = POLICY.replace("lease-*", namespace)
    with installed(plane, identities.files, policy, [namespace]) as found:
        found.wait_for_calls()
        yield found


@contextmanager
def second(found: Installation, *program: str) -> Iterator[None]:
    """Start another server of the same cluster, which cannot listen yet."""
    arguments = (*found.files.arguments()[2:], "--kubeconfig", found.kubeconfig(), "--drain", "0s")
    found.plane.processes.start(SECOND, [sys.executable, *(program or ("-m", "webhook")), "serve", *arguments])
    try:
        yield
    finally:
        found.plane.stop_component(SECOND)


def logged(plane: ControlPlane, name: str, message: str) -> dict[str, Any] | None:
    for line in plane.log(name, 1000).splitlines():
        if f'"msg":"{message}"' in line:
            row: dict[str, Any] = json.loads(line)
            return row
    return None


async def test_lease_changes_holders_as_on_the_fake_api_server(api_alone: ControlPlane, identities: Identities) -> None:
    with installed(api_alone, identities.files, POLICY, ["lease-hands"], servers=0) as found:
        async with await connect(found.kubeconfig()) as client:
            troubles: list[str] = []
            reports = WatchReports(lambda: None, troubles.append, lambda _: None)

            def lease(name: str) -> Lease:
                return Lease(client, name, is_unique=False, reports=reports, on_wait=lambda _: None, timing=QUICK)

            racers = [lease(f"racer-{number}") for number in range(5)]
            outcomes = await asyncio.gather(*(one.take(0) for one in racers), return_exceptions=True)
            [first] = [one for one, outcome in zip(racers, outcomes, strict=True) if outcome is None]
            taken = await asyncio.to_thread(spec, api_alone)
            assert taken["holderIdentity"] == first.identity
            keeping = asyncio.create_task(first.keep())
            while (renewed := await asyncio.to_thread(spec, api_alone))["renewTime"] == taken["renewTime"]:
                assert not keeping.done()
            assert renewed["acquireTime"] == taken["acquireTime"]
            with pytest.raises(UserError, match=f"is held by {first.identity} since {taken['acquireTime']}"):
                await lease("late").take(0)
            keeping.cancel()
            await first.release()
            assert "holderIdentity" not in await asyncio.to_thread(spec, api_alone)
            await lease("late").take(0)
            assert (await asyncio.to_thread(spec, api_alone))["leaseTransitions"] == 1
            assert troubles == []
    api_alone.kubectl("delete", "lease", "podgate-leader", "-n", NAMESPACE)


def test_second_server_exits_and_the_first_continues(api_alone: ControlPlane, identities: Identities) -> None:
    with counting(api_alone, identities, "lease-second") as found:
        holder = spec(api_alone)["holderIdentity"]
        with second(found, "-c", IMPATIENT):
            api_alone.wait(lambda: not api_alone.processes.alive(SECOND), "the second server to leave", "etcd")
            log = api_alone.log(SECOND)
        assert f"error: lease {NAMESPACE}/podgate-leader is held by {holder} since " in log
        assert "run one replica, or let all share a --store redis://" in log
        assert "Traceback" not in log
        assert logged(api_alone, SECOND, "listening") is None
        assert spec(api_alone)["holderIdentity"] == holder
        assert found.create_pod("lease-second")[0] == 201


@pytest.mark.parametrize("kill", [False, True], ids=["ended", "killed"])
def test_next_server_acquires_the_released_lease(
    api_alone: ControlPlane, identities: Identities, *, kill: bool
) -> None:
    (Path(api_alone.folder) / f"{SECOND}.log").unlink(missing_ok=True)
    with counting(api_alone, identities, f"lease-next-{int(kill)}") as found:
        holder = spec(api_alone)["holderIdentity"]
        with second(found):
            waiting = "waiting for another server to exit"
            api_alone.wait(lambda: logged(api_alone, SECOND, waiting), "the second server to wait", SECOND)
            found.stop_server(found.servers[0], kill=kill)
            api_alone.wait(lambda: logged(api_alone, SECOND, "listening"), "the second server to listen", SECOND)
            assert spec(api_alone)["holderIdentity"] != holder


def test_server_continues_to_count_through_restarts_of_api_server_and_etcd(
    api_alone: ControlPlane, identities: Identities
) -> None:
    with counting(api_alone, identities, "lease-away") as found:
        holder, renewed = spec(api_alone)["holderIdentity"], spec(api_alone)["renewTime"]
        assert found.create_pod("lease-away")[0] == 201
        for component, kill in (("kube-apiserver", True), ("etcd", True)):
            api_alone.restart(component, kill=kill)
            api_alone.wait_ready()
        api_alone.wait(lambda: spec(api_alone)["renewTime"] > renewed, "the lease to be renewed", "kube-apiserver")
        assert spec(api_alone)["holderIdentity"] == holder
        found.wait_for_calls()
        [service] = found.servers[0].status()["services"]
        assert [str(window["used"]) for window in service["windows"]] == ["1"], "it has forgotten nothing"
