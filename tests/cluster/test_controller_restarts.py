"""Controllers that are killed and restarted, on Redis: in the end the counters match the cluster."""

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
from tests.cluster.installation import LEASE, installed
from tests.cluster.pod_churn import PodChurn
from tests.cluster.processes import ComponentError
from tests.cluster.server import SHORT_INTERVALS, Server
from tests.redis_servers import RedisServer
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose, load
from webhook.core.quota import STANDING, Acquire
from webhook.ports import WatchReports

pytest_plugins = ("tests.redis_servers.fixtures",)

KILLS = int(os.environ.get("PODGATE_TEST_KILLS", "3"))
OPERATIONS = 60
"""Of the churn, from one kill to the next."""
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


def enforced(running: ControllerFixture, service: str) -> bool:
    return bool(running.limit(service, STANDING)["enforced"])


def test_live_pod_limits_are_enforced_after_the_first_full_list(
    api_alone: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    with installed(api_alone, identities.files, policy("first", live=1), ["killed-first"], servers=0) as found:
        found.program = SHORT_INTERVALS
        running = ControllerFixture(found, a_redis.url)
        running.start_server()
        found.wait_for_calls()
        assert [found.create_pod("killed-first")[0] for _ in range(3)] == [201] * 3
        assert not enforced(running, "first")
        running.start_controller()
        running.wait(lambda: enforced(running, "first"), "the limit to hold")
        assert running.standing("first") == 3
        assert found.create_pod("killed-first")[0] == 429


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
            if unproven:  # up to which version all was seen, is written there
                api_alone.kubectl("delete", "lease", LEASE, "-n", NAMESPACE)
            running.start_controller()
            running.wait(lambda: not waited_for(a_redis, "gap"), "all to be decided")
            assert (running.used("gap"), running.standing("gap")) == (used, 1)
            assert (running.refunded("gap"), running.unproven("gap")) == (0, unproven)


def test_ledger_equals_the_cluster_after_pod_churn(
    api_alone: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    with controller_fixture(api_alone, identities, policy("churn"), ["killed-churn"], a_redis.url) as running:
        running.start_controller()
        with PodChurn.running(api_alone, "killed-churn") as churn:
            for number in range(KILLS):
                wait_for_operations(api_alone, churn)
                running.installation.stop_controller(leader(running), kill=True)
                running.start_controller()
                if number == KILLS // 2:
                    two_lead_for_a_moment(running, churn)
        settle(running, a_redis, churn)
        assert asyncio.run(still_charged(a_redis, "churn")) == churn.created
        assert churn.rejected > 0

        with PodChurn.running(api_alone, "killed-churn") as another:
            wait_for_operations(api_alone, another)
            another.leave_terminating()  # as the kill itself does now and then
            api_alone.restart("kube-apiserver", kill=True)
            api_alone.wait_ready()
            wait_for_operations(api_alone, another)
        settle(running, a_redis, another)
        charged = asyncio.run(still_charged(a_redis, "churn"))
        assert churn.created | another.created <= charged, "a Pod that came to be was given back"
        # The watch has a gap now: who was charged before it, and is not there, may have been there.
        unproven = len(charged) - len(churn.created | another.created)
        assert unproven <= running.unproven("churn")


def settle(running: ControllerFixture, redis: RedisServer, churn: PodChurn) -> None:
    """Wait until everything is decided; then the store is to hold what there is."""
    with explained(running, redis, churn):
        running.wait(lambda: not waited_for(redis, "churn"), "all to be decided")
        running.wait(lambda: stand(redis, "churn") == churn.live(), "who lives to stand, and nobody else")
        running.wait(lambda: leader(running).metrics().get(DRIFT) == 0, "a repair that finds nothing to mend")
    assert running.standing("churn") == len(churn.live())
    assert running.used("churn") == len(asyncio.run(still_charged(redis, "churn")))


@contextmanager
def explained(running: ControllerFixture, redis: RedisServer, churn: PodChurn) -> Iterator[None]:
    """Where it was in vain, say who stands wrongly, who is waited for, and what the controllers believed."""
    try:
        yield
    except ComponentError as error:
        live, standing = churn.live(), stand(redis, "churn")
        error.add_note(f"stand, and do not live: {sorted(standing - live)}")
        error.add_note(f"live, and do not stand: {sorted(live - standing)}")
        error.add_note(f"are waited for: {sorted(waited_for(redis, 'churn'))}")
        for one in running.controllers:
            contacts = {name: time.time() - at for name, at in one.metrics().items() if "_contact_" in name}
            error.add_note(f"{one.name}: {one.status()}; seconds since the last word: {contacts}")
        raise


def wait_for_operations(plane: ControlPlane, churn: PodChurn) -> None:
    enough = churn.operations + OPERATIONS
    plane.wait(lambda: churn.operations >= enough, f"{OPERATIONS} more operations of the churn", "etcd")


def leader(running: ControllerFixture) -> Server:
    """Return who leads, once somebody does and has listed all Pods."""
    found = running.plane.wait(running.leader, "a controller to lead", *(one.name for one in running.controllers))
    assert isinstance(found, Server)
    return found


def two_lead_for_a_moment(running: ControllerFixture, churn: PodChurn) -> None:
    """Stop the leader where it is, as a machine may, and let it go on when another has taken over."""
    first, plane = leader(running), running.plane
    [other] = [one for one in running.installation.controllers if one != first]
    os.kill(plane.processes.pid(first.name), signal.SIGSTOP)
    plane.wait(lambda: leads(other), "the other to take over", other.name)
    wait_for_operations(plane, churn)
    os.kill(plane.processes.pid(first.name), signal.SIGCONT)
    plane.wait(lambda: not leads(first), "the former leader to stop", first.name)


def waited_for(redis: RedisServer, tag: str) -> set[str]:
    """Return the uids that were charged and not seen."""
    with redis.client() as client:
        return {uid.decode() for uid in client.zrange(f"podgate:{{{tag}}}:v1:default:pending:{tag}", 0, -1)}


def stand(redis: RedisServer, service: str) -> set[str]:
    """Return the uids that stand as live."""
    with redis.client() as client:
        fields = client.hkeys(f"podgate:{{{service}}}:v1:default:live:{service}")
    return {field.decode()[2:] for field in fields if field.startswith(b"u:")}


async def still_charged(redis: RedisServer, name: str) -> set[str]:
    """Return the uids that were charged and not given back: to ask for one of them again is to repeat oneself."""
    plan = CompiledPolicy(load(policy(name).encode(), Purpose.REPLAY).policy).plans[name]
    with redis.client() as client:
        keys = [key.decode() for key in client.scan_iter(f"podgate:{{{name}}}:v1:default:pod:*", count=1000)]
    uids = [key.rpartition(":")[2] for key in keys]
    quiet = WatchReports(lambda: None, lambda _: None, lambda _: None)
    store = RedisStore(open_transport(redis.url), "default", SystemClock(), quiet, deadline_seconds=30)
    try:
        asked = (Acquire(plan, f"killed-{name}", uid, {"pods": 1}, "", peek=True) for uid in uids)
        receipts = await asyncio.gather(*(store.acquire(one) for one in asked))
    finally:
        await store.close()
    return {uid for uid, receipt in zip(uids, receipts, strict=True) if receipt.repeated}
