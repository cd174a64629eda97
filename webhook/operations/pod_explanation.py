"""Inputs of `podgate explain`: records of decisions, their policies, and objects of the cluster."""

import re
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from webhook.commands.clients.record_sources import FileRecords, RecordSource, RecordsQuery, ServerRecords
from webhook.commands.explain_target import ExplainInputs, ExplainTarget
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.diagnosis import PodFacts, Report, Surroundings, WorkloadFacts, diagnose, diagnose_workload
from webhook.core.diagnosis.objects import ReportedPod
from webhook.core.diagnosis.pending_causes import list_doubtful_nodes, needs_all_nodes
from webhook.core.reporting.decision_record import DecisionRecord
from webhook.core.reporting.queue_document import QueueRow
from webhook.core.scheduling.scheduling_record import SchedulingRecord
from webhook.errors import UserError
from webhook.operations.current_variants import CurrentVariants
from webhook.operations.decision_port import open_decision_port
from webhook.operations.pod_records import ExtenderRecords, QueuePlaces
from webhook.operations.record_policies import RecordPolicies, read_policy_file
from webhook.operations.server_discovery import ServerLocation
from webhook.operations.workload_reads import WorkloadObjects, WorkloadReads
from webhook.support.kubeconfig import Kubeconfig

if TYPE_CHECKING:
    from webhook.adapters.kubernetes.cluster_facts import PodReader


@asynccontextmanager
async def open_explainer(inputs: ExplainInputs) -> "AsyncIterator[PodExplainer]":
    """Yield the explainer of one object. UserError: a file cannot be read."""
    policy = None if inputs.policy is None else read_policy_file(inputs.policy)
    before = "" if inputs.at_us is None else f"{inputs.at_us // 1000 + 1:013d}-"
    async with AsyncExitStack() as stack:
        if inputs.records is not None:
            explainer = PodExplainer(inputs.target, None, FileRecords(inputs.records), policy, before)
            explainer.away["cluster"] = "--records explains by the records of the file alone"
            yield explainer
            return
        explainer = PodExplainer(inputs.target, None, None, policy, before)
        await explainer.connect_records(ServerLocation(inputs.server, inputs.kubeconfig), stack)
        if inputs.at_us is not None:
            explainer.away["cluster"] = "--at explains by records alone: what the cluster had then is not known"
        else:
            await explainer.connect(inputs.kubeconfig, stack)
            explainer.places = QueuePlaces(ServerLocation(inputs.leader, inputs.kubeconfig))
            explainer.scheduling = ExtenderRecords(inputs.extender, inputs.kubeconfig)
            explainer.variants = CurrentVariants(ServerLocation(inputs.status, inputs.kubeconfig))
        yield explainer


