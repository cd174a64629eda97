"""Whose Pod is it? First matching service of the list, like a firewall; and who is left alone."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from webhook.core.kubernetes import LabelSelector, Requirement
from webhook.core.patterns import any_fits
from webhook.core.pod import MIRROR_ANNOTATION, Pod
from webhook.core.policy import BUILT_IN_EXEMPT_NAMESPACES, Match, Policy, Service
from webhook.core.review import Request
from webhook.core.unsettled import SETTLED, Unsettled, UnsettledLabels

EXEMPTIONS = ("namespace", "username", "runtimeClass", "daemonSet", "mirror")
"""Why Pods are left alone."""
DAEMON_SET_CONTROLLER = "system:serviceaccount:kube-system:daemon-set-controller"
NAME_LABEL = "kubernetes.io/metadata.name"
"""Every namespace has its name as a label: the API server writes it."""
_NAMESPACES_REMEMBERED = 10_000


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Judge one expression as Kubernetes does: NotIn and DoesNotExist hold where the key is absent."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in (requirement.values or ())
        case "NotIn":
            return value is None or value not in (requirement.values or ())
        case "Exists":
            return value is not None
        case _:
            return value is None


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return whether all of a selector holds; none, and an empty one, select everything."""
    if selector is None:
        return True
    return all(labels.get(key) == value for key, value in (selector.match_labels or {}).items()) and all(
        holds(requirement, labels) for requirement in selector.match_expressions or ()
    )


def depends_on(
    selector: LabelSelector | None, labels: Mapping[str, str], unsettled: UnsettledLabels
) -> tuple[str, ...] | None:
    """Return the labels that decide whether a selector holds: () where it holds in any case, None where in none.

    Each expression is judged alone: two that ask for one label, or for labels that go together, may depend on them
    where together they never hold.
    """
    deciding: list[str] = []
    for requirement in _requirements(selector):
        value = unsettled.get(requirement.key)
        found = holds(requirement, labels) if value is None else _holds_unsettled(requirement, value)
        if found is False:
            return None
        if found is None:
            deciding.append(requirement.key)
    return tuple(dict.fromkeys(deciding))


def _requirements(selector: LabelSelector | None) -> Iterator[Requirement]:
    if selector is not None:
        for key, value in (selector.match_labels or {}).items():
            yield Requirement(key, "In", (value,))
        yield from selector.match_expressions or ()


def _holds_unsettled(requirement: Requirement, value: Unsettled) -> bool | None:
    match requirement.operator:
        case "In":
            return value.among(requirement.values or ())
        case "NotIn":
            found = value.among(requirement.values or ())
            return None if found is None else not found
        case operator:
            return operator == "Exists"


def _may_own(match: Match, namespace: str) -> bool:
    """Judge the part of a match that a namespace's name decides alone."""
    return not match.namespaces or any_fits(match.namespaces, namespace)


def _selects_by_name(match: Match, namespace: str) -> bool | None:
    """Judge a namespaceSelector by the namespace's name alone; None where it reads other labels."""
    selector = match.namespace_selector
    if selector is None:
        return True
    keys = {*(selector.match_labels or ()), *(one.key for one in selector.match_expressions or ())}
    return selects(selector, {NAME_LABEL: namespace}) if keys <= {NAME_LABEL} else None


class PossibleOwner(NamedTuple):
    """A service that owns Pods of a workload, or None, and the labels that decide it: () for the last resort."""

    service: Service | None
    labels: tuple[str, ...] = ()


