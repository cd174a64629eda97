"""Impact of a candidate policy: its inputs from servers, the cluster or files, and the report."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from webhook.commands.policy_argument import load_policy
from webhook.core.document import Purpose
from webhook.core.policy.model import LoadedPolicy
from webhook.operations.named_policies import load_named_policy
from webhook.operations.recorded_events import (
    RecordedEvents,
    RequestSource,
    make_replay,
    read_namespace_labels,
    read_recorded,
)
from webhook.replay.impact import Comparison, Impact, ImpactReport

Labels = Mapping[str, Mapping[str, str]]


class ImpactInputs(Struct, frozen=True):
    """What is compared, and by which requests."""

    candidate: Path
    before: str
    """A file, `live`, or another policy of the cluster."""
    source: RequestSource


async def compare_policies(inputs: ImpactInputs) -> Comparison:
    """Judge the requests by both policies. UserError: an input cannot be read, or has mistakes."""
    candidate = load_policy(inputs.candidate, Purpose.REPLAY)
    former, found = await load_named_policy(inputs.before, inputs.source.kubeconfig)
    past = await read_recorded(inputs.source)
    warnings = [*found, *past.warnings, *warn_of_unjudged(former, candidate)]
    labels = await read_namespace_labels(inputs.source, warnings)
    names = f"{former.hash[:8]} ({inputs.before})", f"{candidate.hash[:8]} ({inputs.candidate})"
    report = await judge_requests(PolicyPair(former, candidate, names), past, labels)
    return Comparison(report, tuple(warnings))


class PolicyPair(Struct, frozen=True):
    """Two policies, and their names in a report."""

    former: LoadedPolicy
    candidate: LoadedPolicy
    names: tuple[str, str]


async def judge_requests(compared: PolicyPair, past: RecordedEvents, labels: Labels) -> ImpactReport:
    """Judge past requests by two policies whose counters begin empty."""
    replays = (make_replay(loaded, labels, past.since) for loaded in (compared.former, compared.candidate))
    impact = Impact(*replays)
    for event in past.read():
        await impact.add(event)
    since, until = (
        "" if moment is None or past.until is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        for moment in (past.since, past.until)
    )
    return ImpactReport(
        *compared.names,
        requests=impact.requests,
        left_out={**past.left_out, **impact.left_out},
        services=tuple(impact.list_services()),
        since=since,
        until=until,
    )


def warn_of_unjudged(*policies: LoadedPolicy) -> Iterator[str]:
    """Yield a warning about the rules that judge no Pod of a record."""
    services = [service for loaded in policies for service in loaded.policy.services]
    rules = {
        f"{service.name}/{rule.rule.name} ({', '.join(rule.unrecorded)})"
        for service in services
        for rule in service.rule_plan.rules
        if rule.unrecorded
    }
    if rules:
        named = ", ".join(sorted(rules))
        yield f"records do not keep what these rules read, so they judge no Pod of a record: {named}"
