"""AdmissionReview of a Pod or a workload: bytes decoded to a typed request, a decision encoded to bytes."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from webhook.core.admission.decision import Decision
from webhook.core.json_depth import UNREADABLE_JSON, BoundedDecoder
from webhook.core.kubernetes.admission_request import (
    BadReviewError,
    RawRequest,
    UserInfo,
    decode_object,
    decode_request,
    respond,
)
from webhook.core.kubernetes.api_groups import is_built_in
from webhook.core.kubernetes.controllers import BY_RESOURCE, find_owner_kind
from webhook.core.kubernetes.label_constraints import RESOLVED, UnresolvedLabels
from webhook.core.kubernetes.oversized_pod import Decoder, OversizedPodDecoder, reduce_object
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_identity import KIND_MAX, BoundedPod, BoundedPodDecoder, shorten
from webhook.core.kubernetes.pod_size import LARGE_BYTES, OversizedPod
from webhook.core.workloads.workload_pods import format_name, simulate_pod

# Requests whose object is a Pod. With other subresources of `pods` it is a Binding, an Eviction or a Scale.
_POD_REQUESTS = frozenset({("CREATE", ""), ("UPDATE", ""), ("UPDATE", "resize")})


class _PodResource(Struct, frozen=True, gc=False):
    resource: Literal["pods"]
    group: Literal[""] = ""
    version: str = ""
    """Not read, but checked, as the decoding in steps does."""


class _PodRequest(Struct, frozen=True, gc=False, rename="camel"):
    """RawRequest with the Pod decoded in the same pass over the body; the decoder checks that it is about one."""

    uid: Annotated[str, Meta(min_length=1)]
    operation: Literal["CREATE", "UPDATE"]
    resource: _PodResource
    sub_resource: Literal["", "resize"] = ""
    namespace: str = ""
    user_info: UserInfo = UserInfo()
    object: BoundedPod | None = None
    old_object: BoundedPod | None = None
    dry_run: bool = False


class _PodEnvelope(Struct, frozen=True, gc=False, rename="camel"):
    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: _PodRequest


class CustomMaker(Struct, frozen=True, gc=False):
    """An object of a kind that is not Kubernetes' own. The policy says which Pod templates it has."""

    group: str
    kind: str
    document: Mapping[str, Any]


class WorkloadRequest(Struct, frozen=True, gc=False):
    """A request about a workload object, whose Pods do not exist yet.

    `unresolved`: labels of its Pods whose value is not known yet, or differs between Pods. `kind`: of the workload that
    its Pods will belong to. `document`: a Pod of it with all fields. `spec`: that of the object that makes its Pods.
    `maker`: the object itself if its kind is not Kubernetes' own; the others are then known of a single template only.
    """

    name: str
    operation: str
    user: str
    unresolved: UnresolvedLabels = RESOLVED
    kind: str = ""
    document: Mapping[str, Any] = {}
    spec: Mapping[str, Any] = {}
    maker: CustomMaker | None = None


class Request(Struct, frozen=True, gc=False):
    """One request. `pod` and `old_pod` are decoded only if a decision reads them; their identities are bounded.

    For a `workload` it is the request that its controller would send later: CREATE of a Pod from its template.
    With `excess` the Pods hold only what says whose they are, and what Podgate guards.
    """

    uid: str
    operation: str
    resource: str
    sub_resource: str
    namespace: str
    user: str
    dry_run: bool
    pod: Pod | None
    old_pod: Pod | None
    workload: WorkloadRequest | None = None
    excess: OversizedPod | None = None

    @property
    def owner_kind(self) -> str | None:
        """The kind of a new Pod's workload, "" for none, None if it was not decoded."""
        if self.workload is not None:
            return self.workload.kind
        return None if self.pod is None else find_owner_kind(self.user, self.pod)


_pod_envelope = msgspec.json.Decoder(_PodEnvelope)
_any_object = BoundedDecoder(dict[str, Any])
_encoder = msgspec.json.Encoder()


