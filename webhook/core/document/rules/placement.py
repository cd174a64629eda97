"""Rules of `placement`: contradictions between its own parts, and what Kubernetes would refuse."""

from collections.abc import Iterator

from webhook.core.document.formats import FormatError, checker
from webhook.core.document.parts import Part, sound
from webhook.core.document.problems import Problem
from webhook.core.document.rules.match import values_fit_the_operator
from webhook.core.kubernetes import Toleration
from webhook.core.stanzas import TopologyEntry

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NODE_TERMS = (
    ("placement", "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms", "*"),
    ("placement", "affinity", "nodeAffinity", _PREFERRED, "*", "preference"),
)
_FORMATS = checker()


def topology_names_one_label(service: Part) -> Iterator[Problem]:
    for entry in service.select("placement", "topology", "*"):
        yield from sound(_names_one_label(entry))


def _names_one_label(entry: Part) -> Iterator[Problem]:
    level, key = entry.get("level"), entry.get("key")
    if level is None and key is None:
        yield entry.wrong_field("does not say which label", "add level: Region, level: Zone, or key: LABEL")
    elif level is not None and key is not None:
        yield key.wrong_field("level says which label already", "remove level or key")


def topology_can_be_fulfilled(service: Part) -> Iterator[Problem]:
    """AND the required entries of one label, with each other and with nodeSelector."""
    allowed: dict[str, frozenset[str]] = {}
    first: dict[str, Part] = {}
    for part in service.select("placement", "topology", "*"):
        yield from sound(_topology(part, allowed, first))
    for label, value in _node_selector(service):
        text = value.read(str)
        if label in allowed and allowed[label] and text not in allowed[label]:
            reason = f"contradicts topology in line {first[label].node.key_line}, which requires another {label}"
            yield value.wrong(reason, f"use {' or '.join(sorted(allowed[label]))}, or mend topology")


def _topology(part: Part, allowed: dict[str, frozenset[str]], first: dict[str, Part]) -> Iterator[Problem]:
    entry = part.read(TopologyEntry)
    if not entry.label or (entry.level and entry.key):
        return
    values = frozenset(entry.values)
    if entry.preferred_weight is not None:
        return
    both = allowed.get(entry.label, values) & values
    if not both and allowed.get(entry.label):
        reason = f"has no value in common with line {first[entry.label].node.key_line}, and both are required"
        yield part.wrong_field(reason, "write one entry for the label, or give one of them a preferredWeight")
    allowed[entry.label] = both
    first.setdefault(entry.label, part)


def _node_selector(service: Part) -> Iterator[tuple[str, Part]]:
    for selector in service.select("placement", "nodeSelector"):
        yield from selector.fields().items()


def preferences_can_count(service: Part) -> Iterator[Problem]:
    """Find preferred entries outside what is required: they weigh nothing."""
    required: dict[str, set[str]] = {}
    entries = [(part, part.read(TopologyEntry)) for part in service.select("placement", "topology", "*")]
    for _, entry in entries:
        if entry.preferred_weight is None:
            required[entry.label] = required.get(entry.label, set(entry.values)) & set(entry.values)
    for part, entry in entries:
        if entry.preferred_weight and entry.label in required and required[entry.label].isdisjoint(entry.values):
            yield part.wrong_field("prefers what the required entries rule out", "remove it, or mend its values")


def tolerations_are_kubernetes(service: Part) -> Iterator[Problem]:
    for part in service.select("placement", "tolerations", "*"):
        yield from sound(_toleration(part))


def _toleration(part: Part) -> Iterator[Problem]:
    rule = part.read(Toleration)
    value, seconds = part.get("value"), part.get("tolerationSeconds")
    if rule.operator == "Exists" and value is not None and rule.value:
        yield value.wrong_field("Exists takes no value", "remove value, or use Equal")
    elif not rule.key and rule.operator != "Exists":
        yield part.wrong_field("no key means every taint, which only Exists can say", "add key, or operator: Exists")
    elif rule.operator == "Equal" and value is not None:
        try:
            _FORMATS.check(rule.value, "label-value")
        except FormatError as error:
            yield value.wrong(error.reason, error.remedy)
    elif rule.operator in {"Lt", "Gt"} and not rule.value.removeprefix("-").isdecimal():
        yield part.wrong_field(f"{rule.operator} compares whole numbers", 'write one, such as value: "4"')
    if seconds is not None and rule.effect != "NoExecute":
        yield seconds.wrong_field("counts only for the effect NoExecute", "write effect: NoExecute, or remove it")


def node_terms_are_kubernetes(service: Part) -> Iterator[Problem]:
    for path in _NODE_TERMS:
        for term in service.select(*path):
            for expression in term.select("matchExpressions", "*"):
                yield from sound(values_fit_the_operator(expression))
            for expression in term.select("matchFields", "*"):
                yield from sound(_names_a_node(expression))


def _names_a_node(expression: Part) -> Iterator[Problem]:
    key, operator, values = expression.get("key"), expression.get("operator"), expression.get("values")
    if key is not None and key.read(str) != "metadata.name":
        yield key.wrong("not a field that nodes are selected by", "write metadata.name")
    if operator is not None and operator.read(str) not in {"In", "NotIn"}:
        yield operator.wrong("not an operator for a node's fields", "use In or NotIn")
    if values is None or len(values.read(list[str])) != 1:
        yield expression.wrong_field("a node's field is compared with a single value", "write one value")


def spreads_are_kubernetes(service: Part) -> Iterator[Problem]:
    first: dict[tuple[str, str], Part] = {}
    for part in service.select("placement", "topologySpreadConstraints", "*"):
        yield from sound(_spread(part, first))


def _spread(part: Part, first: dict[tuple[str, str], Part]) -> Iterator[Problem]:
    key, action, domains = part.get("topologyKey"), part.get("whenUnsatisfiable"), part.get("minDomains")
    if key is None or action is None:
        return
    pair = (key.read(str), action.read(str))
    if pair in first:
        reason = f"the same topologyKey and whenUnsatisfiable as in line {first[pair].node.key_line}"
        yield part.wrong_field(reason, "remove one of the two")
    first.setdefault(pair, part)
    if domains is not None and pair[1] != "DoNotSchedule":
        yield domains.wrong_field(
            "counts only with DoNotSchedule", "write whenUnsatisfiable: DoNotSchedule, or remove it"
        )
