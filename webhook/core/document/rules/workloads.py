"""Rules of `workloads`: kinds that are not Kubernetes' own, each listed once."""

from collections.abc import Iterator

from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.api_groups import is_built_in
from webhook.core.policy_fields import CustomWorkload
from webhook.core.workloads.custom_kinds import KNOWN_TEMPLATES


def kinds_are_not_kubernetes(document: DocumentPart) -> Iterator[Problem]:
    """`workloads[].apiGroup`: refuse a group that Kubernetes itself serves."""
    for group in document.select("workloads", "*", "apiGroup"):
        if is_built_in(group.read(str)):
            reason = "a group of Kubernetes itself, of which Podgate knows all kinds that make Pods"
            yield group.report(reason, "remove the entry, or write the group of another kind, such as ray.io")


def kinds_differ(document: DocumentPart) -> Iterator[Problem]:
    """`apiGroup` with `kind`, and with `resource`, of `workloads[]`: refuse a repeated one."""
    first: dict[tuple[str, str], DocumentPart] = {}
    for entry in document.select("workloads", "*"):
        yield from stop_at_invalid(_check_repeated(entry, first))


def _check_repeated(entry: DocumentPart, first: dict[tuple[str, str], DocumentPart]) -> Iterator[Problem]:
    workload = entry.read(CustomWorkload)
    for field, name in (("kind", workload.kind), ("resource", workload.resource)):
        place = entry.get(field)
        if place is None or name is None:
            continue
        known = first.setdefault((workload.api_group, name), place)
        if known is not place:
            reason = f"line {known.node.line} has this {field} of {workload.api_group}"
            yield place.report(reason, "write all paths in one entry" if field == "kind" else "give each its own")


def kinds_are_not_known(document: DocumentPart) -> Iterator[Problem]:
    """`workloads[].kind`: warn about a kind whose Pod templates Podgate knows: the entry replaces its paths."""
    for entry in document.select("workloads", "*"):
        yield from stop_at_invalid(_check_known(entry))


def _check_known(entry: DocumentPart) -> Iterator[Problem]:
    workload, kind = entry.read(CustomWorkload), entry.get("kind")
    known = KNOWN_TEMPLATES.get((workload.api_group, workload.kind))
    if known is None or kind is None:
        return
    if set(known) == set(workload.templates):
        yield kind.report("Podgate knows this kind, with the same templates", "remove the entry")
    else:
        reason = f"Podgate knows this kind, with templates at {', '.join(known)}, which the entry replaces"
        yield kind.report(reason, "remove the entry, unless your version of the kind differs")
