"""Comparison of Podgate's code with the oracle: each difference is a defect of one of them."""

from tests.core import ranges_model
from tests.core.api_server import defaulted, errors, owed_class
from tests.core.oracle.minimal_patch import steps
from tests.core.oracle.nodes import Json
from tests.core.oracle.rewriting import faults
from tests.core.oracle.validating import UNFULFILLED, Named, expected
from tests.core.rewriting import applied, applied_or_none, patch_of, plain, read, rewritten
from tests.core.strategies import HASH, OUR_ANNOTATION, OUR_LABEL, Pair
from webhook.core.admission.validation import check
from webhook.core.policy.model import Service


def problems(pair: Pair) -> list[str]:
    """Return every error in the rewrite and the findings of a Pod."""
    return [*differences(pair), *unneeded_operations(pair)]


def differences(pair: Pair) -> list[str]:
    """Return the same, but for operations that the patch does not need."""
    after = rewritten(pair.pod, pair.service)
    second_patch = patch_of(after, pair.service)
    not_idempotent = [f"not idempotent: {second_patch}"] if second_patch else []
    return [*oracle_faults(pair, after), *disagreements(after, pair), *not_idempotent]


def oracle_faults(pair: Pair, after: Json) -> list[str]:
    """Return the faults that the oracle finds in a rewritten Pod."""
    return faults(pair.pod, after, pair.placement, "s", HASH, pair.policy.resources)


def unneeded_operations(pair: Pair) -> list[str]:
    """Return the operations that the patch does not need.

    Operations on containers are not checked: Podgate also writes requests that the API server would default. One that
    several tolerations of the Pod cover only together is needed: each is compared alone.
    """
    patch = plain(patch_of(pair.pod, pair.service))
    found = []
    for left_out, rest in steps(patch, pair.pod, applied(pair.pod, patch)):
        if left_out[0]["path"].startswith(("/spec/containers/", "/spec/initContainers/")):
            continue
        reduced = applied_or_none(pair.pod, rest)
        if reduced is None or oracle_faults(pair, reduced):
            continue
        must, may = expected(reduced, pair.placement, "s")
        if (UNFULFILLED, "spec.tolerations") not in must | may:
            found.append(f"not needed: {left_out}")
    return found


def findings(pod: Json, service: Service) -> set[Named]:
    return {(str(found.code), found.field) for found in check(read(pod), service, hash_known=True)}


def disagreements(pod: Json, pair: Pair) -> list[str]:
    """Return the differences between Podgate's findings about a Pod and those of the oracle."""
    found, (must, may) = findings(pod, pair.service), expected(pod, pair.placement, "s")
    if pair.policy.resources is not None:
        codes = {"user": "ResourcesOutside", "rewrite": "ResourcesUnfulfilled"}
        owed = ranges_model.owed(dict(pod), pair.policy.resources) | owed_class(dict(pod), pair.policy.resources)
        must |= {(codes[party], "") for party, *_ in owed}
        if errors(defaulted(dict(pod))):
            may |= {(codes["user"], "")}  # its QoS class is not defined
    missed = [f"not found: {code} {field}" for code, field in must if not _is_in(found, code, field)]
    return missed + [
        f"found: {code} {field}, expected {must}"
        for code, field in found
        if not any(code == one and field.startswith(beginning) for one, beginning in must | may)
    ]


def _is_in(found: set[Named], code: str, beginning: str) -> bool:
    return any(one == code and field.startswith(beginning) for one, field in found)


def marked(pod: Json) -> Json:
    """Return a Pod that only looks rewritten: label and annotation are there, and nothing else."""
    metadata = pod["metadata"]
    labels = {**(metadata.get("labels") or {}), OUR_LABEL: "s"}
    annotations = {**(metadata.get("annotations") or {}), OUR_ANNOTATION: HASH}
    return {**pod, "metadata": {**metadata, "labels": labels, "annotations": annotations}}
