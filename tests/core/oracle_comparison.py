"""Comparison of Podgate's code with the oracle: each difference is a defect of one of them."""

from tests.core import ranges_model
from tests.core.api_server import apply_defaults, find_owed_class, list_errors
from tests.core.oracle.minimal_patch import list_steps
from tests.core.oracle.nodes import Json
from tests.core.oracle.rewriting import find_faults
from tests.core.oracle.validating import UNFULFILLED, Named, find_expected
from tests.core.rewriting import apply_json_patch, decode_patch, decode_pod, patch_of, rewrite_pod, try_patch
from tests.core.strategies import HASH, OUR_ANNOTATION, OUR_LABEL, Pair
from webhook.core.admission.validation import check
from webhook.core.policy.model import Service


def find_problems(pair: Pair) -> list[str]:
    """Return every error in the rewrite and the findings of a Pod."""
    return [*find_differences(pair), *find_unneeded_operations(pair)]


def find_differences(pair: Pair) -> list[str]:
    """Return the same, but for operations that the patch does not need."""
    after = rewrite_pod(pair.pod, pair.service)
    second_patch = patch_of(after, pair.service)
    not_idempotent = [f"not idempotent: {second_patch}"] if second_patch else []
    return [*find_oracle_faults(pair, after), *find_disagreements(after, pair), *not_idempotent]


def find_oracle_faults(pair: Pair, after: Json) -> list[str]:
    """Return the faults that the oracle finds in a rewritten Pod."""
    return find_faults(pair.pod, after, pair.placement, "s", HASH, pair.policy.resources)


def find_unneeded_operations(pair: Pair) -> list[str]:
    """Return the operations that the patch does not need.

    Operations on containers are not checked: Podgate also writes requests that the API server would default. One that
    several tolerations of the Pod cover only together is needed: each is compared alone.
    """
    patch = decode_patch(patch_of(pair.pod, pair.service))
    found = []
    for left_out, rest in list_steps(patch, pair.pod, apply_json_patch(pair.pod, patch)):
        if left_out[0]["path"].startswith(("/spec/containers/", "/spec/initContainers/")):
            continue
        reduced = try_patch(pair.pod, rest)
        if reduced is None or find_oracle_faults(pair, reduced):
            continue
        must, may = find_expected(reduced, pair.placement, "s")
        if (UNFULFILLED, "spec.tolerations") not in must | may:
            found.append(f"not needed: {left_out}")
    return found


def find_findings(pod: Json, service: Service) -> set[Named]:
    return {(str(found.code), found.field) for found in check(decode_pod(pod), service, hash_known=True)}


def find_disagreements(pod: Json, pair: Pair) -> list[str]:
    """Return the differences between Podgate's findings about a Pod and those of the oracle."""
    found, (must, may) = find_findings(pod, pair.service), find_expected(pod, pair.placement, "s")
    if pair.policy.resources is not None:
        codes = {"user": "ResourcesOutside", "rewrite": "ResourcesUnfulfilled"}
        owed = ranges_model.find_owed(dict(pod), pair.policy.resources) | find_owed_class(
            dict(pod), pair.policy.resources
        )
        must |= {(codes[party], "") for party, *_ in owed}
        if list_errors(apply_defaults(dict(pod))):
            may |= {(codes["user"], "")}  # its QoS class is not defined
    missed = [f"not found: {code} {field}" for code, field in must if not _is_in(found, code, field)]
    return missed + [
        f"found: {code} {field}, expected {must}"
        for code, field in found
        if not any(code == expected_code and field.startswith(beginning) for expected_code, beginning in must | may)
    ]


def _is_in(found: set[Named], code: str, beginning: str) -> bool:
    return any(found_code == code and field.startswith(beginning) for found_code, field in found)


def mark(pod: Json) -> Json:
    """Return a Pod that only looks rewritten: label and annotation are there, and nothing else."""
    metadata = pod["metadata"]
    labels = {**(metadata.get("labels") or {}), OUR_LABEL: "s"}
    annotations = {**(metadata.get("annotations") or {}), OUR_ANNOTATION: HASH}
    return {**pod, "metadata": {**metadata, "labels": labels, "annotations": annotations}}
