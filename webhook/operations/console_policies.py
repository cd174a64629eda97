"""Policies of a console: those of the kubeconfig's cluster, judged by the decisions of the server that it shows."""

import asyncio
import time

from webhook.commands.clients.decision_client import DecisionClient
from webhook.commands.policy_argument import load_document
from webhook.console.interface.console_policies import PlannedRollout
from webhook.console.interface.document_reader import ReadablePort
from webhook.core.document import Purpose
from webhook.core.reporting.candidate_document import StoredRollout
from webhook.core.rollout.commands import describe_rejection
from webhook.errors import UserError
from webhook.operations.named_policies import read_policies
from webhook.operations.policy_impact import PolicyPair, judge_requests, warn_of_unjudged
from webhook.operations.recorded_events import RequestSource, convert_page, read_namespace_labels
from webhook.operations.rollout_documents import read_stored_rollout
from webhook.operations.rollout_facts import is_stored
from webhook.operations.rollout_plan import plan_rollout
from webhook.replay.impact import Comparison
from webhook.support.kubeconfig import Kubeconfig

_RECORDS_MAX = 1_000
_DRAFT = "the draft"


class ClusterPolicies:
    """Reads with the rights of a kubeconfig. `missing`: why there are no decisions."""

    def __init__(self, kubeconfig: Kubeconfig, decisions: ReadablePort | None, missing: str = "") -> None:
        self._kubeconfig = kubeconfig
        self._decisions = decisions
        self._missing = missing

    async def read_rollout(self) -> StoredRollout:
        return await read_stored_rollout(self._kubeconfig)

    async def read_document(self, name: str) -> bytes:
        if not is_stored(name):
            raise UserError(f"{name}: no name of a stored policy", "give a revision or a hash of the history")
        documents, _ = await read_policies((name,), self._kubeconfig)
        return documents[name]

    async def judge(self, before: bytes, candidate: bytes) -> Comparison:
        if self._decisions is None:
            raise UserError(f"no decisions are read: {self._missing}", "give --decisions URL to podgate console")
        former = load_document("the policy in force", before, Purpose.REPLAY)
        loaded = load_document(_DRAFT, candidate, Purpose.REPLAY)
        page = await DecisionClient(self._decisions.get, self._decisions.name).read_newest({}, _RECORDS_MAX)
        past = convert_page(page, self._decisions.name)
        source = RequestSource(None, None, None, "", _RECORDS_MAX, None, self._kubeconfig)
        warnings = [*past.warnings, *warn_of_unjudged(former, loaded)]
        labels = await read_namespace_labels(source, warnings)
        compared = PolicyPair(former, loaded, (former.hash, loaded.hash))
        # In a thread, since it takes the processor for a moment while other pages are updated.
        report = await asyncio.to_thread(lambda: asyncio.run(judge_requests(compared, past, labels)))
        return Comparison(report, tuple(warnings))

    async def plan(self, candidate: bytes) -> PlannedRollout:
        plan = await plan_rollout(_DRAFT, candidate, self._kubeconfig, time.time_ns() // 1000)
        why = "" if plan.rejection is None else describe_rejection(plan.rejection)
        taken_back = f"it was taken back: {why}: it is not tried again until podgate policy retry"
        return PlannedRollout(plan.steps, (*([taken_back] if why else []), *plan.warnings))