class PodExplainer:
    """Explains one object. `reader` is None without a cluster, `source` without records.

    `before`: the id that records must precede; "" for all.
    """

    def __init__(
        self,
        target: ExplainTarget,
        reader: "PodReader | None",
        source: RecordSource | None,
        given_policy: CompiledPolicy | None = None,
        before: str = "",
    ) -> None:
        self._target = target
        self._reader = reader
        self._workloads = WorkloadReads(reader, None)
        self._source = source
        self._before = before
        self.places: QueuePlaces | None = None
        """Places of Pods that wait; None without a cluster."""
        self.scheduling: ExtenderRecords | None = None
        """Records of Pods that the extender was asked about; None without a cluster."""
        self.variants: CurrentVariants | None = None
        self.away: dict[str, str] = {}
        """Inputs that no report has, with the reason."""
        self._unread: dict[str, str] = {}
        self._policies = RecordPolicies(given_policy, self._unread)

    async def connect_records(self, where: ServerLocation, stack: AsyncExitStack) -> None:
        """Read the records of a server, too; if that is impossible, `unread` has the reason."""
        try:
            found = await stack.enter_async_context(open_decision_port(where))
        except UserError as error:
            self.away["records"] = _format_error(error)
        else:
            self._source = ServerRecords(found.get, found.name)

    async def connect(self, kubeconfig: Kubeconfig, stack: AsyncExitStack) -> None:
        """Read the cluster of a kubeconfig, too; if that is impossible, `unread` has the reason."""
        from webhook.adapters.kubernetes import cluster_facts, connect  # noqa: PLC0415  their library takes long to load

        try:
            client = await connect(kubeconfig)
        except UserError as error:
            self.away["cluster"] = str(error)
            return
        stack.push_async_callback(client.close)
        self._reader = cluster_facts.PodReader(client, self._target.namespace)
        self._workloads = WorkloadReads(self._reader, cluster_facts.CustomObjectReader(self._reader))

    @property
    def unread(self) -> dict[str, str]:
        """Inputs that could not be read for the last report, with the reason."""
        of_cluster = self._reader.reading.unread if self._reader is not None else {}
        return {**self.away, **self._unread, **of_cluster}

    async def report(self) -> Report | None:
        """Return the current report; None if nothing is known about the object."""
        target = self._target
        self._unread.clear()
        if self._reader is not None:
            self._reader.reading.unread.clear()
        if not target.is_pod:
            return await self._report_workload(target)
        pod, records = await self._find_pod(target)
        facts = self._facts_of(target, pod, records)
        events = () if self._reader is None else await self._reader.list_events_of_pod(facts.name, facts.uid)
        pods = () if pod is None else (pod,)
        around = await self._read_surroundings(records, pods)
        waiting = (await self._find_places(pods)).get(facts.uid)
        scheduled = (await self._find_scheduling_records(pods, around)).get(facts.uid)
        owners = await self._workloads.list_owners(pod)
        of_pod = PodFacts(
            facts.namespace, facts.name, facts.uid, pod, events, tuple(records), waiting, scheduled, owners=owners
        )
        return diagnose(of_pod, replace(around, unread=self.unread))

    # --- Pods ---

    async def _find_pod(self, target: ExplainTarget) -> tuple[ReportedPod | None, Sequence[DecisionRecord]]:
        """Return the Pod, None if it does not exist, and records of it and of its siblings, newest first."""
        if target.uid:
            records = await self._read_records(RecordsQuery(uid=target.uid))
            namespace = next((record.namespace for record in records), "")
            pod = None if self._reader is None else await self._reader.find_by_uid(target.uid, namespace)
        else:
            pod = None if self._reader is None else await self._reader.pod(target.name)
            uid = "" if pod is None else pod.metadata.uid
            query = RecordsQuery(target.namespace, uid=uid) if uid else RecordsQuery(target.namespace, target.name)
            records = await self._read_records(query)
        return pod, _sort_newest_first((*records, *await self._find_mutating_records(pod, records)))

    async def _find_mutating_records(
        self, pod: ReportedPod | None, records: Sequence[DecisionRecord]
    ) -> Sequence[DecisionRecord]:
        """Return records that may be of the mutating half, which has neither uid nor generated name."""
        newest = next(iter(records), None)
        if pod is not None:
            owners = [reference.uid for reference in pod.metadata.owner_references or () if reference.controller]
            namespace, name = pod.metadata.namespace, pod.metadata.generate_name or pod.metadata.name
        elif newest is not None:
            owners = [newest.owner.uid] if newest.owner is not None else []
            before = newest.pod
            namespace, name = newest.namespace, (before and before.metadata.generate_name) or newest.name
        else:
            return ()
        query = RecordsQuery(namespace, owner=owners[0]) if owners else RecordsQuery(namespace, name)
        return await self._read_records(query)

    @staticmethod
    def _facts_of(target: ExplainTarget, pod: ReportedPod | None, records: Sequence[DecisionRecord]) -> ExplainTarget:
        """Return namespace, name and uid of the Pod: for a uid they are those of the Pod or of a record."""
        if pod is not None:
            return ExplainTarget(pod.metadata.namespace, pod.metadata.name, uid=pod.metadata.uid)
        found = next((record for record in records if target.uid and record.uid == target.uid), None)
        return target if found is None else ExplainTarget(found.namespace, found.name, uid=target.uid)

    # --- workloads ---

    async def _report_workload(self, target: ExplainTarget) -> Report | None:
        made = await self._workloads.read(target)
        told_of = made.uids
        records = await self._records_of(target, made)
        pods, events = made.pods, await self._reader.events() if self._reader is not None and told_of else ()
        waiting = await self._find_places(pods)
        around = await self._read_surroundings(records, pods)
        scheduled = await self._find_scheduling_records(pods, around)
        facts = WorkloadFacts(
            made.kind,
            target.namespace,
            target.name,
            made.owners,
            tuple(event for event in events if event.involved_object.uid in told_of),
            tuple(
                PodFacts(
                    target.namespace,
                    pod.metadata.name,
                    pod.metadata.uid,
                    pod,
                    tuple(event for event in events if event.involved_object.uid == pod.metadata.uid),
                    tuple(records),
                    waiting.get(pod.metadata.uid),
                    scheduled.get(pod.metadata.uid),
                )
                for pod in pods
            ),
            tuple(records),
            maker=made.maker,
            custom=made.custom,
        )
        return diagnose_workload(facts, replace(around, unread=self.unread))

    async def _records_of(self, target: ExplainTarget, made: WorkloadObjects) -> Sequence[DecisionRecord]:
        if made.creators:
            found = [await self._read_records(RecordsQuery(owner=owner.metadata.uid)) for owner in made.creators]
            return _sort_newest_first(record for records in found for record in records)
        # Without the cluster the controllers that a Deployment or CronJob makes are known by their names.
        kind = "" if target.kind is None else target.kind.makes
        made_names = re.compile(re.escape(target.name) + (r"-[a-z0-9]+" if kind else ""))
        records = await self._read_records(RecordsQuery(target.namespace))
        kind = (kind or made.kind).lower()
        return [
            record
            for record in records
            if record.owner is not None
            and record.owner.kind.lower() == kind
            and made_names.fullmatch(record.owner.name)
        ]

    # --- places in queues, records and policies ---

    async def _find_places(self, pods: Sequence[ReportedPod]) -> Mapping[str, QueueRow]:
        """Return the places of the Pods that wait, by uid."""
        if self.places is None:
            return {}
        try:
            return await self.places.find(pods)
        except UserError as error:
            self._unread["place in the queue"] = _format_error(error)
            return {}

    async def _find_scheduling_records(
        self, pods: Sequence[ReportedPod], around: Surroundings
    ) -> Mapping[str, SchedulingRecord]:
        """Return the extenders' records of Pods, by uid."""
        if self.scheduling is None:
            return {}
        try:
            found = await self.scheduling.find(pods, around)
        except UserError as error:
            self._unread["extender"] = _format_error(error)
            return {}
        if self.scheduling.missing:
            self._unread["extender"] = self.scheduling.missing
        return found

    async def _read_records(self, query: RecordsQuery) -> Sequence[DecisionRecord]:
        if self._source is None or "records" in self._unread:
            return ()
        before = RecordsQuery(query.namespace, query.name, query.uid, query.owner, self._before)
        try:
            return await self._source.find_records(before)
        except UserError as error:
            self._unread["records"] = _format_error(error)
            return ()

    async def _read_surroundings(self, records: Sequence[DecisionRecord], pods: Sequence[ReportedPod]) -> Surroundings:
        reader = self._reader
        in_force, nodes, hosts, namespace = self._policies.given, None, None, None
        if reader is not None:
            nodes = await reader.nodes() if needs_all_nodes(pods) else None
            hosts = await reader.hosts(list_doubtful_nodes(pods), nodes)
            namespace = await reader.read_namespace()
            in_force = await self._policies.find_in_force(reader)
        carried = [(pod.metadata.annotations or {}).get(HASH_ANNOTATION, "") for pod in pods]
        hashes = [*(record.policy for record in records), *carried]
        await self._policies.read(filter(None, hashes), self._source, reader)
        variants = {} if self.variants is None else await self.variants.find(pods, records, self._unread)
        return Surroundings(
            time.time_ns() // 1000,
            self._policies.by_hash,
            in_force,
            {} if namespace is None else namespace.metadata.labels or {},
            namespace,
            nodes,
            hosts,
            variants=variants,
        )


def _format_error(error: UserError) -> str:
    """Return an error with its remedy on one line."""
    return " ".join(f"{error}: {error.remedy}".split()) if error.remedy else str(error)


def _sort_newest_first(records: Iterable[DecisionRecord]) -> list[DecisionRecord]:
    """Return each record once, newest first."""
    return sorted({record.id: record for record in records}.values(), key=lambda record: record.id, reverse=True)
