"""Two servers on a real API server follow one state: canary, rollback, pin, restart, and a state that is gone."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from statistics import median
from typing import Any

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.cluster.server import Server
from tests.harness.policy_revisions import hash_of
from tests.redis_servers import RedisServer
from webhook.adapters.kubernetes import ConfigMapRolloutStateStore, ControllerRevisions, connect
from webhook.core.document.configmap import ROLLOUT_STATE
from webhook.core.rollout.state import Intervention, Phase, Rejection, RolloutState

pytest_plugins = ("tests.redis_servers.fixtures",)

STAGE, LIVE = "rollout-stage", "rollout-live"
_STATE = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{ROLLOUT_STATE}"
_REVISIONS = f"/apis/apps/v1/namespaces/{NAMESPACE}/controllerrevisions"
_AGREE_SECONDS, _LATE_SECONDS = 1.0, 10.0
"""Between the changes of two servers: as a rule, and where a busy machine holds one of them up."""
_SUM = """\
local sum = 0
for _, key in ipairs(redis.call('KEYS', '*:rollout:*')) do
  sum = sum + (redis.call('HGET', key, ARGV[1]) or 0)
end
return sum
"""


def policy(tier: str, rollout: str = f"rollout: {{canary: {{steps: [{{namespaces: [{STAGE}]}}]}}}}\n") -> str:
    return (
        f"apiVersion: podgate.io/v1alpha1\nkind: Policy\n{rollout}services:\n- name: web\n"
        f'  match: {{namespaces: ["rollout-*"]}}\n  placement: {{nodeSelector: {{tier: {tier}}}}}\n'
    )


OLD, NEW = policy("old"), policy("new")
OLD_HASH, NEW_HASH = hash_of(OLD.encode()), hash_of(NEW.encode())
GOVERNED = RolloutState(OLD_HASH, governed=True)
CANARY = RolloutState(OLD_HASH, governed=True, phase=Phase.CANARY, candidate=NEW_HASH)


class Rollout:
    """An installation with two servers, and the state that the test writes for them."""

    def __init__(self, plane: ControlPlane, installation: Installation) -> None:
        self.plane = plane
        self.installation = installation
        self.gaps_seconds: list[float] = []
        """Between the changes of the servers, of each state."""

    def write(self, state: RolloutState, *kept: str) -> None:
        """Write the state, after the documents that it needs."""

        async def write() -> None:
            client = await connect(self.plane.kubeconfig)
            try:
                revisions, states = ControllerRevisions(client), ConfigMapRolloutStateStore(client)
                for text in kept:
                    await revisions.keep(hash_of(text.encode()), text.encode())
                await states.read()
                assert await states.write(state)
            finally:
                await client.close()

        asyncio.run(write())

    def wait_for(self, holds: Callable[[dict[str, Any]], bool], what: str) -> None:
        servers = self.installation.servers
        self.plane.wait(
            lambda: all(holds(server.status()) for server in servers), what, *(server.name for server in servers)
        )

    def wait_until_followed(self, state: RolloutState) -> None:
        """Wait until all servers have in force what the state says, and note how far apart they have changed."""
        candidate = state.candidate or None
        self.wait_for(
            lambda status: (
                (status["rollout"] or {}).get("phase") == state.phase
                and (status["rollout"]["stable"], status["rollout"]["candidate"]) == (state.stable, candidate)
                and (status["rollout"]["pinned"] or {}).get("reason", "")
                == (state.pinned.reason if state.pinned else "")
            ),
            f"{state} to be in force",
        )
        moments = [
            datetime.fromisoformat(self.list_lines(server, "rollout")[-1]["time"])
            for server in self.installation.servers
        ]
        self.gaps_seconds.append((max(moments) - min(moments)).total_seconds())
        assert self.gaps_seconds[-1] < _LATE_SECONDS

    def list_lines(self, server: Server, message: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.plane.log(server.name, 1000).splitlines() if line.startswith("{")]
        return [line for line in lines if line["msg"] == message]

    def find_tiers(self, namespace: str) -> set[str]:
        """Return what new Pods get, from all servers."""
        found = set()
        for _ in range(4):
            status, pod = self.installation.create_pod(namespace, dry_run=True)
            assert status == 201, pod
            found.add(pod["spec"]["nodeSelector"]["tier"])
        return found


@contextmanager
def roll_out(plane: ControlPlane, identities: Identities, redis: RedisServer, wished: str) -> Iterator[Rollout]:
    arguments = ("--drain", "0s", "--store", redis.url)
    plane.delete(_STATE, _REVISIONS)
    with install_podgate(
        plane, identities.files, wished, [STAGE, LIVE], servers=2, arguments=arguments
    ) as installation:
        try:
            installation.wait_for_calls()
            yield Rollout(plane, installation)
        finally:
            plane.delete(_STATE, _REVISIONS)


def test_all_servers_follow_a_state_at_once(plane: ControlPlane, identities: Identities, a_redis: RedisServer) -> None:
    with roll_out(plane, identities, a_redis, OLD) as rollout:
        installation = rollout.installation
        assert [server.status()["rollout"] for server in installation.servers] == [None, None]
        rollout.write(GOVERNED, OLD, NEW)
        rollout.wait_until_followed(GOVERNED)

        installation.apply_policy(NEW)
        rollout.write(CANARY)
        rollout.wait_until_followed(CANARY)
        assert rollout.find_tiers(STAGE) == {"new"}
        assert rollout.find_tiers(LIVE) == {"old"}
        assert installation.read_stored("podgate-policy-last-good") == OLD

        rejected = GOVERNED.reject(Rejection(NEW_HASH, "Pending", "9 % above 8 %"))
        rollout.write(rejected)
        rollout.wait_until_followed(rejected)
        assert rollout.find_tiers(STAGE) == {"old"}
        assert [server.status()["policy"]["hash"] for server in installation.servers] == [OLD_HASH, OLD_HASH]

        promoted = RolloutState(NEW_HASH, governed=True)
        rollout.write(promoted)
        rollout.wait_until_followed(promoted)
        assert rollout.find_tiers(LIVE) == {"new"}
        plane.wait(lambda: installation.read_stored("podgate-policy-last-good") == NEW, "the last good policy")

        pinned = RolloutState(OLD_HASH, governed=True, pinned=Intervention("incident 7", by="alice"))
        rollout.write(pinned)
        rollout.wait_until_followed(pinned)
        assert rollout.find_tiers(LIVE) == {"old"}
        assert median(rollout.gaps_seconds) < _AGREE_SECONDS, rollout.gaps_seconds

        plane.delete(_STATE)
        rollout.wait_for(lambda status: status["policy"]["hash"] == NEW_HASH, "the wished policy, without a state")
        assert [server.status()["rollout"] for server in installation.servers] == [None, None]


def test_a_server_that_starts_never_has_a_wish_in_force_that_the_state_holds_back(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    arguments = ("--drain", "0s", "--store", a_redis.url)
    with roll_out(plane, identities, a_redis, OLD) as rollout:
        installation = rollout.installation
        rollout.write(GOVERNED, OLD)
        rollout.wait_until_followed(GOVERNED)
        installation.apply_policy(NEW)
        plane.delete(f"/api/v1/namespaces/{NAMESPACE}/configmaps/podgate-policy-last-good")
        for state in (GOVERNED, GOVERNED.reject(Rejection(NEW_HASH, "Pending"))):
            rollout.write(state)
            started = installation.start_server(*arguments)
            assert [line["policy_hash"] for line in rollout.list_lines(started, "policy loaded")] == [OLD_HASH]
            assert rollout.find_tiers(LIVE) == {"old"}
            installation.stop_server(started)

        # Neither the revision nor the last good policy has what the state asks for.
        plane.delete(_REVISIONS, f"/api/v1/namespaces/{NAMESPACE}/configmaps/podgate-policy-last-good")
        started = installation.start_server(*arguments)
        [reason] = started.status()["notReady"]
        assert f"neither controllerrevision podgate-policy-{OLD_HASH} nor the last good policy" in reason
        assert rollout.list_lines(started, "policy loaded") == []
        installation.apply_policy(OLD)
        plane.wait(lambda: started.status()["notReady"] == [], "the first remedy", started.name)
        assert started.status()["policy"]["hash"] == OLD_HASH


def test_an_unreadable_state_changes_nothing_and_its_remedy_is_true(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    with roll_out(plane, identities, a_redis, OLD) as rollout:
        rollout.write(GOVERNED, OLD)
        rollout.wait_until_followed(GOVERNED)
        rollout.installation.apply_policy(NEW)
        patch = {"data": {"state.json": '{"stable": 7}'}}
        plane.api.request("PATCH", _STATE, patch, "application/merge-patch+json")
        rollout.wait_for(lambda status: "$.stable" in (status["rollout"]["problem"] or ""), "the problem")
        for server in rollout.installation.servers:
            status = server.status()
            assert (status["policy"]["hash"], status["notReady"]) == (OLD_HASH, [])
            assert server.total("podgate_rollout_followed") == 0
            [line] = rollout.list_lines(server, "rollout not followed, the policy in force stays")
            assert "kubectl -n podgate-system delete configmap podgate-policy-state" in line["reason"]
        plane.kubectl("-n", NAMESPACE, "delete", "configmap", ROLLOUT_STATE)
        rollout.wait_for(lambda status: status["policy"]["hash"] == NEW_HASH, "the wished policy, without a state")


def test_a_shadow_counts_differences_of_all_servers_and_changes_no_pod(
    plane: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    old, new = (policy(tier, "rollout: {shadow: {sample: 100%}}\n") for tier in ("old", "new"))
    with roll_out(plane, identities, a_redis, old) as rollout:
        rollout.installation.apply_policy(new)
        stable, candidate = hash_of(old.encode()), hash_of(new.encode())
        state = RolloutState(stable, governed=True, phase=Phase.SHADOW, candidate=candidate)
        rollout.write(state, old, new)
        rollout.wait_until_followed(state)
        for number in range(6):
            status, pod = rollout.installation.create_pod(LIVE, f"shadow-{number}")
            assert (status, pod["spec"]["nodeSelector"]["tier"]) == (201, "old")

        def count_judged() -> list[int]:
            return [server.status()["rollout"]["shadow"]["judged"] for server in rollout.installation.servers]

        plane.wait(lambda: sum(count_judged()) == 6, "the shadow's reviews")
        found = [
            entry
            for server in rollout.installation.servers
            for entry in server.status()["rollout"]["shadow"]["differences"]
        ]
        assert sum(entry["pods"] for entry in found) == 6
        assert {(entry["service"], entry["difference"]) for entry in found} == {("web", "placement")}
        for name in ("shadow/web/placement", "reviews"):
            plane.wait(lambda name=name: int(a_redis.cli("EVAL", _SUM, 0, name)) == 6, f"the shared counts of {name}")
