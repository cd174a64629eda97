"""Acts of the console on a real API server: by the user's own rights, and as the command line that each shows."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.cli.command_runner import podgate
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.console_session import ConsoleSession, open_session
from tests.cluster.controlplane import ControlPlane
from tests.cluster.forwarded_pods import LISTS, grant
from tests.cluster.override_rights import CHANGE_OVERRIDES, CREATE_CONFIG_MAPS, OVERRIDES, READ_POLICY
from tests.cluster.rollout_history import GOVERNED, OPERATOR_ROLE, Cluster, delete_history, policy_text
from tests.harness.server_process import Files, run_server
from webhook.console.registry import list_acts
from webhook.core.admission.mutation import QUEUE_GATE
from webhook.core.document.configmap import NAME
from webhook.core.document.loading import compute_hash
from webhook.core.placement import SERVICE_LABEL
from webhook.core.rollout.state import Phase, RolloutState

SHOP, SERVICE = "console-acts", "payment-api"
OPERATOR, VIEWER, ADMIN = "console-operator", "console-viewer", "console-admin"
TERMS = {"for": "30m", "reason": "INC-1 <script>alert(1)</script>"}
SERVICE_ACTS: list[tuple[str, dict[str, str]]] = [
    ("breaker/open", {}),
    ("breaker/close", {}),
    ("breaker/reset", {}),
    ("variant/spot/open", {}),
    ("variant/spot/close", {}),
    ("variant/spot/reset", {}),
    ("quota/grant", {"window": "1h", "hard": "pods=100"}),
    ("override", {"factor": "3", "quota": "Audit", "combine": "replace"}),
    ("queue/pause", {}),
    ("queue/resume", {}),
    ("override/end", {}),
]
ENDING = frozenset({"queue/resume", "override/end"})
"""Acts on what another person has done before."""
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: {SERVICE}
  match: {{namespaces: [{SHOP}]}}
  quota: {{windows: [{{window: 1h, hard: {{pods: 2}}}}], whenExceeded: Queue, queue: {{}}}}
  breaker: {{quotaExceeded: {{count: 9, within: 1m}}}}
  placement: {{shares: {{variants: [
    {{name: spot, weight: 1, nodeSelector: {{kind: spot}}}},
    {{name: on-demand, weight: 1, nodeSelector: {{kind: on-demand}}}}]}}}}
"""
SERVED = POLICY.replace(", whenExceeded: Queue, queue: {}", "")
"""A server without a cluster has no queue."""
GOVERNING = policy_text(10, GOVERNED)
CANDIDATE = policy_text(20)
_CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_PODS = f"/api/v1/namespaces/{SHOP}/pods"


@pytest.fixture
def plane(api_alone: ControlPlane) -> Iterator[ControlPlane]:
    for namespace in (NAMESPACE, SHOP):
        api_alone.create_namespace(namespace)
    try:
        yield api_alone
    finally:
        delete_history(api_alone)
        api_alone.delete(*(f"{_PODS}/{name}?gracePeriodSeconds=0" for name in ("web-0", "web-1")))


@contextmanager
def become_operator(plane: ControlPlane) -> Iterator[Path]:
    """Yield the kubeconfig of a user with the rights that the documents name, and no other."""
    file = grant(plane, OPERATOR, READ_POLICY, CHANGE_OVERRIDES, CREATE_CONFIG_MAPS)
    for rules in ("pods", "events.events.k8s.io"):
        verbs = "--verb=get,delete" if rules == "pods" else "--verb=create"
        name = f"{OPERATOR}-{rules.partition('.')[0]}"
        plane.kubectl("create", "role", name, verbs, f"--resource={rules}", "-n", SHOP)
        plane.kubectl("create", "rolebinding", name, f"--role={name}", f"--user={OPERATOR}", "-n", SHOP)
    plane.kubectl("apply", "-f", OPERATOR_ROLE)
    role = ("--role=podgate-policy-operator", f"--user={OPERATOR}", "-n", NAMESPACE)
    plane.kubectl("create", "rolebinding", f"{OPERATOR}-policy", *role)
    try:
        yield file
    finally:
        plane.kubectl("delete", "rolebinding", f"{OPERATOR}-policy", "-n", NAMESPACE)
        plane.kubectl("delete", "role,rolebinding", "--all", "-n", SHOP)


def read_entries(plane: ControlPlane) -> list[dict[str, Any]]:
    """Return the stored overrides, less their times."""
    status, found = plane.api.request("GET", f"{_CONFIG_MAPS}/{OVERRIDES}")
    entries: list[dict[str, Any]] = yaml.safe_load(found["data"]["overrides.yaml"]) if status == 200 else []
    return [{name: value for name, value in entry.items() if name not in {"until", "resetAt"}} for entry in entries]