def decode(body: bytes, excess: OversizedPod | None = None) -> Request:
    """Decode an AdmissionReview of a Pod or a workload. Raises BadReviewError."""
    return (_decode_in_one_pass(body) if excess is None else None) or _decode_in_steps(body, excess)


def _decode_in_one_pass(body: bytes) -> Request | None:
    """Decode the review of a Pod in one pass; None for anything else, for anything malformed, and for long names."""
    try:
        request = _pod_envelope.decode(body).request
    except UNREADABLE_JSON:
        return None
    if request.sub_resource and request.operation == "CREATE":
        return None
    return Request(
        request.uid,
        request.operation,
        "pods",
        request.sub_resource,
        request.namespace,
        request.user_info.username,
        dry_run=request.dry_run,
        pod=request.object,
        old_pod=request.old_object,
    )


def _decode_in_steps(body: bytes, excess: OversizedPod | None = None) -> Request:
    request = decode_request(body)
    template_request = _decode_template(request, is_large=len(body) > LARGE_BYTES)
    if template_request is not None:
        return template_request
    is_pod = request.resource.resource == "pods" and request.resource.group == ""
    has_pods = is_pod and (request.operation, request.sub_resource) in _POD_REQUESTS
    pods: Decoder[Pod] = BoundedPodDecoder() if excess is None else OversizedPodDecoder()
    return Request(
        uid=request.uid,
        operation=request.operation,
        resource="pods" if is_pod else f"{request.resource.resource}.{request.resource.group}",
        sub_resource=request.sub_resource,
        namespace=request.namespace,
        user=request.user_info.username,
        dry_run=bool(request.dry_run),
        pod=decode_object(request.object, pods, "object") if has_pods else None,
        old_pod=decode_object(request.old_object, pods, "oldObject") if has_pods else None,
        excess=excess if has_pods else None,
    )


def _decode_template(request: RawRequest, *, is_large: bool) -> Request | None:
    if request.operation not in {"CREATE", "UPDATE"} or request.sub_resource:
        return None
    source = BY_RESOURCE.get((request.resource.group, request.resource.resource))
    if source is None:
        return None if is_built_in(request.resource.group) else _decode_maker(request)
    raw, excess = request.object, None
    if is_large:
        raw, excess = reduce_object(raw, source.template_at)
    made_from = decode_object(raw, _any_object, "object")
    is_stored = not (request.dry_run and request.operation == "CREATE")
    try:
        made = simulate_pod(
            made_from or {}, source, request.namespace, is_stored=is_stored, is_large=is_large, excess=excess
        )
    except msgspec.ValidationError as error:
        raise BadReviewError(f"AdmissionReview.request.object: {error}") from None
    if made is None:
        return None
    return Request(
        uid=request.uid,
        operation="CREATE",
        resource="pods",
        sub_resource="",
        namespace=request.namespace,
        user=source.controller,
        dry_run=bool(request.dry_run),
        pod=made.pod,
        old_pod=None,
        workload=WorkloadRequest(
            made.owner,
            request.operation,
            request.user_info.username,
            made.unresolved,
            source.owner_kind,
            made.document,
            made.spec,
        ),
        excess=made.excess,
    )


def _decode_maker(request: RawRequest) -> Request | None:
    """Return the request about an object that may have Pod templates; None without an object."""
    document, group = decode_object(request.object, _any_object, "object"), request.resource.group
    if document is None:
        return None
    kind = shorten(str(document.get("kind") or ""), KIND_MAX)
    name = f"{kind.lower()}.{group}/{format_name(document)}"
    return Request(
        uid=request.uid,
        operation="CREATE",
        resource=f"{request.resource.resource}.{group}",
        sub_resource="",
        namespace=request.namespace,
        user=request.user_info.username,
        dry_run=bool(request.dry_run),
        pod=None,
        old_pod=None,
        workload=WorkloadRequest(
            name, request.operation, request.user_info.username, maker=CustomMaker(group, kind, document)
        ),
    )


def encode(decision: Decision) -> bytes:
    """Return the encoded AdmissionReview response."""
    patch = decision.patch
    return respond(
        decision.review_uid, decision.status, decision.warnings, decision.audit, patch.encoded if patch else None
    )
