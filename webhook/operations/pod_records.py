"""Records of Pods in other processes: places of waiting Pods in queues, and the extenders' records."""

from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from webhook.app.scheduling.extender_ports import open_extenders
from webhook.commands.clients.status_client import parse_queue
from webhook.core.admission.mutation import HASH_ANNOTATION, QUEUE_GATE
from webhook.core.diagnosis import Surroundings
from webhook.core.diagnosis.objects import ReportedPod
from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.placement import SERVICE_LABEL
from webhook.core.policy_fields import Mode
from webhook.core.reporting.queue_document import QueueRow
from webhook.core.scheduling.scheduling_record import SchedulingRecord, merge_records
from webhook.errors import UserError
from webhook.operations.server_discovery import ServerLocation, open_leader
from webhook.support.kubeconfig import Kubeconfig


class QueuePlaces:
    """Asks the leader, anew each time: another one may lead by then."""

    def __init__(self, where: ServerLocation) -> None:
        self._where = where

    async def find(self, pods: Sequence[ReportedPod]) -> Mapping[str, QueueRow]:
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
                document = parse_queue(await leader.get(f"/queue?{query}"), leader.name)
                found.update((row.uid, row) for row in document.pods)
        return found


_PATH = "/api/v1/scheduling"
_LIMIT = 1_000


class _Page(Struct, frozen=True):
    records: tuple[SchedulingRecord, ...]


_page = msgspec.json.Decoder(_Page)


class ExtenderRecords:
    """Asks all extenders, anew each time: others may run by then."""

    def __init__(self, url: str | None, kubeconfig: Kubeconfig) -> None:
        self._url = url
        self._kubeconfig = kubeconfig
        self.missing = ""
        """Why records may be missing from the last answer; "" if none is known to be missing."""

    async def find(self, pods: Sequence[ReportedPod], around: Surroundings) -> Mapping[str, SchedulingRecord]:
        """Return the records of those Pods that are for the extender, by uid. UserError: no extender answers."""
        self.missing = ""
        asked = [pod for pod in pods if _is_asked_about(pod, around)]
        if not asked:
            return {}
        first = asked[0].metadata
        query = {"uid": first.uid} if len(asked) == 1 else {"namespace": first.namespace, "limit": str(_LIMIT)}
        async with open_extenders(self._url, self._kubeconfig) as extenders:
            bodies = await extenders.read(f"{_PATH}?{urlencode(query)}")
        found = merge_records(record for name, body in bodies.items() for record in _decode(body, name))
        if extenders.silent:
            self.missing = "; ".join(extenders.silent)
        elif first.uid not in found and len(asked) == 1:
            scheduler = asked[0].spec.scheduler_name or "default-scheduler"
            self.missing = (
                f"no extender has a record of the Pod: its scheduler {scheduler} did not ask one since that started,"
                " or 5,000 other Pods came after"
            )
        return found


def _decode(body: bytes, name: str) -> tuple[SchedulingRecord, ...]:
    try:
        return _page.decode(body).records
    except UNREADABLE_JSON as error:
        raise UserError(
            f"{name}: answers, but not as Podgate's extender: {error}",
            "give --extender the URL of the decision port (--decision-listen) of podgate extender",
        ) from None


def _is_asked_about(pod: ReportedPod, around: Surroundings) -> bool:
    """Return whether a scheduler may have asked about a Pod: one of a service with `scheduling`, without a gate."""
    service = (pod.metadata.labels or {}).get(SERVICE_LABEL, "")
    if not service or pod.spec.scheduling_gates:
        return False
    policy = around.in_force or around.find_policy((pod.metadata.annotations or {}).get(HASH_ANNOTATION, ""))
    if policy is None:
        return True
    found = policy.services.get(service)
    return found is not None and found.scheduling is not None and found.modes.scheduling is not Mode.DISABLED
