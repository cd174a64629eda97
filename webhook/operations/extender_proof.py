"""Proof that the second kube-scheduler asks the extender: a Pod that waits with the extender's own reason."""

import asyncio
from typing import TYPE_CHECKING, Any

from webhook.core.document.configmap import NAMESPACE
from webhook.core.installation.objects import ObjectReference
from webhook.core.installation.probe import EXTENDER_PROBE_LABEL, EXTENDER_PROBE_REASON, build_probe_pod
from webhook.core.installation.record import SCHEDULER
from webhook.operations.call_proof import CallProof

if TYPE_CHECKING:
    from webhook.adapters.kubernetes import ClusterObjects

_POLL_SECONDS = 0.25
_POD = ObjectReference("v1", "Pod", "podgate-extender-probe", NAMESPACE)
_LOGS = f"kubectl logs deployment/{SCHEDULER} -n {NAMESPACE}"


class ExtenderProver:
    """Creates the Pod, reads what the scheduler says about it, and deletes it. It runs nowhere: it has no image."""

    def __init__(self, cluster: "ClusterObjects") -> None:
        self._cluster = cluster

    async def prove(self, patience_seconds: float) -> CallProof:
        """Wait for the extender's reason, at most for some time."""
        await self._cluster.delete(_POD)  # left over by a process that was killed
        await self._cluster.create(_build_probe())
        end_seconds = asyncio.get_running_loop().time() + patience_seconds
        try:
            while True:
                pod = await self._cluster.get(_POD) or {}
                if (node := pod.get("spec", {}).get("nodeName")) is not None:
                    text = f"{SCHEDULER} does not ask the extender: it bound {_POD} to node {node}"
                    return CallProof(is_called=False, text=text, remedy=f"see why its calls fail: {_LOGS}")
                message = _read_refusal(pod)
                if EXTENDER_PROBE_REASON in message:
                    return CallProof(is_called=True, text=f"it says of a Pod: {message.partition(' preemption:')[0]}")
                if asyncio.get_running_loop().time() >= end_seconds:
                    said = f"it says of {_POD}: {message}" if message else f"it has not tried {_POD}"
                    text = f"{SCHEDULER} has not asked the extender: {said}"
                    return CallProof(is_called=False, text=text, remedy=f"see {_LOGS}, and run this command again")
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            await self._cluster.delete(_POD)


def _build_probe() -> dict[str, Any]:
    pod = build_probe_pod(NAMESPACE, {EXTENDER_PROBE_LABEL: "true", "app.kubernetes.io/name": _POD.name})
    pod["metadata"]["name"] = _POD.name
    pod["spec"] |= {
        "schedulerName": SCHEDULER,
        "tolerations": [{"operator": "Exists"}],
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
    }
    return pod


def _read_refusal(pod: dict[str, Any]) -> str:
    """Return what the scheduler says about a Pod that it could not bind."""
    conditions = pod.get("status", {}).get("conditions") or ()
    found = (
        condition.get("message", "")
        for condition in conditions
        if (condition["type"], condition["status"]) == ("PodScheduled", "False")
    )
    return str(next(found, ""))
