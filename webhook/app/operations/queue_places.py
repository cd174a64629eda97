"""Places of waiting Pods, asked of the process that releases them."""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from webhook.app.operations.server_discovery import ServerLocation, open_leader
from webhook.core.admission.mutation import QUEUE_GATE
from webhook.core.diagnosis.objects import ReportedPod
from webhook.core.placement import SERVICE_LABEL
from webhook.core.reporting.queue_document import QueueRow
from webhook.offline.status_client import queue_document


class QueuePlaces:
    """Asks the leader, anew each time: another one may lead by then."""

    def __init__(self, where: ServerLocation) -> None:
        self._where = where

    async def of(self, pods: Sequence[ReportedPod]) -> Mapping[str, QueueRow]:
        """Return the places of those Pods that wait, by uid. UserError: no leader answers."""
        gated = [pod for pod in pods if any(gate.name == QUEUE_GATE for gate in pod.spec.scheduling_gates or ())]
        if not gated:
            return {}
        if len(gated) == 1:
            queries = {f"uid={quote(gated[0].metadata.uid, safe='')}"}
        else:
            services = {(pod.metadata.labels or {}).get(SERVICE_LABEL, "") for pod in gated}
            queries = {f"service={quote(service, safe='')}" for service in services}
        found: dict[str, QueueRow] = {}
        async with open_leader(self._where) as leader:
            for query in sorted(queries):
                document = queue_document(await leader.get(f"/queue?{query}"), leader.name)
                found.update((row.uid, row) for row in document.pods)
        return found
