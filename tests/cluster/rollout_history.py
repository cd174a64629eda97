"""A cluster whose leader has written a history of policies and is away, for commands and acts on a rollout."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.cli.command_runner import Done, podgate
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from webhook.adapters.kubernetes import ConfigMapRolloutStateStore, ControllerRevisions, connect
from webhook.core.document.loading import compute_hash
from webhook.core.rollout.state import RolloutState

HEAD = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n"
GOVERNED = "rollout: {canary: {steps: [{percent: 10, for: 10m}]}, rollback: {}}\n"


def policy_text(pods: int, stanza: str = "") -> str:
    quota = f"quota: {{windows: [{{window: 1h, hard: {{pods: {pods}}}}}]}}"
    return f"{HEAD}- {{name: web, match: {{namespaces: [shop]}}, {quota}}}\n{stanza}"


OPERATOR_ROLE = str(Path(__file__).parents[2] / "manifests/base/13-rbac-policy-operator.yaml")


def delete_history(plane: ControlPlane) -> None:
    """Delete all ConfigMaps and documents of policies."""
    plane.delete(
        f"/api/v1/namespaces/{NAMESPACE}/configmaps", f"/apis/apps/v1/namespaces/{NAMESPACE}/controllerrevisions"
    )


class Cluster:
    """A cluster whose leader has written a history, and is away."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.kubeconfig: Path = plane.kubeconfig

    def podgate(self, *arguments: str, kubeconfig: Path | None = None) -> Done:
        return podgate("policy", *arguments, "--kubeconfig", kubeconfig or self.kubeconfig)

    def apply(self, name: str, text: str) -> None:
        metadata = {"name": name, "namespace": NAMESPACE}
        self.plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"policy.yaml": text}})

    def write(self, state: RolloutState, *kept: str) -> None:
        async def write(states: ConfigMapRolloutStateStore, revisions: ControllerRevisions) -> None:
            for text in kept:
                policy_hash = compute_hash(text.encode())
                await revisions.keep(policy_hash, text.encode())
                if policy_hash != state.candidate:
                    await revisions.mark_in_force(policy_hash)
            await states.read()
            assert await states.write(state)

        self._run(write)

    def read(self) -> RolloutState:
        async def read(states: ConfigMapRolloutStateStore, _: ControllerRevisions) -> RolloutState:
            found = await states.read()
            assert found is not None
            return found

        return self._run(read)

    def _run(self, act: Callable[[ConfigMapRolloutStateStore, ControllerRevisions], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            client = await connect(self.kubeconfig)
            try:
                return await act(ConfigMapRolloutStateStore(client), ControllerRevisions(client))
            finally:
                await client.close()

        return asyncio.run(run())