def create_waiting_pod(plane: ControlPlane, name: str) -> None:
    metadata = {"name": name, "namespace": SHOP, "labels": {SERVICE_LABEL: SERVICE}}
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": QUEUE_GATE}]}
    plane.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def write_rollout(plane: ControlPlane, *, paused: bool = False) -> Cluster:
    """Let a candidate be in canary beside a policy in force, with no controller."""
    cluster = Cluster(plane)
    cluster.apply(NAME, CANDIDATE)
    stable = compute_hash(GOVERNING.encode())
    state = RolloutState(
        stable,
        governed=True,
        phase=Phase.CANARY,
        candidate=compute_hash(CANDIDATE.encode()),
        since="2026-12-01T04:00:00Z",
    )
    cluster.write(state, GOVERNING, CANDIDATE)
    if paused:
        assert cluster.podgate("pause", "--reason", "INC-0").code == 0
    return cluster


def strip_times(state: RolloutState) -> Any:
    """Return a state less the moments at which persons acted."""
    found = msgspec.to_builtins(state)
    for part in (found.get("paused"), found.get("pinned"), *found.get("rejected", ())):
        if part:
            part.pop("at")
    found.pop("since", None)
    return found


async def act_by_command(command: list[str]) -> None:
    assert command[0] == "podgate"
    done = await asyncio.to_thread(podgate, *command[1:])
    assert done.code == 0, done.err


async def change_service(plane: ControlPlane, console: ConsoleSession, path: str, form: dict[str, str]) -> None:
    """Act, and find that the shown command finds the same result from the same state."""

    def set_up() -> None:
        plane.kubectl("delete", "configmap", OVERRIDES, "-n", NAMESPACE, "--ignore-not-found")
        if path in ENDING:
            terms = ("--reason", "INC-0", "--kubeconfig", plane.kubeconfig)
            done = podgate("queue", "pause", SERVICE, *terms)
            assert done.code == 0, done.err

    await asyncio.to_thread(set_up)
    acted = await console.act(f"/service/{SERVICE}/{path}", {**TERMS, **form})
    assert not acted.said.startswith("Nothing"), acted.said
    written = await asyncio.to_thread(read_entries, plane)
    assert all(entry["by"] == OPERATOR and entry["reason"] == TERMS["reason"] for entry in written)
    assert len(written) == (path != "override/end"), acted.said
    await asyncio.to_thread(set_up)
    await act_by_command(acted.command)
    assert await asyncio.to_thread(read_entries, plane) == written


async def test_an_operators_acts_do_what_the_shown_commands_do(plane: ControlPlane, tmp_path: Path) -> None:
    cluster = await asyncio.to_thread(Cluster, plane)
    await asyncio.to_thread(cluster.apply, NAME, POLICY)
    with become_operator(plane) as kubeconfig:
        async with (
            run_server(Files.create(tmp_path, SERVED)) as server,
            open_session(tmp_path, server.plain, kubeconfig) as console,
        ):
            for path, form in SERVICE_ACTS:
                await change_service(plane, console, path, form)
            await release_and_drop(plane, console)


async def test_an_operator_changes_a_rollout_as_the_shown_commands_do(plane: ControlPlane, tmp_path: Path) -> None:
    with become_operator(plane) as kubeconfig:
        async with (
            run_server(Files.create(tmp_path, GOVERNING)) as server,  # it has in force what a pause leaves in force
            open_session(tmp_path, server.plain, kubeconfig) as console,
        ):
            for name in ("pause", "retry", "rollback", "promote"):
                await change_rollout(plane, console, name)


async def release_and_drop(plane: ControlPlane, console: ConsoleSession) -> None:
    create_waiting_pod(plane, "web-0")
    uid = plane.api.get(f"{_PODS}/web-0")["metadata"]["uid"]
    for path in ("/queue/release", "/queue/drop"):
        plane.kubectl("delete", "configmap", OVERRIDES, "-n", NAMESPACE, "--ignore-not-found")
        acted = await console.act(path, {**TERMS, "pod": f"{SHOP}/web-0"})
        if path == "/queue/release":
            written = read_entries(plane)
            assert [pod["uid"] for entry in written for pod in entry["releasePods"]] == [uid]
            plane.kubectl("delete", "configmap", OVERRIDES, "-n", NAMESPACE)
            await act_by_command(acted.command)
            assert read_entries(plane) == written
        else:
            assert f"web-0 (uid {uid}) of {SERVICE}: deleted; the reason is an Event on the Pod" in acted.said
            assert plane.api.request("GET", f"{_PODS}/web-0")[0] == 404
            create_waiting_pod(plane, "web-0")
            await act_by_command(acted.command)
            assert plane.api.request("GET", f"{_PODS}/web-0")[0] == 404
            events = plane.api.get(f"/apis/events.k8s.io/v1/namespaces/{SHOP}/events")["items"]
            assert sum(TERMS["reason"] in event["note"] for event in events) == 2


