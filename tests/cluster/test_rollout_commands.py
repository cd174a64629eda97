"""Commands on the rollout of a policy: on a real API server, with minimal rights, and against a leader that writes."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import install_podgate
from tests.cluster.rollout_history import GOVERNED, HEAD, OPERATOR_ROLE, Cluster, delete_history, policy_text
from tests.redis_servers import RedisServer
from webhook.core.document.configmap import LAST_GOOD, NAME, ROLLOUT_STATE
from webhook.core.document.loading import compute_hash
from webhook.core.rollout.state import Phase, RolloutState
from webhook.errors import UserError
from webhook.operations.console_policies import ClusterPolicies
from webhook.operations.rollout_editor import RolloutEditor
from webhook.operations.stored_policies import open_policies
from webhook.support.kubeconfig import Kubeconfig

pytest_plugins = ("tests.redis_servers.fixtures",)

FIRST, SECOND, BAD = policy_text(10), policy_text(20), policy_text(1)
A, B, C = (compute_hash(text.encode()) for text in (FIRST, SECOND, BAD))


@pytest.fixture
def cluster(api_alone: ControlPlane) -> Iterator[Cluster]:
    api_alone.create_namespace(NAMESPACE)
    try:
        yield Cluster(api_alone)
    finally:
        delete_history(api_alone)


def test_a_rollback_without_a_controller_pins_the_revision_before(cluster: Cluster) -> None:
    cluster.apply(NAME, BAD)
    cluster.write(RolloutState(B), FIRST, SECOND)
    version = cluster.plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}")["metadata"]["resourceVersion"]
    dry = cluster.podgate("rollback", "--reason", "INC-1", "--dry-run")
    assert dry.out.splitlines()[:1] == ["rolled back (dry run: nothing is written)"]
    assert cluster.read() == RolloutState(B)
    done = cluster.podgate("rollback", "--reason", "INC-1")
    assert done.code == 0, done.err
    state = cluster.read()
    assert (state.stable, [rejection.hash for rejection in state.rejected]) == (B, [C])
    assert state.pinned is not None
    assert (state.pinned.reason, bool(state.pinned.by)) == ("INC-1", True)
    pinned = f"pinned: INC-1, by {state.pinned.by}, at {state.pinned.at}"
    *lines, servers = done.out.splitlines()
    assert lines == [
        "rolled back",
        f"in force: {B}, {pinned}",
        f"in Git: the ConfigMap has {C}, which is not tried: revert it to what this prints:",
        f"  podgate policy history {B}",
    ]
    assert servers.startswith(f"servers: not seen whether they follow: no server Pod is ready in {NAMESPACE} ")
    assert cluster.podgate("history", B).out == SECOND
    after = cluster.plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}")["metadata"]["resourceVersion"]
    assert after == version, "the wish belongs to its owner"

    entries = cluster.podgate("history", "-o", "json").document
    assert [(entry["number"], entry["hash"], entry["roles"]) for entry in entries] == [
        (0, C, ["wished", "taken back"]),
        (2, B, ["in force"]),
        (1, A, ["was in force"]),
    ]
    waited = cluster.podgate("wait", "--for", "promoted", "--timeout", "5s")
    assert waited.code == 3
    assert f"{C} was taken back: INC-1" in waited.out
    assert cluster.podgate("promote").error.startswith(f"{C}, the wished policy, was taken back: INC-1")
    retried = cluster.podgate("retry", "-o", "json").document
    assert (retried["inForce"], retried["revertInGit"]) == (C, "")
    assert cluster.podgate("wait", "--for", "promoted", "--timeout", "5s").code == 0


def test_the_drill_puts_the_former_policy_back_on_all_servers(
    cluster: Cluster, identities: Identities, a_redis: RedisServer
) -> None:
    """Two policies, the second one is bad, and no controller runs: one command, and every server follows."""
    arguments = ("--drain", "0s", "--store", a_redis.url)
    with install_podgate(
        cluster.plane, identities.files, BAD, ["shop"], servers=2, arguments=arguments
    ) as installation:
        cluster.write(RolloutState(B), FIRST, SECOND)
        installation.wait_for_policy(BAD)
        servers = [f"--server=http://{server.plain}" for server in installation.servers]
        done = cluster.podgate("rollback", "--reason", "INC-1", *servers)
        assert done.code == 0, done.err + done.out
        assert done.out.splitlines()[-1] == "servers: 2 of 2 follow"
        assert cluster.read().stable == B
        assert {server.status()["policy"]["hash"] for server in installation.servers} == {B}
        installation.apply_policy(SECOND.replace("pods: 20", "pods: 3"))
        restarted = installation.servers[0]
        installation.stop_server(restarted)
        installation.start_server(*arguments)
        installation.wait_for_policy(SECOND)
        assert installation.read_stored(NAME) == SECOND.replace("pods: 20", "pods: 3")


def test_a_candidate_is_paused_promoted_and_compared(cluster: Cluster) -> None:
    governed = policy_text(10, GOVERNED)
    stable = compute_hash(governed.encode())
    cluster.apply(NAME, SECOND)
    canary = RolloutState(stable, governed=True, phase=Phase.CANARY, candidate=B, since="2026-12-01T04:00:00Z")
    cluster.write(canary, governed, SECOND)
    difference = cluster.podgate("diff")
    assert (difference.code, "pods: 10 -> 20" in difference.out) == (1, True)
    assert cluster.podgate("diff", "1", B[:6]).out == difference.out == cluster.podgate("diff", "candidate").out
    assert cluster.podgate("pause").error == "--reason: missing: give one, such as --reason INC-1234"
    assert cluster.podgate("pause", "--reason", "INC-2").code == 0
    assert "paused already: INC-2" in cluster.podgate("pause", "--reason", "INC-3").error
    waited = cluster.podgate("wait", "--for", "promoted", "--timeout", "1s")
    assert waited.code == 4
    assert f"{B}: canary step 1, since 2026-12-01T04:00:00Z, paused: INC-2" in waited.out
    assert cluster.podgate("retry").code == 0
    assert (cluster.read().candidate, cluster.read().paused) == (B, None)
    assert cluster.podgate("promote").code == 0
    assert cluster.read() == RolloutState(B)
    assert "is in force: nothing to do" in cluster.podgate("promote").error


def test_what_is_promoted_before_the_leader_began_is_kept(cluster: Cluster) -> None:
    governed = policy_text(10, GOVERNED)
    cluster.apply(NAME, SECOND)
    cluster.write(RolloutState(compute_hash(governed.encode()), governed=True), governed)
    assert cluster.podgate("promote").code == 0
    assert cluster.read() == RolloutState(B)
    assert cluster.podgate("history", "2").out == SECOND


def test_while_the_wished_policy_is_invalid_the_last_good_one_counts(cluster: Cluster) -> None:
    cluster.apply(NAME, HEAD + "- {name: web, mach: {}}\n")
    cluster.apply(LAST_GOOD, SECOND)
    cluster.write(RolloutState(B), FIRST, SECOND)
    assert "mistake" in cluster.podgate("diff", "live", "wished").err
    done = cluster.podgate("rollback", "--reason", "INC-1")
    assert done.code == 0, done.err
    assert f"warning: configmap {NAMESPACE}/{NAME}: 2 mistakes in the policy" in done.err
    assert cluster.read().stable == A


def test_a_candidate_file_is_planned_on_the_clusters_workloads(cluster: Cluster, tmp_path: Path) -> None:
    plane, governed = cluster.plane, policy_text(10, GOVERNED.replace("percent: 10", 'namespaces: ["shop"]'))
    for space in ("shop", "bank"):
        plane.create_namespace(space)
        labels = {"app": "web"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        metadata = {"name": "web", "namespace": space}
        plane.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    cluster.apply(NAME, governed)
    cluster.write(RolloutState(compute_hash(governed.encode()), governed=True), governed)
    file = tmp_path / "candidate.yaml"
    file.write_text(governed.replace("namespaces: [shop]", "namespaces: [shop, bank]"))
    plan = cluster.podgate("candidate", str(file), "-o", "json").document
    assert [(step["workloads"], step["of"], step["namespaces"]) for step in plan["steps"]] == [
        (1, 2, ["shop"]),
        (2, 2, ["bank", "shop"]),
    ]
    shown = cluster.podgate("candidate", str(file)).out
    assert "namespaces shop" in shown
    assert "service web\n  match.namespaces" in shown
    assert cluster.podgate("candidate").out.splitlines()[1] == "candidate: none"
    user = plane.write_kubeconfig("policy-reader")
    role = ("--role=podgate-policy-operator", "--user=policy-reader", "-n", NAMESPACE)
    plane.kubectl("apply", "-f", OPERATOR_ROLE)
    plane.kubectl("create", "rolebinding", "policy-reader", *role)
    plane.wait(lambda: cluster.podgate("history", kubeconfig=user).code == 0, "the role to be read")
    unread = cluster.podgate("candidate", str(file), kubeconfig=user)
    assert (unread.code, "grant the right to list namespaces" in unread.err) == (0, True)
    plane.kubectl("delete", "rolebinding", "policy-reader", "-n", NAMESPACE)


def test_without_a_state_the_remedy_is_named(cluster: Cluster) -> None:
    cluster.apply(NAME, FIRST)
    for command in ("promote", "retry", "rollback --reason x", "pause --reason x"):
        error = cluster.podgate(*command.split()).error
        assert error.startswith(f"configmap {NAMESPACE}/{ROLLOUT_STATE}: there is none"), command
    entries = cluster.podgate("history", "-o", "json").document
    assert [(entry["hash"], entry["roles"]) for entry in entries] == [(A, ["in force", "wished"])]
    assert cluster.podgate("diff").code == 0
    cluster.plane.kubectl("delete", "configmap", NAME, "-n", NAMESPACE)
    assert cluster.podgate("diff").code == 2


def test_a_missing_right_is_named_and_the_shipped_role_suffices(cluster: Cluster) -> None:
    plane = cluster.plane
    cluster.apply(NAME, BAD)
    cluster.write(RolloutState(B), FIRST, SECOND)
    user = plane.write_kubeconfig("policy-operator")
    error = cluster.podgate("rollback", "--reason", "INC-1", kubeconfig=user).error
    assert f"grant the right to get configmaps named {ROLLOUT_STATE} in {NAMESPACE}" in error
    plane.kubectl("apply", "-f", OPERATOR_ROLE)
    role = ("--role=podgate-policy-operator", "--user=policy-operator", "-n", NAMESPACE)
    plane.kubectl("create", "rolebinding", "policy-operator", *role)
    plane.wait(lambda: cluster.podgate("history", kubeconfig=user).code == 0, "the role to be read")
    done = cluster.podgate("rollback", "--reason", "INC-1", kubeconfig=user)
    assert (done.code, cluster.read().stable) == (0, B), done.err
    assert cluster.read().pinned.by == "policy-operator"  # type: ignore[union-attr]  # just written
    assert cluster.podgate("retry", kubeconfig=user).code == 0
    plane.kubectl("delete", "rolebinding", "policy-operator", "-n", NAMESPACE)


async def test_a_command_is_judged_again_by_what_a_leader_wrote_meanwhile(api_alone: ControlPlane) -> None:
    """A leader takes the candidate back between the command's read and its write, and again a policy comes up."""
    cluster = Cluster(api_alone)
    api_alone.create_namespace(NAMESPACE)
    await asyncio.to_thread(cluster.apply, NAME, SECOND)
    canary = RolloutState(A, governed=True, phase=Phase.CANARY, candidate=B)
    await asyncio.to_thread(cluster.write, canary, FIRST, SECOND)
    async with open_policies(Kubeconfig((cluster.kubeconfig,))) as policies:
        write, writes = policies.states.write, 0

        async def write_second(state: RolloutState) -> bool:
            nonlocal writes
            writes += 1
            if writes == 1:
                await asyncio.to_thread(cluster.write, msgspec.structs.replace(canary, step=1))
            return await write(state)

        policies.states.write = write_second  # type: ignore[method-assign]  # a leader comes in between
        change = await RolloutEditor(policies, lambda: "2026-12-01T04:00:00Z").pause("INC-1")
    assert (writes, change.state.step) == (2, 1)
    found = await asyncio.to_thread(cluster.read)
    assert (found.step, found.paused.reason) == (1, "INC-1")  # type: ignore[union-attr]  # just written
    for kind in ("configmaps", "controllerrevisions"):
        await asyncio.to_thread(api_alone.kubectl, "delete", kind, "--all", "-n", NAMESPACE)


