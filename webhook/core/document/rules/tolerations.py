"""Rules of `placement.tolerations`, `tolerationsByQosClass`, `allow.tolerations`: validity, entries without effect."""

import re
from collections.abc import Iterator

from webhook.core.document.formats import FormatError, check
from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.label_constraints import parse_integer
from webhook.core.kubernetes.types import Toleration
from webhook.core.placement.toleration_match import covers
from webhook.core.policy_fields import Mode, QosClass

_CANONICAL = re.compile(r"0|-?[1-9][0-9]*")
_COMPARING = frozenset({"Lt", "Gt"})
_CLASSES = ("placement", "tolerationsByQosClass")
_VARIANT = ("placement", "shares", "variants", "*", "tolerations")
_SET = (("placement", "tolerations"), *((*_CLASSES, qos) for qos in QosClass), _VARIANT)
_LISTS = (*_SET, ("placement", "allow", "tolerations"))


def tolerations_are_kubernetes(service: DocumentPart) -> Iterator[Problem]:
    """`tolerations`, also of a variant, `tolerationsByQosClass`, `allow.tolerations`: those that Kubernetes accepts.

    Refuse `value` with Exists or not a label value, no `key` without Exists, Lt and Gt without a whole number, and
    `tolerationSeconds` without NoExecute.
    """
    for part in [part for path in _LISTS for part in service.select(*path, "*")]:
        yield from stop_at_invalid(_check_toleration(part))


def _check_toleration(part: DocumentPart) -> Iterator[Problem]:
    rule = part.read(Toleration)
    value, seconds = part.get("value"), part.get("tolerationSeconds")
    if rule.operator == "Exists" and value is not None and rule.value:
        yield value.report_field("Exists takes no value", "remove value, or use Equal")
    elif not rule.key and rule.operator != "Exists":
        yield part.report_field("without a key, only the operator Exists is allowed", "add key, or operator: Exists")
    elif rule.operator == "Equal" and value is not None:
        try:
            check(rule.value, "label-value")
        except FormatError as error:
            yield value.report(error.reason, error.remedy)
    elif rule.operator in _COMPARING and not _is_number(rule.value):
        at = part if value is None else value
        reason = f"{rule.operator} compares whole numbers, without plus or leading zeros"
        yield at.report_field(reason, 'write one, such as value: "4"')
    if seconds is not None and rule.effect != "NoExecute":
        yield seconds.report_field(
            "has no effect without the effect NoExecute", "write effect: NoExecute, or remove it"
        )


def _is_number(text: str) -> bool:
    """Check a number as the API server does here: 64 bits, without a plus sign or leading zeros."""
    return _CANONICAL.fullmatch(text) is not None and parse_integer(text) is not None


def tolerations_need_no_gate(service: DocumentPart) -> Iterator[Problem]:
    """`tolerations[].operator`, also by QoS class and variant: warn about Lt and Gt, which need a feature gate."""
    for operator in [part for path in _SET for part in service.select(*path, "*", "operator")]:
        word = operator.read(str)
        if word in _COMPARING:
            reason = (
                f"the API server rejects every Pod with {word}, unless its TaintTolerationComparisonOperators is on"
            )
            yield operator.report(reason, "turn that feature gate on, or use Equal or Exists")


def tolerations_add_something(service: DocumentPart) -> Iterator[Problem]:
    """`tolerations`, `tolerationsByQosClass`, `allow.tolerations`: warn about a toleration that another one covers."""
    shared = service.select("placement", "tolerations", "*")
    for path, own in [(where, part.items()) for where in _LISTS for part in service.select(*where)]:
        # Tolerations of all Pods come first, so that an equal one of a class or a variant is reported.
        above = shared if path[:2] == _CLASSES or path == _VARIANT else ()
        entries = [(part, part.read(Toleration)) for part in (*above, *own)]
        for index, (part, entry) in enumerate(entries):
            if part not in own:
                continue
            for place, (other, wider) in enumerate(entries):
                if place != index and covers(wider, entry) and (place < index or not covers(entry, wider)):
                    reason = f"has no effect: line {other.node.key_line} tolerates the same taints"
                    yield part.report_field(reason, "remove it")
                    break


def classes_have_pods(service: DocumentPart) -> Iterator[Problem]:
    """`tolerationsByQosClass`: warn about an empty map, and about classes that `resources.pod.qosClasses` denies."""
    for by_class in service.select(*_CLASSES):
        if by_class.is_empty:
            yield by_class.report_field("has no effect: it names no class", "add one, such as Burstable, or remove it")
        allowed, mode = service.get("resources", "pod", "qosClasses"), service.get("modes", "resources")
        if allowed is None or (mode is not None and mode.read(Mode) is not Mode.ENFORCE):
            continue
        for qos, part in by_class.fields().items():
            if qos not in allowed.read(list[str]):
                reason = f"has no effect: qosClasses in line {allowed.node.key_line} denies {qos} Pods"
                yield part.report_field(reason, f"remove it, or add {qos} there")
