"""Pods that already have Podgate's label and annotation, for examples of one change each."""

from typing import Any

from tests.core.generating.vocabulary import HASH, OUR_ANNOTATION, OUR_LABEL, REQUIRED, ZONE, Json
from tests.core.rewriting import decode_patch, patch_of
from tests.core.strategies import service_of

ZONES = [{"level": "Zone", "in": ["b", "g"]}]
IN_ZONES: Json = {"key": ZONE, "operator": "In", "values": ["b", "g"]}
TERMS = f"/spec/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms"


def pod(metadata: Json | None = None, **spec: Any) -> Json:
    marks = {"labels": {OUR_LABEL: "s"}, "annotations": {OUR_ANNOTATION: HASH}}
    return {"metadata": {**marks, **(metadata or {})}, "spec": spec}


def build_pod_with_terms(*terms: Json) -> Json:
    return pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}})


def build_required_affinity(*terms: Json) -> Json:
    """Return a placement's affinity of native required terms."""
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def list_operations(raw: Json, **placement: Any) -> list[dict[str, Any]]:
    return decode_patch(patch_of(raw, service_of(placement)))


def expression_term(key: str, operator: str = "Exists", *values: str) -> Json:
    """Return a term of one expression."""
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}
