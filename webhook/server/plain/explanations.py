"""Page of the decision port that explains one Pod, or the newest of a controller, by the records alone."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.diagnosis import PodFacts, Report, Surroundings, WorkloadFacts, diagnose, diagnose_workload
from webhook.core.reporting.decision_query import DecisionQuery
from webhook.core.reporting.decision_record import DecisionRecord
from webhook.decisions.search import DecisionSearch
from webhook.errors import NoPolicyError
from webhook.server.http_messages import HttpResponse, build_json_response
from webhook.server.plain.local_pages import Page, check_parameters

EXPLAIN = "/api/v1/explain"
_PARAMETERS = ("namespace", "name", "uid", "owner")
_LIMIT = 200
_POLICIES_MAX = 3

PolicyByHash = Callable[[str], Awaitable[CompiledPolicy]]
"""Returns a policy without overrides. NoPolicyError: the reason why it is not available."""


def build_explanation_page(search: DecisionSearch, policy: PolicyByHash, now_us: Callable[[], int]) -> Page:
    """Return the page. It needs the policies of the newest records only."""

    async def explain(parameters: Mapping[str, str]) -> HttpResponse:
        asked = _parse_query(parameters)
        records = await _find_records(search, asked)
        known, unread = dict[str, CompiledPolicy](), {"cluster": "this page explains by records alone"}
        hashes = dict.fromkeys(record.policy for record in records if record.policy)
        for policy_hash in list(hashes)[:_POLICIES_MAX]:
            try:
                known[policy_hash] = await policy(policy_hash)
            except NoPolicyError as error:
                unread[f"policy {policy_hash}"] = str(error)
        report = _build_report(asked, records, Surroundings(now_us(), known, unread=unread))
        return build_json_response(msgspec.json.encode({"report": report, "records": records}))

    return explain


def _parse_query(parameters: Mapping[str, str]) -> DecisionQuery:
    check_parameters(parameters, _PARAMETERS)
    given = {name: parameters.get(name, "") for name in _PARAMETERS}
    if not (given["uid"] or (given["namespace"] and (given["name"] or given["owner"]))):
        raise ValueError("name what to explain: a uid, or a namespace with a name or an owner")
    namespace, name, uid, owner = given.values()
    return DecisionQuery(namespace=namespace, name=name, uid=uid, owner=owner, limit=_LIMIT)


async def _find_records(search: DecisionSearch, asked: DecisionQuery) -> list[DecisionRecord]:
    """Return the matching records, and those of sibling Pods: the record of a mutating call has no uid."""
    found = {record.id: record for record in (await search.find(asked)).records}
    newest = next(iter(found.values()), None)
    if newest is not None and newest.owner is not None and not asked.owner:
        siblings = DecisionQuery(namespace=newest.namespace, owner=newest.owner.uid, limit=_LIMIT)
        found |= {record.id: record for record in (await search.find(siblings)).records}
    elif newest is not None and asked.uid:
        named = DecisionQuery(namespace=newest.namespace, name=newest.name, limit=_LIMIT)
        found |= {record.id: record for record in (await search.find(named)).records}
    return sorted(found.values(), key=lambda record: record.id, reverse=True)


def _build_report(asked: DecisionQuery, records: Sequence[DecisionRecord], around: Surroundings) -> Report | None:
    if asked.owner:
        kind = next((record.owner.kind for record in records if record.owner is not None), "")
        return diagnose_workload(WorkloadFacts(kind, asked.namespace, asked.owner, records=tuple(records)), around)
    of_uid = next((record for record in records if asked.uid and record.uid == asked.uid), None)
    namespace, name = (asked.namespace, asked.name) if of_uid is None else (of_uid.namespace, of_uid.name)
    return diagnose(PodFacts(namespace, name, asked.uid, records=tuple(records)), around)