def test_the_console_reads_what_the_commands_print(cluster: Cluster) -> None:
    governed = policy_text(10, "rollout: {canary: {steps: [{percent: 1}, {percent: 50}]}}\n")
    cluster.apply(NAME, SECOND)
    first = compute_hash(governed.encode())
    cluster.write(RolloutState(first, governed=True, phase=Phase.CANARY, candidate=B, step=1), governed, SECOND)
    policies = ClusterPolicies(Kubeconfig((cluster.kubeconfig,)), None, "none here")
    stored = asyncio.run(policies.read_rollout())
    assert json.loads(msgspec.json.encode(stored.entries)) == cluster.podgate("history", "-o", "json").document
    assert stored.rollout is not None
    shown = cluster.podgate("candidate", "-o", "json").document
    assert json.loads(msgspec.json.encode(stored.rollout)) == shown
    assert (shown["phase"], shown["candidate"], shown["steps"]) == ("Canary", B, 2)
    assert asyncio.run(policies.read_document(B)) == SECOND.encode()
    with pytest.raises(UserError, match="no name of a stored policy"):
        asyncio.run(policies.read_document("/etc/passwd"))
    with pytest.raises(UserError, match="no decisions are read: none here"):
        asyncio.run(policies.judge(FIRST.encode(), SECOND.encode()))
    steps = asyncio.run(policies.plan(BAD.encode())).steps
    assert [step.phase for step in steps] == ["Canary", "Canary", "Stable"]


def test_the_state_object_is_for_people_too(cluster: Cluster) -> None:
    cluster.write(RolloutState(A))
    found = cluster.plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{ROLLOUT_STATE}")
    assert json.loads(found["data"]["state.json"]) == {"stable": A}
