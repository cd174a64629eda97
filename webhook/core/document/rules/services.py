"""Rules of names and references: `services`, `pools`, `slaClasses`, `exemptions`."""

from collections.abc import Iterator

import msgspec

from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem, suggest
from webhook.core.kubernetes.label_constraints import list_covering_patterns
from webhook.core.policy.model import BUILT_IN_EXEMPT_NAMESPACES, DEFAULT_SLA_CLASSES
from webhook.core.policy_fields import QosClass

_NAMED = ("services", "pools", "slaClasses", "parts")
_ALLOWED = ("tolerations", "nodeSelectorKeys", "priorityClassNames", "schedulerNames", "runtimeClassNames")
_SETS = (
    ("exemptions", "namespaces"),
    ("exemptions", "usernames"),
    ("exemptions", "runtimeClasses"),
    ("parts", "*", "namespaces"),
    ("parts", "*", "pools"),
    ("workloads", "*", "templates"),
    ("services", "*", "match", "namespaces"),
    ("services", "*", "match", "ownerKinds"),
    ("services", "*", "placement", "topology", "*", "in"),
    ("services", "*", "placement", "tolerations"),
    *(("services", "*", "placement", "tolerationsByQosClass", qos) for qos in QosClass),
    ("services", "*", "placement", "shares", "variants", "*", "tolerations"),
    *(("services", "*", "placement", "allow", field) for field in _ALLOWED),
    ("services", "*", "placement", "ifAbsent"),
    *(("services", "*", "resources", "container", field) for field in ("ignore", "remove", "forbid")),
    ("services", "*", "resources", "pod", "qosClasses"),
    ("services", "*", "quota", "queue", "groups", "from"),
    ("services", "*", "breaker", "outcomes", "reporters"),
)
_STANZA_STEPS = 3
"""From the document to a stanza of its services: each is selected once, however many paths lead through it."""


def names_are_unique(document: DocumentPart) -> Iterator[Problem]:
    """`name` of `services[]`, `pools[]`, `slaClasses[]`, `parts[]`: unique in its list. Refuse a repeated name."""
    for collection in _NAMED:
        first: dict[str, DocumentPart] = {}
        for name in document.select(collection, "*", "name"):
            text = name.read(str)
            if text in first:
                reason = f"the name is already used in line {first[text].node.line}"
                yield name.report(reason, "give each a unique name")
            first.setdefault(text, name)


def nothing_is_listed_twice(document: DocumentPart) -> Iterator[Problem]:
    """`exemptions.usernames`, `match.namespaces` and the other lists of `_SETS`: refuse a repeated entry."""
    stanzas = {path[:_STANZA_STEPS]: document.select(*path[:_STANZA_STEPS]) for path in _SETS}
    for path in _SETS:
        for entries in document.select_in(stanzas[path[:_STANZA_STEPS]], *path[_STANZA_STEPS:]):
            seen: set[str] = set()
            listed = entries.items()
            for entry in listed if len(listed) > 1 else ():
                value = msgspec.json.encode(entry.node.strip_positions(), enc_hook=str, order="deterministic").decode()
                if value in seen:
                    yield entry.report("listed twice", "remove one of the two")
                seen.add(value)


def classes_exist(document: DocumentPart) -> Iterator[Problem]:
    """`services[].slaClass`: a name of `slaClasses`, or of the default classes.

    Refuse another name, and an absent field if there is no class bronze.
    """
    defined = document.get("slaClasses")
    default = [sla_class.name for sla_class in DEFAULT_SLA_CLASSES]
    classes = default if defined is None else [read_name(part) for part in read_items(defined)]
    for service in document.select("services", "*"):
        yield from stop_at_invalid(_check_class(service, classes))


def _check_class(service: DocumentPart, classes: list[str]) -> Iterator[Problem]:
    chosen = service.get("slaClass")
    if chosen is not None and chosen.read(str) not in classes:
        yield chosen.report("no such SLA class", suggest(chosen.read(str), classes, "slaClasses has"))
    elif chosen is None and "bronze" not in classes:
        remedy = suggest("bronze", classes, "write one of slaClasses:")
        yield service.report_missing("slaClass", "the default is bronze, which is not in slaClasses", remedy)


def no_service_is_exempt(document: DocumentPart) -> Iterator[Problem]:
    """`match.namespaces`: at least one that is not exempt. Refuse a list of exempt namespaces only."""
    exempt = set(BUILT_IN_EXEMPT_NAMESPACES)
    exempt.update(pattern.read(str) for pattern in document.select("exemptions", "namespaces", "*"))
    for namespaces in document.select("services", "*", "match", "namespaces"):
        yield from stop_at_invalid(_check_exempt(namespaces, exempt))


def _check_exempt(namespaces: DocumentPart, exempt: set[str]) -> Iterator[Problem]:
    names = namespaces.read(list[str])
    if names and not any(exempt.isdisjoint(list_covering_patterns(name)) for name in names):
        reason = "all of these namespaces are exempt: the service would own no Pods"
        yield namespaces.report_field(reason, "name other namespaces, or take these out of exemptions")


def no_service_exempts_its_pods(document: DocumentPart) -> Iterator[Problem]:
    """`placement.runtimeClassName`: refuse a name in `exemptions.runtimeClasses`: the rewrite would exempt the Pod."""
    lines = {part.read(str): part.node.line for part in document.select("exemptions", "runtimeClasses", "*")}
    for written in document.select("services", "*", "placement", "runtimeClassName"):
        name = written.read(str)
        if name in lines:
            reason = f"line {lines[name]} exempts this RuntimeClass: every Pod of the service would become exempt"
            yield written.report(reason, "remove it from exemptions.runtimeClasses, or write another one here")


def read_items(part: DocumentPart) -> list[DocumentPart]:
    """Return the items; InvalidFieldError if one is invalid, because the intended value is then unknown."""
    part.read(list)
    return part.items()


def read_name(part: DocumentPart) -> str:
    name = part.get("name")
    return "" if name is None else name.read(str)