class Matcher:
    """A policy's matching, with the services that a namespace's name leaves in the race remembered."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._by_namespace: dict[str, tuple[Service, ...]] = {}

    def candidates(self, namespace: str) -> tuple[Service, ...]:
        """Return, in order, the services that may own Pods of a namespace, by its name."""
        known = self._by_namespace.get(namespace)
        if known is None:
            if len(self._by_namespace) >= _NAMESPACES_REMEMBERED:
                self._by_namespace.clear()
            known = tuple(service for service in self._policy.services if _may_own(service.match, namespace))
            self._by_namespace[namespace] = known
        return known

    def needs_labels(self, namespace: str) -> bool:
        """Return whether a namespace's name alone does not say who may own its Pods."""
        return any(service.match.namespace_selector is not None for service in self.candidates(namespace))

    def labels_decide(
        self,
        namespace: str,
        labels: Mapping[str, str],
        *,
        to_be_named: bool,
        unsettled: UnsettledLabels = SETTLED,
    ) -> bool:
        """Return whether the owner of a Pod with these labels depends on labels of its namespace.

        `to_be_named`: where nobody owns it, whether some service names the namespace counts too.
        """
        if not self.needs_labels(namespace):
            return False
        candidates = self.candidates(namespace)
        for service in candidates:
            selected = _selects_by_name(service.match, namespace)
            deciding = depends_on(service.match.pod_selector, labels, unsettled)
            if selected is not False and deciding is not None and (selected is None or not deciding):
                return selected is None
        named = {_selects_by_name(one.match, namespace) for one in candidates if not one.match.any_namespace}
        return to_be_named and True not in named and None in named

    def owner(
        self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str] | None
    ) -> Service | None:
        """Return the first service whose every part of `match` holds; without `labels` any podSelector does."""
        for service in self.candidates(namespace):
            match = service.match
            if selects(match.namespace_selector, namespace_labels) and (
                labels is None or selects(match.pod_selector, labels)
            ):
                return service
        return None

    def possible_owners(
        self,
        namespace: str,
        namespace_labels: Mapping[str, str],
        labels: Mapping[str, str],
        unsettled: UnsettledLabels,
    ) -> tuple[PossibleOwner, ...]:
        """Return, in order, every service that may turn out to be the first that matches; one where that is settled."""
        found = []
        for service in self.candidates(namespace):
            if not selects(service.match.namespace_selector, namespace_labels):
                continue
            deciding = depends_on(service.match.pod_selector, labels, unsettled)
            if deciding is None:
                continue
            found.append(PossibleOwner(service, deciding))
            if not deciding:
                return tuple(found)
        return (*found, PossibleOwner(None))

    def may_own(self, service: Service, namespace: str, namespace_labels: Mapping[str, str]) -> bool:
        """Return whether a namespace, by name and labels, is one where `service` owns Pods."""
        return service in self.candidates(namespace) and selects(service.match.namespace_selector, namespace_labels)

    def names(self, namespace: str, namespace_labels: Mapping[str, str]) -> bool:
        """Return whether some service speaks of this namespace by name or selector."""
        return any(
            not service.match.any_namespace and selects(service.match.namespace_selector, namespace_labels)
            for service in self.candidates(namespace)
        )


def is_exempt_namespace(namespace: str, policy: Policy) -> bool:
    return namespace in BUILT_IN_EXEMPT_NAMESPACES or any_fits(policy.exemptions.namespaces, namespace)


def is_exempt_runtime_class(pod: Pod, policy: Policy) -> bool:
    return bool(pod.spec.runtime_class_name) and pod.spec.runtime_class_name in policy.exemptions.runtime_classes


def exemption(request: Request, pod: Pod, policy: Policy) -> str:
    """Return why a Pod is left alone, "" where it is not. Of what tenants write, only runtime classes count."""
    exempt = policy.exemptions
    if is_exempt_namespace(request.namespace, policy):
        return "namespace"
    if request.user in exempt.usernames:
        return "username"
    if is_exempt_runtime_class(pod, policy):
        return "runtimeClass"
    if exempt.daemon_sets and request.user == DAEMON_SET_CONTROLLER:
        return "daemonSet"
    # A tenant can write the annotation too: only the kubelet's own word makes a mirror Pod.
    if MIRROR_ANNOTATION in pod.annotations and request.user.startswith("system:node:"):
        return "mirror"
    return ""
