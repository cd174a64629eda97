"""Cache of a policy's results for new Pods, by the fields that it reads: Pods of one controller mostly share them.

Rewrite, check and cost are functions of the service and of these fields alone. Why: docs/design/review-cost.md.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from webhook.core.admission.evaluation import Evaluation
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.kubernetes.pod import Pod
from webhook.core.placement import reads_field_managers
from webhook.core.policy.model import Service

_KEY_BYTES_MAX = 16 * 1024
_encode = msgspec.msgpack.Encoder().encode
_T = TypeVar("_T")


def encode_pod_key(pod: Pod, service: Service) -> bytes | None:
    """Return the fields that the service's policy reads of a new Pod, encoded; None if results are not cached.

    Encoding them costs much less than a rewrite, or than check and cost.
    """
    plan = service.placement_plan
    if plan is not None and pod.spec.priority_class_name and reads_field_managers(pod, plan):
        return None
    key = encode_template_key(pod)
    if key is not None and plan is not None and (plan.labels or plan.annotations):
        # Labels of a Namespace are in the plan by now, and differ between Namespaces.
        own = [pod.annotations.get(name) for name in plan.annotations]
        key += _encode((plan.labels, plan.annotations, own))
    return None if key is None or len(key) > _KEY_BYTES_MAX else key


def encode_template_key(pod: Pod) -> bytes | None:
    """Return the fields that policies read of a new Pod and that Pods of one controller mostly share, encoded."""
    metadata = pod.metadata
    annotations = metadata.annotations
    carried = annotations.get(HASH_ANNOTATION) if annotations else None
    try:
        return _encode((pod.spec, metadata.labels, annotations is None, carried, metadata.namespace))
    except OverflowError:  # MessagePack cannot encode all integers of JSON
        return None


def get_or_compute(evaluation: Evaluation, work: Callable[[Evaluation], _T], variant: object = None) -> _T:
    """Return `work(evaluation)`, which may read the service, the Pod's key, the policy's hash and `variant`."""
    results = evaluation.results
    if results is None:
        results = evaluation.results = _find_results(evaluation)
    found: _T | None = results.get((work, variant))
    if found is None:
        found = results[work, variant] = work(evaluation)
    return found


def _find_results(evaluation: Evaluation) -> dict[object, Any]:
    """Return the cached results for Pods of this kind, to add to; a new dictionary if they are not cached.

    A large Pod is evaluated in another thread, and only the event loop's thread uses the cache.
    """
    service = evaluation.owner
    if evaluation.is_large or evaluation.request.operation != "CREATE":
        return {}
    key = encode_pod_key(evaluation.pod, service)
    if key is None:
        return {}
    evaluation.pod_key = key
    return evaluation.compiled.pod_results[service.name, key]
