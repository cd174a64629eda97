"""AdmissionReviews: each answer is JSON with the uid sent, and a patch applies, is stable and passes checks."""

import asyncio
import base64
import json
from collections.abc import Coroutine
from typing import Any

import jsonpatch
import msgspec

from tests.core.reviewing import NOW_US, REPLICA_SETS, envelope, pod
from tests.fuzz.catalogue import Form
from tests.fuzz.oracles import check_message, read_json
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.memory_store import MemoryStore
from webhook.core.admission.decision import Half
from webhook.core.document import Purpose, load
from webhook.core.json_depth import make_readable
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.interceptor import Answer, Interceptor, UnknownNamespaceError
from webhook.observers import Observers

FORM = Form.JSON
WORDS = (
    *(
        "spec",
        "metadata",
        "labels",
        "annotations",
        "tolerations",
        "affinity",
        "nodeSelector",
        "topologySpreadConstraints",
    ),
    *(
        "containers",
        "initContainers",
        "resources",
        "requests",
        "limits",
        "cpu",
        "memory",
        "100m",
        "1Gi",
        "schedulingGates",
    ),
    *(
        "podgate.io/service",
        "podgate.io/policy-hash",
        "podgate.io/quota",
        "ownerReferences",
        "controller",
        "ReplicaSet",
    ),
    *(
        "nodeName",
        "schedulerName",
        "priorityClassName",
        "web",
        "app",
        "UPDATE",
        "DELETE",
        "resize",
        "deployments",
        "apps",
    ),
    *(
        "template",
        "selector",
        "jobs",
        "batch",
        "cronjobs",
        "kube-system",
        "dryRun",
        "restartPolicy",
        "Always",
        REPLICA_SETS,
    ),
)
_POLICY = """
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  placement:
    schedulerName: podgate-scheduler
    nodeSelector: {disk: ssd}
    labels: {tier: front}
    annotations: {podgate.example/team: shop}
    topology: [{level: Zone, in: [z1, z2]}]
    tolerations: [{key: dedicated, operator: Equal, value: web, effect: NoSchedule}]
  resources:
    container:
      min: {cpu: 10m}
      max: {cpu: "4", memory: 8Gi}
      default: {memory: 512Mi}
      defaultRequest: {cpu: 100m, memory: 128Mi}
  quota: {windows: [{window: 1m, hard: {pods: 50, requests.cpu: "40"}}]}
  breaker: {quotaExceeded: {count: 10, within: 1m}, openFor: 180s}
- name: rest
  match: {namespaces: [shop, "shop-*"]}
  quota: {standing: {hard: {pods: 100}}}
"""
_WORKLOADS = (("apps", "deployments", "Deployment"), ("apps", "statefulsets", "StatefulSet"), ("batch", "jobs", "Job"))
_loaded = load(_POLICY.encode(), Purpose.SERVE).policy
_clock = VirtualClock(NOW_US)
_interceptor = Interceptor(
    FixedPolicy(_loaded, _clock), MemoryStore(_clock), FixedNamespaces({"shop": {}}), Observers()
)
_loop = asyncio.new_event_loop()


def list_seeds() -> list[bytes]:
    web = pod({"app": "web"})
    full = pod(
        {"app": "web"},
        {"a": "b"},
        nodeSelector={"x": "y"},
        tolerations=[{"key": "dedicated", "operator": "Exists"}],
        initContainers=[{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z1"]}]}]
                }
            }
        },
    )
    owned = pod({"app": "web", "podgate.io/service": "web"}, {"podgate.io/policy-hash": _loaded.hash}, "u-1")
    reviews = [
        envelope(object=web),
        envelope(object=full, userInfo={"username": REPLICA_SETS}),
        envelope(object=owned),
        envelope(object=owned, oldObject=owned, operation="UPDATE"),
        envelope(object=owned, oldObject=owned, operation="UPDATE", subResource="resize"),
        envelope(operation="DELETE", object=None, oldObject=owned),
        envelope(object=pod(), namespace="nowhere"),
        envelope(object=pod(nodeName="n1"), dryRun=True),
    ]
    for group, resource, kind in _WORKLOADS:
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {**web, "kind": "PodTemplate"}}
        workload = {
            "apiVersion": f"{group}/v1",
            "kind": kind,
            "metadata": {"name": "w", "namespace": "shop"},
            "spec": spec,
        }
        of = {"resource": {"group": group, "version": "v1", "resource": resource}}
        reviews.append(envelope(object=workload, kind={"group": group, "version": "v1", "kind": kind}, **of))
    return [msgspec.json.encode(review) for review in reviews]


def check(data: bytes) -> None:
    response = _ask(Half.MUTATE, data)
    if response is not None:
        assert response["allowed"] is True, "only the validating half denies"
        patched = _apply(data, response)
        if patched is not None:
            again = _ask(Half.MUTATE, patched)
            assert again is not None
            assert "patch" not in again, again
            _check_validation(data, patched)
    response = _ask(Half.VALIDATE, data)
    assert response is None or "patch" not in response


def _ask(half: Half, data: bytes) -> Any:
    """Return the response, of a store that has counted nothing; None if the review is refused."""
    _interceptor._store = MemoryStore(_clock)
    try:
        answer = _run(_interceptor.review(half, data))
    except (BadReviewError, UnknownNamespaceError) as error:
        check_message(str(error))
        return None
    document = json.loads(answer.body)
    assert (document["apiVersion"], document["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = document["response"]
    assert response["uid"] == read_json(make_readable(data))["request"]["uid"]
    assert isinstance(response["allowed"], bool)
    assert ("patch" in response) == ("patchType" in response)
    if not response["allowed"]:
        assert 400 <= response["status"]["code"] < 600
        check_message(response["status"]["message"])
    for warning in response.get("warnings", ()):
        check_message(warning)
    return response


def _run(review: Coroutine[Any, Any, Answer]) -> Answer:
    return _loop.run_until_complete(review)


def _apply(data: bytes, response: Any) -> bytes | None:
    """Return the review with the patch applied by an independent library; None without one."""
    if "patch" not in response:
        return None
    patch = json.loads(base64.b64decode(response["patch"], validate=True))
    assert response["patchType"] == "JSONPatch"
    review = read_json(make_readable(data))
    # In place: a copy of a deeply nested Pod would exceed Python's recursion limit.
    review["request"]["object"] = jsonpatch.apply_patch(review["request"]["object"], patch, in_place=True)
    return _encode(review)


def _encode(review: Any) -> bytes:
    """Return a review with the bytes of texts that are no UTF-8, in fields that nobody reads, as they were."""
    return json.dumps(review, ensure_ascii=False).encode("utf-8", "surrogateescape")


def _check_validation(data: bytes, patched: bytes) -> None:
    """Demand that the validating half does not miss what the mutating one has written.

    It reads more of a Pod, such as all amounts, and may refuse what the mutating half has not read.
    """
    review = read_json(patched)
    metadata = review["request"]["object"]["metadata"]
    metadata["uid"] = metadata.get("uid") or "u-2"  # the API server gives one between the halves
    response = _ask(Half.VALIDATE, _encode(review))
    if response is None:
        assert _ask(Half.VALIDATE, data) is None, "the patch made the Pod unreadable"
        return
    assert "MutationMissing" not in response.get("status", {}).get("message", "")
