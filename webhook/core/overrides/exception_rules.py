"""Rules for entries about a part of a service: what may differ for some of its Pods, and of a variant."""

from collections.abc import Callable, Iterator

from webhook.core.document.rules.match import check_can_match, values_fit_the_operator
from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.label_constraints import build_constraints
from webhook.core.kubernetes.types import LabelSelector
from webhook.core.policy_fields import Mode

_WHOLE = ("grant", "quotaReset", "breaker", "resetAt", "queue", "releasePods")
"""Changes of counters, breaker and queue, which all Pods of a service share."""

_NOT_OF_A_VARIANT = ("quotaFactor", "modes", "grant", "quotaReset", "queue", "releasePods")

_CHARGING = ("quota", "breaker")


def list_refused_fields(entry: DocumentPart) -> tuple[str, ...]:
    """Return the fields that an entry may not have, because it is about a part of the service only."""
    of_variant = _NOT_OF_A_VARIANT if entry.get("variant") is not None else ()
    return (*of_variant, *(_WHOLE if _is_exception(entry) else ()))


def _has_one_target(entry: DocumentPart) -> Iterator[Problem]:
    """`workload` and `pods`: refuse both in one entry."""
    pods = entry.get("pods")
    if pods is not None and entry.get("workload") is not None:
        yield pods.report_field("the entry has workload as well", "write two entries")


def _changes_no_shared_part(entry: DocumentPart) -> Iterator[Problem]:
    """Refuse changes of what all Pods of the service share."""
    for key in _WHOLE if _is_exception(entry) else ():
        part = entry.get(key)
        if part is not None and not part.is_empty:
            reason = "acts on the whole service, and the entry is for a part of its Pods"
            yield part.report_field(reason, "write it in an entry without workload and pods")


def _variant_stands_alone(entry: DocumentPart) -> Iterator[Problem]:
    """`variant`: refuse it for a part of the Pods, and beside changes of the service."""
    variant = entry.get("variant")
    if variant is None:
        return
    if _is_exception(entry):
        reason = "the entry is for a part of the service's Pods, and a variant's breaker is for all of them"
        yield variant.report_field(reason, "write it in an entry without workload and pods")
    for key in _NOT_OF_A_VARIANT:
        part = entry.get(key)
        if part is not None and not part.is_empty:
            reason = "acts on the whole service, and the entry is for the breaker of a variant"
            yield part.report_field(reason, "write it in an entry without variant")


def _modes_are_judged(entry: DocumentPart) -> Iterator[Problem]:
    """`modes`: refuse what would leave Pods uncharged, and `scheduling`: a scheduler does not know a Pod's creator."""
    modes = entry.get("modes") if _is_exception(entry) else None
    for key in _CHARGING if modes is not None else ():
        part = modes.get(key) if modes is not None else None
        if part is not None and part.read(Mode) is Mode.DISABLED:
            yield part.report("Pods of an exception are still charged", "write Audit, which denies nothing")
    scheduling = None if modes is None else modes.get("scheduling")
    if scheduling is not None:
        reason = "the scheduler does not know who created a Pod"
        yield scheduling.report_field(reason, "write it in an entry without workload and pods")


def _selector_selects(entry: DocumentPart) -> Iterator[Problem]:
    """`pods.selector`: refuse an empty one, values that do not fit the operator, and contradictions."""
    selector = entry.get("pods", "selector")
    if selector is None:
        return
    for expression in selector.select("matchExpressions", "*"):
        yield from stop_at_invalid(values_fit_the_operator(expression))
    if not build_constraints(selector.read(LabelSelector)):
        yield selector.report_field("selects every Pod of the namespace", "give it labels")
    yield from check_can_match(selector)


def _is_exception(entry: DocumentPart) -> bool:
    return entry.get("workload") is not None or entry.get("pods") is not None


EXCEPTION_RULES: tuple[Callable[[DocumentPart], Iterator[Problem]], ...] = (
    _has_one_target,
    _changes_no_shared_part,
    _variant_stands_alone,
    _modes_are_judged,
    _selector_selects,
)
