"""Killed and restarted controllers on Redis: in the end the counters match the cluster."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controller_fixture import ControllerFixture, controller_fixture, leads
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import LEASE, install_podgate
from tests.cluster.pod_churn import PodChurn
from tests.cluster.processes import ComponentError
from tests.cluster.server import SHORT_INTERVALS, Server
from tests.redis_servers import RedisServer
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose, load
from webhook.core.quota import STANDING, Acquire
from webhook.ports import StoreReports

pytest_plugins = ("tests.redis_servers.fixtures",)

KILLS = int(os.environ.get("PODGATE_TEST_KILLS", "2"))
OPERATIONS = 40
"""Number of operations of the churn between two kills."""
DRIFT = 'podgate_standing_drift{service="churn"}'
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
defaults: {failureMode: Closed}
services:
- name: NAME
  match: {namespaces: [killed-NAME]}
  quota: {windows: [{window: 1h, hard: {pods: 100000}}], standing: {hard: {pods: LIVE}, surge: 0}}
"""


def policy(name: str, live: int = 100_000) -> str:
    return POLICY.replace("NAME", name).replace("LIVE", str(live))


def is_enforced(running: ControllerFixture, service: str) -> bool:
    return bool(running.limit(service, STANDING)["enforced"])


def test_live_pod_limits_are_enforced_after_the_first_full_list(
    api_alone: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    with install_podgate(
        api_alone, identities.files, policy("first", live=1), ["killed-first"], servers=0
    ) as installation:
        installation.program = SHORT_INTERVALS
        running = ControllerFixture(installation, a_redis.url)
        running.start_server()
        installation.wait_for_calls()
        assert [installation.create_pod("killed-first")[0] for _ in range(3)] == [201] * 3
        assert not is_enforced(running, "first")
        running.start_controller()
        running.wait(lambda: is_enforced(running, "first"), "the limit to hold")
        assert running.count_standing("first") == 3
        assert installation.create_pod("killed-first")[0] == 429


def test_pod_created_and_deleted_without_a_controller_is_not_refunded(
    api_alone: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    with controller_fixture(api_alone, identities, policy("gap"), ["killed-gap"], a_redis.url) as running:
        running.lose("killed-gap")
        running.settle("gap", "killed-gap", 1)
        for used, unproven in ((11, 0), (21, 10)):
            [controller] = running.installation.controllers
            running.installation.stop_controller(controller, kill=True)
            for number in range(10):
                assert running.installation.create_pod("killed-gap", f"brief-{number}")[0] == 201
                api_alone.api.request("DELETE", f"/api/v1/namespaces/killed-gap/pods/brief-{number}")
            if unproven:  # the Lease records the resource version up to which all Pods were seen
                api_alone.kubectl("delete", "lease", LEASE, "-n", NAMESPACE)
            running.start_controller()
            running.wait(lambda: not list_pending(a_redis, "gap"), "all to be decided")
            assert (running.count_used("gap"), running.count_standing("gap")) == (used, 1)
            assert (running.count_refunded("gap"), running.count_unproven("gap")) == (0, unproven)


def test_ledger_equals_the_cluster_after_pod_churn(
    api_alone: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    with controller_fixture(api_alone, identities, policy("churn"), ["killed-churn"], a_redis.url) as running:
        running.start_controller()
        with PodChurn.run(api_alone, "killed-churn") as churn:
            for number in range(KILLS):
                wait_for_operations(api_alone, churn)
                running.installation.stop_controller(leader(running), kill=True)
                running.start_controller()
                if number == KILLS // 2:
                    let_two_controllers_lead(running, churn)
        settle(running, a_redis, churn)
        assert asyncio.run(list_charged(a_redis, "churn")) == churn.created
        assert churn.rejected > 0

        with PodChurn.run(api_alone, "killed-churn") as second_churn:
            wait_for_operations(api_alone, second_churn)
            second_churn.leave_terminating()  # a kill itself leaves one only sometimes
            api_alone.restart("kube-apiserver", kill=True)
            api_alone.wait_ready()
            wait_for_operations(api_alone, second_churn)
        settle(running, a_redis, second_churn)
        charged = asyncio.run(list_charged(a_redis, "churn"))
        assert churn.created | second_churn.created <= charged, "a created Pod was refunded"
        # After the gap of the watch, absent Pods that were charged before it may have existed.
        unproven = len(charged) - len(churn.created | second_churn.created)
        assert unproven <= running.count_unproven("churn")


def settle(running: ControllerFixture, redis: RedisServer, churn: PodChurn) -> None:
    """Wait until all charges are decided; then the counters must match the cluster."""
    with explain_failure(running, redis, churn):
        running.wait(lambda: not list_pending(redis, "churn"), "all to be decided")
        running.wait(lambda: list_live(redis, "churn") == churn.list_live(), "exactly the live Pods to be counted")
        running.wait(lambda: leader(running).metrics().get(DRIFT) == 0, "a repair that finds no drift")
    assert running.count_standing("churn") == len(churn.list_live())
    assert running.count_used("churn") == len(asyncio.run(list_charged(redis, "churn")))


@contextmanager
def explain_failure(running: ControllerFixture, redis: RedisServer, churn: PodChurn) -> Iterator[None]:
    """Add to a failure the differences of live and counted Pods, pending charges, and the status of controllers."""
    try:
        yield
    except ComponentError as error:
        live, counted = churn.list_live(), list_live(redis, "churn")
        error.add_note(f"counted, but not live: {sorted(counted - live)}")
        error.add_note(f"live, but not counted: {sorted(live - counted)}")
        error.add_note(f"pending: {sorted(list_pending(redis, 'churn'))}")
        for controller in running.controllers:
            contacts = {name: time.time() - at for name, at in controller.metrics().items() if "_contact_" in name}
            error.add_note(f"{controller.name}: {controller.status()}; seconds since the last contact: {contacts}")
        raise


def wait_for_operations(plane: ControlPlane, churn: PodChurn) -> None:
    enough = churn.operations + OPERATIONS
    plane.wait(lambda: churn.operations >= enough, f"{OPERATIONS} more operations of the churn", "etcd")


def leader(running: ControllerFixture) -> Server:
    """Wait until a controller leads and has listed all Pods; return it."""
    leading = running.plane.wait(
        running.leader, "a controller to lead", *(controller.name for controller in running.controllers)
    )
    assert isinstance(leading, Server)
    return leading


def let_two_controllers_lead(running: ControllerFixture, churn: PodChurn) -> None:
    """Suspend the leader, and continue it after another controller has become leader."""
    first, plane = leader(running), running.plane
    [other] = [controller for controller in running.installation.controllers if controller != first]
    os.kill(plane.processes.pid(first.name), signal.SIGSTOP)
    plane.wait(lambda: leads(other), "the other controller to lead", other.name)
    wait_for_operations(plane, churn)
    os.kill(plane.processes.pid(first.name), signal.SIGCONT)
    plane.wait(lambda: not leads(first), "the former leader to stop", first.name)


def list_pending(redis: RedisServer, tag: str) -> set[str]:
    """Return the UIDs of Pods that were charged and not seen yet."""
    with redis.client() as client:
        return {uid.decode() for uid in client.zrange(f"podgate:{{{tag}}}:v1:default:pending:{tag}", 0, -1)}


def list_live(redis: RedisServer, service: str) -> set[str]:
    """Return the UIDs of Pods that are counted as live."""
    with redis.client() as client:
        fields = client.hkeys(f"podgate:{{{service}}}:v1:default:live:{service}")
    return {field.decode()[2:] for field in fields if field.startswith(b"u:")}


async def list_charged(redis: RedisServer, name: str) -> set[str]:
    """Return the UIDs of Pods whose charge was not refunded: a second charge would be a repetition."""
    plan = CompiledPolicy(load(policy(name).encode(), Purpose.REPLAY).policy).plans[name]
    with redis.client() as client:
        keys = [key.decode() for key in client.scan_iter(f"podgate:{{{name}}}:v1:default:pod:*", count=1000)]
    uids = [key.rpartition(":")[2] for key in keys]
    no_reports = StoreReports(lambda: None, lambda _: None, lambda _: None)
    store = RedisStore(open_transport(redis.url), "default", SystemClock(), no_reports, deadline_seconds=30)
    try:
        acquires = (Acquire(plan, f"killed-{name}", uid, {"pods": 1}, "", peek=True) for uid in uids)
        receipts = await asyncio.gather(*(store.acquire(acquire) for acquire in acquires))
    finally:
        await store.close()
    return {uid for uid, receipt in zip(uids, receipts, strict=True) if receipt.repeated}
