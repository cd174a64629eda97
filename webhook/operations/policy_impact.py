"""Impact of a candidate policy: its inputs from servers, the cluster or files, and the report."""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from webhook.commands.policy_argument import load_policy
from webhook.core.document import Purpose
from webhook.core.policy.model import LoadedPolicy
from webhook.operations.named_policies import load_named_policy
from webhook.operations.recorded_events import RequestSource, make_replay, read_namespace_labels, read_recorded
from webhook.replay.impact import Impact, ImpactReport


class ImpactInputs(Struct, frozen=True):
    """What is compared, and by which requests."""

    candidate: Path
    before: str
    """A file, `live`, or another policy of the cluster."""
    source: RequestSource


class Comparison(Struct, frozen=True):
    """A report, and what could not be read for it."""

    report: ImpactReport
    warnings: tuple[str, ...] = ()


async def compare_policies(inputs: ImpactInputs) -> Comparison:
    """Judge the requests by both policies. UserError: an input cannot be read, or has mistakes."""
    candidate = load_policy(inputs.candidate, Purpose.REPLAY)
    former, found = await load_named_policy(inputs.before, inputs.source.kubeconfig)
    past = await read_recorded(inputs.source)
    warnings = [*found, *past.warnings, *_warn_of_unjudged(former, candidate)]
    labels = await read_namespace_labels(inputs.source, warnings)
    impact = Impact(make_replay(former, labels), make_replay(candidate, labels))
    for event in past.read():
        await impact.add(event)
    since, until = (
        "" if moment is None or past.until is None else moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        for moment in (past.since, past.until)
    )
    report = ImpactReport(
        before=f"{former.hash[:8]} ({inputs.before})",
        candidate=f"{candidate.hash[:8]} ({inputs.candidate})",
        requests=impact.requests,
        left_out={**past.left_out, **impact.left_out},
        services=tuple(impact.list_services()),
        since=since,
        until=until,
    )
    return Comparison(report, tuple(warnings))


def _warn_of_unjudged(*policies: LoadedPolicy) -> Iterator[str]:
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
