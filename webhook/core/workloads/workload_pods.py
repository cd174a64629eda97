"""Workload Pods: the simulated Pod of a workload object, decoded, with errors that name the template's fields."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from webhook.core.kubernetes.controllers import WorkloadKind
from webhook.core.kubernetes.label_constraints import UnresolvedLabels
from webhook.core.kubernetes.oversized_pod import reduce_template
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_identity import NAME_MAX, bound_identity, shorten
from webhook.core.kubernetes.pod_size import OversizedPod, measure_template
from webhook.core.workloads import simulate
from webhook.core.workloads.workload import Json, read_mapping

_TYPES = {str: "str", int: "int", float: "float", bool: "bool", list: "array"}


class PodTemplate(NamedTuple):
    """A Pod and its workload, as kubectl names it."""

    pod: Pod
    document: dict[str, Any]
    """The Pod with all its fields."""
    owner: str
    unresolved: UnresolvedLabels
    spec: Json
    """The spec of the object that makes the Pods: for a CronJob that of its Jobs."""
    excess: OversizedPod | None = None
    """With it the Pod has only the fields that identify its owner."""


def simulate_pod(
    document: Json,
    source: WorkloadKind,
    namespace: str,
    *,
    is_stored: bool,
    is_large: bool = False,
    excess: OversizedPod | None = None,
) -> PodTemplate | None:
    """Return the Pod of a workload object, None without a template. msgspec.ValidationError: a wrong type.

    `is_large`: the object may have so many parts that its template has to be measured. `excess`: it is reduced already.
    """
    template = _find_mapping(document, source.template_at, source)
    if template is None:
        return None
    if is_large and excess is None:
        excess = measure_template(template).excess
        template = template if excess is None else reduce_template(template)
    simulated = simulate(source, document, template, namespace, is_stored=is_stored)
    try:
        pod = bound_identity(Pod.from_document(simulated.document))
    except msgspec.ValidationError as error:
        at = ".".join(source.template_at)
        raise msgspec.ValidationError(str(error).replace("`$", f"`$.{at}")) from None
    owner, spec = f"{source.shown}/{format_name(document)}", _find_mapping(document, source.template_at[:-1], source)
    return PodTemplate(pod, simulated.document, owner, simulated.unresolved, spec or {}, excess)


def _find_mapping(document: Json, path: tuple[str, ...], source: WorkloadKind) -> Mapping[str, Any] | None:
    found = document
    for depth, key in enumerate(path, 1):
        inner = found.get(key)
        if inner is None:
            return None
        if not isinstance(inner, dict):
            at = ".".join(source.template_at[:depth])
            raise msgspec.ValidationError(f"Expected `object`, got `{_TYPES[type(inner)]}` - at `$.{at}`")
        found = inner
    return found


def format_name(document: Json) -> str:
    """Return the object's name for people, bounded; `PREFIX*` while a generated name is not known yet."""
    metadata = read_mapping(document.get("metadata"))
    return shorten(str(metadata.get("name") or f"{metadata.get('generateName') or ''}*"), NAME_MAX)
