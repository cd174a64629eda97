"""A sample of generated pairs, made fit for one cluster: each policy a service of one document, its Pods by a label."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.core.generating.vocabulary import NAMESPACE, OUR_LABEL, SERVICE, THEIR_SCHEDULER
from tests.core.pairs import accepted
from tests.core.resource_strategies import pod_resources, resource_rules
from webhook.core.document import Purpose, load
from webhook.core.document.yaml.problems import DocumentError

Json = dict[str, Any]
_OWNER_LABEL = "owner"
_DRAWN_MORE = 1.3
"""Hypothesis likes to draw what it has drawn before."""


@dataclass(frozen=True)
class Case:
    """One Pod, and the service that owns it: by its name, and as the document says it."""

    service: str
    stanzas: Json
    pod: Json

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def placement(self) -> Json:
        found: Json = self.stanzas.get("placement", {})
        return found


def resource_cases(count: int) -> list[Case]:
    """Draw that many Pods under rules for their resources; return those whose rules a policy may have."""
    found: list[Case] = []

    @seed(1)
    @settings(max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(pod_resources(strict=True), resource_rules())
    def collect(spec: Json, rules: Json) -> None:
        name = f"r-{len(found)}"
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {_OWNER_LABEL: name}}
        case = Case(name, {"resources": rules}, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        if _is_good(case):
            found.append(case)

    collect()
    return found


def _is_good(case: Case) -> bool:
    try:
        load(document([case]).encode(), Purpose.SERVE)
    except DocumentError:
        return False
    return True


def cases(count: int) -> list[Case]:
    """Return that many Pods under placements, no two pairs the same."""
    pairs = accepted(int(count * _DRAWN_MORE))
    different = {json.dumps([pair.pod, pair.placement], sort_keys=True): pair for pair in pairs}
    assert len(different) >= count, f"only {len(different)} pairs differ: draw more"
    services: dict[str, str] = {}
    found = []
    for number, pair in enumerate(list(different.values())[:count]):
        stanzas = {"placement": pair.placement}
        name = services.setdefault(json.dumps(stanzas, sort_keys=True), f"{SERVICE}-{len(services)}")
        found.append(Case(name, _renamed(stanzas, name), _pod(_renamed(pair.pod, name), name, number)))
    return found


def _pod(pod: Json, service: str, number: int) -> Json:
    metadata = {key: value for key, value in pod["metadata"].items() if key != "generateName"}
    labels = {**(metadata.get("labels") or {}), _OWNER_LABEL: service}
    return {**pod, "metadata": {**metadata, "name": f"p-{number}", "labels": labels}}


def _renamed(value: Any, name: str) -> Any:
    """Give the service its name here wherever a label or a selector says it."""
    if isinstance(value, list):
        return [_renamed(one, name) for one in value]
    if not isinstance(value, dict):
        return value
    found = {key: _renamed(one, name) for key, one in value.items()}
    if found.get(OUR_LABEL) == SERVICE:
        found[OUR_LABEL] = name
    if found.get("key") == OUR_LABEL and SERVICE in (found.get("values") or []):
        found["values"] = [name if one == SERVICE else one for one in found["values"]]
    return found


def document(found: Iterable[Case]) -> str:
    """Return one policy that has the services of all cases; JSON is YAML."""
    services = {
        case.service: {
            "name": case.service,
            "match": {"namespaces": [NAMESPACE], "podSelector": {"matchLabels": {_OWNER_LABEL: case.service}}},
            "failureMode": "Closed",
            **case.stanzas,
        }
        for case in found
    }
    return json.dumps({"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "services": list(services.values())})


def elsewhere(pod: Json, namespace: str) -> Json:
    """Return the Pod as it would be made in another namespace."""
    return {**pod, "metadata": {**pod["metadata"], "namespace": namespace}}


def is_for_a_scheduler_here(pod: Json) -> bool:
    return bool(pod["spec"]["schedulerName"] != THEIR_SCHEDULER)
