"""Simulation of kube-apiserver's webhook calls: the reviews that it sends, and the Pod that it stores.

Reviews as observed from kube-apiserver 1.36: the mutating call has neither uid nor generated name, the validating call
has both; every call has its own uid; `dryRun` is always present.
"""

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from webhook.core.admission.decision import Decision, Half
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.kubernetes.controllers import WorkloadKind
from webhook.core.patch import PatchOperation, apply
from webhook.core.placement import VARIANT_LABEL
from webhook.core.shares import SLOT_ANNOTATIONS
from webhook.errors import UserError
from webhook.interceptor import Answer

USER = "kubernetes-admin"
"""The default user."""

_SERVICE_ACCOUNT = "system:serviceaccount:"
_CONTROLLERS = f"{_SERVICE_ACCOUNT}kube-system:"
GENERATED_SUFFIX = "x7k2p"
_OBJECT = "AdmissionReview.request.object"
_OLD_OBJECT = "AdmissionReview.request.oldObject"
_operations = msgspec.json.Decoder(tuple[PatchOperation, ...])


@dataclass(frozen=True, slots=True)
class Ask:
    """One request for one Pod."""

    pod: Mapping[str, Any]
    namespace: str
    uid: str
    user: str = USER
    operation: str = "CREATE"
    sub_resource: str = ""
    dry_run: bool = False
    old_pod: Mapping[str, Any] | None = None
    groups: tuple[str, ...] = ()
    """Groups of the user, besides those that the API server adds for every user."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The result of a request: both decisions, and the Pod as it would be stored."""

    mutated: Decision
    validated: Decision
    pod: dict[str, Any] = field(default_factory=dict)


def build_admission_review(ask: Ask, pod: Mapping[str, Any], half: Half) -> dict[str, Any]:
    """Return the AdmissionReview that the API server would send to one half about `pod`."""
    metadata = pod.get("metadata", {})
    name = metadata.get("name")
    request: dict[str, Any] = {
        "uid": str(uuid.uuid4()),
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "requestResource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": ask.namespace,
        "operation": ask.operation,
        "userInfo": {"username": ask.user, "groups": _list_groups(ask)},
        "object": pod,
        "oldObject": ask.old_pod,
        "dryRun": ask.dry_run,
        "options": {"kind": f"{ask.operation.capitalize()}Options", "apiVersion": "meta.k8s.io/v1"},
    }
    if isinstance(name, str) and name and not (half is Half.MUTATE and metadata.get("generateName")):
        request["name"] = name
    if ask.sub_resource:
        request["subResource"] = request["requestSubResource"] = ask.sub_resource
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def _list_groups(ask: Ask) -> list[str]:
    """Return the user's groups, as impersonation sets them."""
    own = ask.groups
    if not own and ask.user.startswith(_SERVICE_ACCOUNT):
        own = ("system:serviceaccounts", f"system:serviceaccounts:{ask.user.split(':')[2]}")
    return list(dict.fromkeys((*own, "system:authenticated")))


def build_workload_review(workload: Mapping[str, Any], source: WorkloadKind, namespace: str) -> dict[str, Any]:
    """Return the AdmissionReview that the API server would send about a workload object in a dry run of its CREATE."""
    resource = {"group": source.group, "version": "v1", "resource": source.resource}
    request = {
        "uid": str(uuid.uuid4()),
        "resource": resource,
        "namespace": namespace,
        "operation": "CREATE",
        "userInfo": {"username": USER, "groups": ["system:authenticated"]},
        "object": workload,
        "dryRun": True,
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def prepare_for_mutate(ask: Ask) -> dict[str, Any]:
    """Return the Pod as in the mutating call."""
    pod = _copy(ask.pod)
    given = pod.get("metadata")
    if given is not None and not isinstance(given, dict):
        raise BadReviewError(f"{_OBJECT}.metadata: {given!r}: not an object")
    metadata = pod["metadata"] = {**(given or {}), "namespace": ask.namespace}
    if ask.operation == "CREATE":
        metadata.pop("uid", None)
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict) and HASH_ANNOTATION in annotations and ask.user.startswith(_CONTROLLERS):
            _remove_slot(metadata)
        if _was_bound(pod):
            pod["spec"].pop("nodeName", None)
    return pod


