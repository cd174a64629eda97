"""Rules of `placement.topologySpreadConstraints`: what Kubernetes would reject."""

from collections.abc import Iterator

from webhook.core.document.rules.placement.label_keys import label_keys_are_kubernetes
from webhook.core.document.yaml.parts import DocumentPart, until_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.placement import SERVICE_LABEL


def spreads_are_kubernetes(service: DocumentPart) -> Iterator[Problem]:
    """`topologySpreadConstraints`: each topologyKey once with each whenUnsatisfiable; `minDomains` with DoNotSchedule.

    Refuse others.
    """
    first: dict[tuple[str, str], DocumentPart] = {}
    for part in service.select("placement", "topologySpreadConstraints", "*"):
        yield from until_invalid(_spread(part, first))
        # One without a selector means the service's own Pods.
        yield from until_invalid(label_keys_are_kubernetes(part, default={SERVICE_LABEL}))


def fields_of_if_absent_are_set(service: DocumentPart) -> Iterator[Problem]:
    """`placement.ifAbsent`: fields that placement sets. Refuse others, and an `onConflict` rule for one of them."""
    for placement in service.select("placement"):
        for part in placement.select("ifAbsent", "*"):
            name = part.read(str)
            path = ("affinity", name) if name == "podAntiAffinity" else (name,)
            wanted, rule = placement.get(*path), placement.get("onConflict", name)
            if wanted is None or wanted.is_empty:
                yield part.wrong("placement sets nothing there", f"set {'.'.join(path)}, or remove it")
            if rule is not None:
                reason = f"has no effect: ifAbsent leaves a Pod's own {name} as they are"
                yield rule.wrong_field(reason, "keep one of the two")


def _spread(part: DocumentPart, first: dict[tuple[str, str], DocumentPart]) -> Iterator[Problem]:
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
            "has no effect without DoNotSchedule", "write whenUnsatisfiable: DoNotSchedule, or remove it"
        )
