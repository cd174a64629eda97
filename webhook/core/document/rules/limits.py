"""Advice on `hard`: limits of zero Pods, and limits below what the policy's own `resources` give each Pod."""

from collections.abc import Iterator, Mapping
from fractions import Fraction

from webhook.core.container_resources import RangePlan
from webhook.core.container_resources.container_plan import plan_containers
from webhook.core.document.rules.resources import select_amounts
from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.pod import Container, Pod, PodMetadata, PodSpec
from webhook.core.kubernetes.quantity import Quantity, parse_quantity
from webhook.core.policy.model import Modes
from webhook.core.policy_fields import Mode, ResourceRules
from webhook.core.quota import canonicalize

_HARD = (
    ("quota", "windows", "*", "hard"),
    ("quota", "standing", "hard"),
    ("quota", "schedules", "*", "hard"),
    ("quota", "schedules", "*", "windows", "*", "hard"),
    ("quota", "schedules", "*", "standing", "hard"),
)
_POD_WITHOUT_REQUESTS = Pod(PodMetadata(), PodSpec(containers=(Container(),)))

_Amounts = Mapping[str, tuple[Fraction, str]]
"""Amounts under the names of quota, each with the text that gives it."""


def some_pods_are_admitted(document: DocumentPart) -> Iterator[Problem]:
    """`hard.pods` of `windows`, `standing`, `schedules`: warn about 0. Other resources may be 0: Pods need not ask."""
    of_services = (("services", "*", *path) for path in _HARD)
    for path in (*of_services, ("pools", "*", "windows", "*", "hard"), ("pools", "*", "standing", "hard")):
        for pods in document.select(*path, "pods"):
            yield from stop_at_invalid(_check_admits_some(pods))


def _check_admits_some(pods: DocumentPart) -> Iterator[Problem]:
    if not pods.read(Quantity).value:
        yield pods.report("admits no Pod at all", "raise it, or expect every new Pod to be refused")


def limits_admit_the_least_pod(document: DocumentPart) -> Iterator[Problem]:
    """`hard` of `quota`, also in `schedules`: warn about less than each Pod has by the service's `resources`.

    That is `container.min`, and the defaults that a Pod without requests gets.
    """
    known: dict[int, tuple[_Amounts, _Amounts]] = {}
    for service in document.select("services", "*"):
        yield from stop_at_invalid(_check_limits(service, known))


def _check_limits(service: DocumentPart, known: dict[int, tuple[_Amounts, _Amounts]]) -> Iterator[Problem]:
    """Check one service. `known`: what the stanzas of `resources` give each Pod; services share that of `defaults`."""
    modes, resources = service.get("modes"), service.get("resources")
    if resources is None or (Modes() if modes is None else modes.read(Modes)).resources is not Mode.ENFORCE:
        return
    if id(resources.node) not in known:
        known[id(resources.node)] = _list_required(service), _list_given(service)
    least, given = known[id(resources.node)]
    for path in _HARD:
        for hard in service.select(*path):
            for resource, part in hard.fields().items():
                yield from stop_at_invalid(_check_limit(canonicalize(resource), part, least, given))


def _check_limit(name: str, part: DocumentPart, least: _Amounts, given: _Amounts) -> Iterator[Problem]:
    limit = part.read(Quantity).value
    if name in least and limit < least[name][0]:
        reason = f"less than the {least[name][1]} that each container must have: no Pod fits"
        yield part.report(reason, "raise it, or lower resources.container.min")
    elif name in given and limit < given[name][0]:
        reason = f"less than the {given[name][1]} that a Pod gets which asks for nothing: it never fits"
        yield part.report(reason, "raise it, or lower the defaults of resources.container")


def _list_required(service: DocumentPart) -> _Amounts:
    """Return the minimum of each container, as request and as limit."""
    return {
        f"{side}.{resource}": (part.read(Quantity).value, part.node.shown)
        for resource, part in select_amounts(service, "min").items()
        for side in ("requests", "limits")
    }


def _list_given(service: DocumentPart) -> _Amounts:
    """Return the amounts that a Pod of one container without requests gets."""
    return {
        f"{side}.{change.name}": (parse_quantity(change.text), change.text)
        for part in service.select("resources")
        for *_, plan in plan_containers(_POD_WITHOUT_REQUESTS, RangePlan.from_rules(part.read(ResourceRules)))
        for side, changes in (("requests", plan.requests), ("limits", plan.limits))
        for change in changes
        if isinstance(change.text, str)
    }
