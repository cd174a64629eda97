"""Teams: the values of a label of Namespaces that count apart. A Pod is of its Namespace's team when it is charged."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from webhook.core.policy.model import Policy
from webhook.core.policy.teams import get_overflow_key
from webhook.core.policy_fields import PerLabel, Quota

UNLABELLED = "(none)"
"""Team of all Namespaces without the label, or with an empty one. No value of a label has parentheses."""
OTHERS = "(others)"
"""Team of the values beyond `maxValues`."""


class ScopedPod(Protocol):
    """A Pod with what may decide its counters. `team`: of its Namespace, as `find_team` names it."""

    @property
    def namespace(self) -> str: ...

    @property
    def team(self) -> str: ...


def find_team(quota: Quota | None, namespace_labels: Mapping[str, str]) -> str:
    """Return the team of a Namespace under a quota; "" unless teams count apart."""
    if quota is None or not isinstance(quota.per, PerLabel):
        return ""
    key = quota.per.namespace_label
    if get_overflow_key(key) in namespace_labels:
        return OTHERS
    return namespace_labels.get(key) or UNLABELLED


def list_team_limits(policy: Policy) -> dict[str, int]:
    """Return how many values of each label count apart: the least of those that services write for it."""
    limits: dict[str, int] = {}
    for service in policy.services:
        if service.quota is not None and isinstance(service.quota.per, PerLabel):
            key = service.quota.per.namespace_label
            limits[key] = min(service.quota.per.max_values, limits.get(key, service.quota.per.max_values))
    return limits


def mark_overflow(labels: Mapping[str, Mapping[str, str]], limits: Mapping[str, int]) -> dict[str, Mapping[str, str]]:
    """Return the labels of those Namespaces whose value is beyond the limit, with a mark. Order is that of the values.

    All servers see the same Namespaces, so they agree.
    """
    marked: dict[str, Mapping[str, str]] = {}
    for key, most in limits.items():
        beyond = frozenset(_list_values(labels.values(), key)[most:])
        for namespace, own in labels.items() if beyond else ():
            if own.get(key) in beyond:
                marked[namespace] = {**marked.get(namespace, own), get_overflow_key(key): ""}
    return marked


def describe_team(key: str, team: str) -> str:
    """Return a team for people: KEY=VALUE."""
    if team == UNLABELLED:
        return f"no {key}"
    return f"other values of {key}" if team == OTHERS else f"{key}={team}"


def describe_own_team(quota: Quota | None, team: str) -> str:
    """Return the team that a Pod counts for under its quota, for people."""
    key = quota.per.namespace_label if quota is not None and isinstance(quota.per, PerLabel) else ""
    return describe_team(key, team)


def _list_values(labels: Iterable[Mapping[str, str]], key: str) -> list[str]:
    return sorted({value for own in labels if (value := own.get(key))})