def _remove_slot(metadata: dict[str, Any]) -> None:
    """Remove the slot of a Pod from a cluster or a record: its controller asks for the Pod without one."""
    for name, own in (("labels", (VARIANT_LABEL,)), ("annotations", SLOT_ANNOTATIONS)):
        given = metadata.get(name)
        if isinstance(given, dict):
            metadata[name] = {key: value for key, value in given.items() if key not in own}


def _was_bound(pod: Mapping[str, Any]) -> bool:
    """Return whether a Pod was exported from a cluster: its node was then chosen by the scheduler."""
    spec, status = pod.get("spec"), pod.get("status")
    return isinstance(spec, dict) and isinstance(status, dict) and bool(status.get("phase"))


def prepare_for_validate(ask: Ask, pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Pod as in the validating call: with its uid, and the generated name."""
    metadata = {**pod["metadata"], "uid": ask.uid}
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = metadata["generateName"] + GENERATED_SUFFIX
    return {**pod, "metadata": metadata}


def set_priority(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a Pod as after the Priority admission plugin: a priority class gets 0, as its real value is unknown."""
    spec = pod.get("spec")
    if not isinstance(spec, dict) or not spec.get("priorityClassName") or spec.get("priority") is not None:
        return pod
    return {**pod, "spec": {**spec, "priority": 0}}


def record_creator(pod: Mapping[str, Any], before: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a Pod with managedFields for the labels that its creator wrote, if Podgate has written one of a variant.

    The API server records all fields; the others are left out here.
    """
    metadata = pod["metadata"]
    labels = metadata.get("labels")
    if metadata.get("managedFields") or not isinstance(labels, dict) or VARIANT_LABEL not in labels:
        return pod
    own = (before.get("metadata") or {}).get("labels") or {}
    fields: dict[str, Any] = {"f:metadata": {"f:labels": {f"f:{key}": {} for key in own}}}
    written = {"manager": "creator", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields}
    return {**pod, "metadata": {**metadata, "managedFields": [written]}}


def format_error(error: BadReviewError) -> str:
    """Return the error with paths in the Pod instead of the AdmissionReview."""
    return (
        str(error).replace(f"{_OBJECT}:", "pod:").replace(f"{_OBJECT}.", "pod.").replace(f"{_OLD_OBJECT}:", "oldPod:")
    )


def apply_patch(pod: Mapping[str, Any], response: Mapping[str, Any]) -> dict[str, Any]:
    """Return `pod` with the patch of an AdmissionReview's response applied."""
    encoded = response.get("patch")
    if encoded is None:
        return dict(pod)
    result = _copy(pod)
    apply(_operations.decode(base64.b64decode(encoded)), result)
    return result


def _copy(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy that shares nothing; for JSON this is much faster than `copy.deepcopy`."""
    copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(pod))
    return copied


class ReviewServerError(UserError):
    """The server answers no reviews at all: further reviews would fail as well."""


class Reviewer(Protocol):
    """Reviews AdmissionReviews: the interceptor in this process, or a server."""

    async def review(self, half: Half, body: bytes, /) -> Answer: ...


async def admit(interceptor: Reviewer, ask: Ask) -> Admission:
    """Call both halves in turn, as the API server does."""
    try:
        return await _call_halves(interceptor, ask)
    except RecursionError:
        raise BadReviewError(f"{_OBJECT}: nested too deeply") from None


async def _call_halves(interceptor: Reviewer, ask: Ask) -> Admission:
    before = prepare_for_mutate(ask)
    mutated = await _call(interceptor, Half.MUTATE, build_admission_review(ask, before, Half.MUTATE))
    response = msgspec.json.decode(mutated.body)["response"]
    after = prepare_for_validate(ask, apply_patch(before, response))
    sent = record_creator(set_priority(after), before)
    validated = await _call(interceptor, Half.VALIDATE, build_admission_review(ask, sent, Half.VALIDATE))
    return Admission(mutated.decision, validated.decision, after)


async def _call(interceptor: Reviewer, half: Half, review: Mapping[str, Any]) -> Answer:
    return await interceptor.review(half, msgspec.json.encode(review))