async def change_rollout(plane: ControlPlane, console: ConsoleSession, name: str) -> None:
    cluster = await asyncio.to_thread(write_rollout, plane, paused=name == "retry")
    acted = await console.act(f"/policy/{name}", {"reason": TERMS["reason"]})
    assert not acted.said.startswith("Nothing"), acted.said
    assert "in force: " in acted.said
    found = await asyncio.to_thread(cluster.read)
    if name in {"pause", "rollback"}:
        person = found.paused if name == "pause" else found.pinned
        assert person is not None
        assert (person.by, person.reason) == (OPERATOR, TERMS["reason"])
    await asyncio.to_thread(plane.kubectl, "delete", "controllerrevisions", "--all", "-n", NAMESPACE)
    await asyncio.to_thread(write_rollout, plane, paused=name == "retry")
    done = await asyncio.to_thread(podgate, *acted.command[1:])
    assert done.code in {0, 4}, done.err  # 4: the test's server follows no cluster
    assert strip_times(await asyncio.to_thread(cluster.read)) == strip_times(found)


async def test_a_viewers_acts_are_refused_with_the_missing_right(plane: ControlPlane, tmp_path: Path) -> None:
    cluster = await asyncio.to_thread(write_rollout, plane)
    before = await asyncio.to_thread(cluster.read)
    await asyncio.to_thread(create_waiting_pod, plane, "web-1")
    kubeconfig = await asyncio.to_thread(grant, plane, VIEWER, LISTS)
    wanted = {
        "/service": f"configmaps named {OVERRIDES} in {NAMESPACE}",
        "/queue": f"get pods in {SHOP}",
        "/policy": f"configmaps named podgate-policy-state in {NAMESPACE}",
    }
    async with (
        run_server(Files.create(tmp_path, SERVED)) as server,
        open_session(tmp_path, server.plain, kubeconfig) as console,
    ):
        for act in list_acts():
            form = {"window": "1h", "hard": "pods=1", "factor": "2", "pod": f"{SHOP}/web-1", **TERMS}
            acted = await console.act(act.path.format(name=SERVICE, variant="spot"), {**form, "to": ""})
            assert acted.said.startswith("Nothing was done: "), (act.name, acted.said)
            assert "grant the right to" in acted.said, (act.name, acted.said)
            assert wanted["/" + act.path.split("/")[1]] in acted.said, (act.name, acted.said)
            assert act.name != "drop" or plane.api.request("GET", f"{_PODS}/web-1")[0] == 200
    assert await asyncio.to_thread(read_entries, plane) == []
    assert await asyncio.to_thread(cluster.read) == before


async def test_an_admin_acts_in_the_cluster_in_which_the_console_began(plane: ControlPlane, tmp_path: Path) -> None:
    """A switch of the current context while the console runs does not move its acts to another cluster."""
    cluster = await asyncio.to_thread(Cluster, plane)
    await asyncio.to_thread(cluster.apply, NAME, POLICY)
    file = tmp_path / "kubeconfig"
    document = yaml.safe_load(plane.write_kubeconfig(ADMIN, "system:masters").read_text())
    elsewhere = {"cluster": "elsewhere", "user": document["users"][0]["name"]}
    document["clusters"].append({"name": "elsewhere", "cluster": {"server": "https://127.0.0.1:1"}})
    document["contexts"].append({"name": "elsewhere", "context": elsewhere})
    file.write_text(yaml.safe_dump(document))
    async with (
        run_server(Files.create(tmp_path, SERVED)) as server,
        open_session(tmp_path, server.plain, file) as console,
    ):
        file.write_text(yaml.safe_dump({**document, "current-context": "elsewhere"}))
        acted = await console.act(f"/service/{SERVICE}/queue/pause", {**TERMS, "combine": "replace"})
        assert acted.said.startswith(f"{SERVICE}: queue: Paused until "), acted.said
        written = await asyncio.to_thread(read_entries, plane)
        assert [entry["by"] for entry in written] == [ADMIN]
        assert acted.command[-2:] == ["--context", document["current-context"]]
