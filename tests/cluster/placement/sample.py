"""A sample of generated pairs for one cluster: one policy with a service for each placement."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.core.generating.vocabulary import NAMESPACE, OUR_LABEL, SERVICE, THEIR_SCHEDULER
from tests.core.pairs import draw_accepted_pairs
from tests.core.resource_strategies import pod_resources, resource_rules
from webhook.core.document import Purpose, load
from webhook.core.document.yaml.problems import DocumentError

Json = dict[str, Any]
_OWNER_LABEL = "owner"
_DUPLICATES_FACTOR = 1.3
"""Factor for the duplicates that Hypothesis draws."""


@dataclass(frozen=True)
class Case:
    """One Pod, and the service that owns it with its stanzas."""

    service: str
    stanzas: Json
    pod: Json

    @property
    def name(self) -> str:
        return str(self.pod["metadata"]["name"])

    @property
    def placement(self) -> Json:
        placement_stanza: Json = self.stanzas.get("placement", {})
        return placement_stanza


def resource_cases(count: int) -> list[Case]:
    """Draw Pods and rules for their resources; return the cases whose rules are valid."""
    drawn: list[Case] = []

    @seed(1)
    @settings(max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(pod_resources(strict=True), resource_rules())
    def collect(spec: Json, rules: Json) -> None:
        name = f"r-{len(drawn)}"
        metadata = {"name": name, "namespace": NAMESPACE, "labels": {_OWNER_LABEL: name}}
        case = Case(name, {"resources": rules}, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        if _is_valid(case):
            drawn.append(case)

    collect()
    return drawn


def _is_valid(case: Case) -> bool:
    try:
        load(document([case]).encode(), Purpose.SERVE)
    except DocumentError:
        return False
    return True


def cases(count: int) -> list[Case]:
    """Return different pairs of a Pod and a placement."""
    pairs = draw_accepted_pairs(int(count * _DUPLICATES_FACTOR))
    distinct = {json.dumps([pair.pod, pair.placement], sort_keys=True): pair for pair in pairs}
    assert len(distinct) >= count, f"only {len(distinct)} pairs differ: draw more"
    services: dict[str, str] = {}
    drawn = []
    for number, pair in enumerate(list(distinct.values())[:count]):
        stanzas = {"placement": pair.placement}
        name = services.setdefault(json.dumps(stanzas, sort_keys=True), f"{SERVICE}-{len(services)}")
        drawn.append(Case(name, _rename(stanzas, name), _pod(_rename(pair.pod, name), name, number)))
    return drawn


def _pod(pod: Json, service: str, number: int) -> Json:
    metadata = {key: value for key, value in pod["metadata"].items() if key != "generateName"}
    labels = {**(metadata.get("labels") or {}), _OWNER_LABEL: service}
    return {**pod, "metadata": {**metadata, "name": f"p-{number}", "labels": labels}}


def _rename(value: Any, name: str) -> Any:
    """Replace the name of the service in labels and selectors."""
    if isinstance(value, list):
        return [_rename(element, name) for element in value]
    if not isinstance(value, dict):
        return value
    renamed = {key: _rename(element, name) for key, element in value.items()}
    if renamed.get(OUR_LABEL) == SERVICE:
        renamed[OUR_LABEL] = name
    if renamed.get("key") == OUR_LABEL and SERVICE in (renamed.get("values") or []):
        renamed["values"] = [name if value == SERVICE else value for value in renamed["values"]]
    return renamed


def document(cases_drawn: Iterable[Case]) -> str:
    """Return one policy with the services of all cases, as JSON, which is YAML."""
    services = {
        case.service: {
            "name": case.service,
            "match": {"namespaces": [NAMESPACE], "podSelector": {"matchLabels": {_OWNER_LABEL: case.service}}},
            "failureMode": "Closed",
            **case.stanzas,
        }
        for case in cases_drawn
    }
    return json.dumps({"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "services": list(services.values())})


def move_to_namespace(pod: Json, namespace: str) -> Json:
    """Return the Pod with another namespace."""
    return {**pod, "metadata": {**pod["metadata"], "namespace": namespace}}


def is_for_a_scheduler_here(pod: Json) -> bool:
    return bool(pod["spec"]["schedulerName"] != THEIR_SCHEDULER)
