"""Rules of `placement.topology`, `nodeSelector` and `onConflict`."""

from collections.abc import Iterator

from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.policy_fields import TopologyEntry


def topology_names_one_label(service: DocumentPart) -> Iterator[Problem]:
    """`placement.topology[]`: either `level` or `key`. Refuse both and neither."""
    for entry in service.select("placement", "topology", "*"):
        yield from stop_at_invalid(_check_names_one_label(entry))


def _check_names_one_label(entry: DocumentPart) -> Iterator[Problem]:
    level, key = entry.get("level"), entry.get("key")
    if level is None and key is None:
        yield entry.report_field("names no label", "add level: Region, level: Zone, or key: LABEL")
    elif level is not None and key is not None:
        yield key.report_field("level already names the label", "remove level or key")


def topology_can_be_fulfilled(service: DocumentPart) -> Iterator[Problem]:
    """`placement.topology[].in`, `nodeSelector`: for each label a value that all required entries allow.

    Refuse entries that contradict each other.
    """
    allowed: dict[str, frozenset[str]] = {}
    first: dict[str, DocumentPart] = {}
    for part in service.select("placement", "topology", "*"):
        yield from stop_at_invalid(_check_entry(part, allowed, first))
    for selector in service.select("placement", "nodeSelector"):
        for label, value in selector.fields().items():
            text = value.read(str)
            if label in allowed and allowed[label] and text not in allowed[label]:
                reason = f"contradicts topology in line {first[label].node.key_line}, which requires another {label}"
                yield value.report(reason, f"use {' or '.join(sorted(allowed[label]))}, or fix topology")


def _check_entry(
    part: DocumentPart, allowed: dict[str, frozenset[str]], first: dict[str, DocumentPart]
) -> Iterator[Problem]:
    entry = part.read(TopologyEntry)
    if not entry.label or (entry.level and entry.key):
        return
    values = frozenset(entry.values)
    if entry.preferred_weight is not None:
        return
    both = allowed.get(entry.label, values) & values
    if not both and allowed.get(entry.label):
        reason = f"has no value in common with line {first[entry.label].node.key_line}, and both are required"
        yield part.report_field(reason, "write one entry for the label, or give one of them a preferredWeight")
    allowed[entry.label] = both
    first.setdefault(entry.label, part)


def conflicts_can_happen(document: DocumentPart) -> Iterator[Problem]:
    """`placement.onConflict`: warn about a field that placement does not set; in `defaults`, that no service sets."""
    unused: dict[tuple[int, int], DocumentPart] = {}
    used: set[tuple[int, int]] = set()
    for placement in document.select("services", "*", "placement"):
        for rules in placement.select("onConflict"):
            for name, rule in rules.fields().items():
                place = (rule.node.key_line, rule.node.key_column)
                field = placement.get(name)
                if name == "default" or (field is not None and not field.is_empty):
                    used.add(place)
                else:
                    unused.setdefault(place, rule)
    for place, rule in unused.items():
        if place not in used:
            name = str(rule.path[-1])
            yield rule.report_field(f"has no effect: placement sets no {name}", f"set {name}, or remove it")
