"""The identity of a Pod in a review is bounded: Kubernetes validates it after the mutating webhooks, or not at all."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.reviewing import REPLICA_SETS, Gate, body, pod, policy_of
from tests.core.strategies import PROPERTY, Json
from webhook.core.admission.charging import build_acquire, event_source
from webhook.core.admission.decision import Half
from webhook.core.admission.evaluation import Evaluation
from webhook.core.admission.review import decode
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.controllers import find_controller_source
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_identity import NAME_MAX, UID_MAX, shorten
from webhook.core.kubernetes.pod_size import measure
from webhook.core.pods.start_outcome import find_replacing_source

LONG = "n" * 5_000
WEB = policy_of("- name: web\n  match: {namespaces: [shop]}\n  quota: {windows: [{window: 1m, hard: {pods: 9}}]}")
CUSTOM = policy_of(
    "- {name: web, match: {namespaces: [shop]}}\n",
    "workloads: [{apiGroup: example.com, kind: Farm, templates: [spec.template]}]",
)


def identify(**metadata: Any) -> Json:
    document = pod()
    document["metadata"] |= metadata
    return document


def own(**fields: Any) -> Json:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u-1", "controller": True}
    return {"ownerReferences": [owner | fields]}


def list_identity(found: Pod | None) -> list[str]:
    """Return the texts that identify a Pod."""
    assert found is not None
    metadata = found.metadata
    owners = [(owner.api_version, owner.kind, owner.name, owner.uid) for owner in metadata.owner_references or ()]
    return [metadata.name, metadata.generate_name, metadata.uid, *(text for owner in owners for text in owner)]


@pytest.mark.parametrize(
    "metadata",
    [
        {"name": LONG},
        {"generateName": LONG},
        {"uid": LONG},
        own(apiVersion=LONG),
        own(kind=LONG),
        own(name=LONG),
        own(uid=LONG),
    ],
    ids=["name", "generateName", "uid", "owner-apiVersion", "owner-kind", "owner-name", "owner-uid"],
)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_long_text_is_shortened_and_the_others_stay(metadata: Json, operation: str) -> None:
    short = {"name": "web-a", "generateName": "web-", "uid": "u", **own()}
    usual = list_identity(decode(body(object=identify(**short))).pod)
    sent = identify(**{**short, **metadata})
    request = decode(body(object=sent, oldObject=sent if operation == "UPDATE" else None, operation=operation))
    found = list_identity(request.pod)
    assert all(len(text) <= 253 + 1 + 63 for text in found)
    assert sum(before != after for before, after in zip(usual, found, strict=True)) == 1
    if operation == "UPDATE":
        assert list_identity(request.old_pod) == found


def test_oversized_pod_is_bounded_as_well() -> None:
    document = identify(name=LONG, labels={f"label-{number}": "x" for number in range(21_000)})
    sent = body(object=document)
    size = measure(sent)
    assert size.excess is not None
    assert max(map(len, list_identity(decode(sent, size.excess).pod))) == NAME_MAX


def test_what_is_as_long_as_kubernetes_allows_stays_as_it_is() -> None:
    group = f"{'.'.join(['g' * 62] * 4)}/v1alpha1"
    document = identify(
        name="n" * 253, generateName="g" * 253, uid="u" * 64, **own(apiVersion=group, kind="K" * 63, name="o" * 253)
    )
    found = decode(body(object=document)).pod
    assert list_identity(found) == ["n" * 253, "g" * 253, "u" * 64, group, "K" * 63, "o" * 253, "u-1"]


@PROPERTY
@given(st.text(max_size=400), st.text(max_size=400))
def test_shortened_texts_stay_distinct(one: str, other: str) -> None:
    first, second = shorten(one, UID_MAX), shorten(other, UID_MAX)
    assert (first == second) == (one == other)
    assert len(first) <= UID_MAX
    assert shorten(first, UID_MAX) == first


@pytest.mark.parametrize("metadata", [{"name": LONG}, {"generateName": LONG}, own(name=LONG)])
async def test_decision_has_no_long_name(metadata: Json) -> None:
    answer = await Gate(WEB).interceptor.review(Half.MUTATE, body(object=identify(**metadata), dryRun=True))
    assert len(answer.decision.pod) <= NAME_MAX + len("*")
    assert len(msgspec.json.encode(answer.decision.audit)) < 1_000


def test_store_is_asked_with_a_short_name() -> None:
    request = decode(body(object=identify(name=LONG)))
    assert request.pod is not None
    compiled = CompiledPolicy(WEB)
    evaluation = Evaluation(Half.MUTATE, request, compiled, request.pod, service=compiled.policy.services[0])
    assert len(build_acquire(evaluation, peek=True).name) == NAME_MAX


@pytest.mark.parametrize("uid", ["u-1", LONG])
def test_all_name_a_controller_alike_as_a_source_of_quota_events(uid: str) -> None:
    document = identify(**own(uid=uid))
    request = decode(body(object=document, userInfo={"username": REPLICA_SETS}))
    assert request.pod is not None
    evaluation = Evaluation(Half.VALIDATE, request, CompiledPolicy(WEB), request.pod)
    watched = Pod.from_document(document)
    found = {event_source(evaluation), find_controller_source(watched), find_replacing_source(watched)}
    assert len(found) == 1
    assert len(found.pop()) <= len("controller:") + UID_MAX


@pytest.mark.parametrize("name", ["name", "generateName"])
async def test_decision_about_a_workload_has_no_long_name(name: str) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]}
    document = {"metadata": {name: LONG, "namespace": "shop"}, "spec": {"template": template}}
    sent = body(
        object=document,
        resource={"group": "apps", "version": "v1", "resource": "replicasets"},
        userInfo={"username": REPLICA_SETS},
    )
    assert max(map(len, list_identity(decode(sent).pod))) <= NAME_MAX
    answer = await Gate(WEB).interceptor.review(Half.VALIDATE, sent)
    assert len(answer.decision.workload) <= NAME_MAX + len("replicaset.apps/")


async def test_decision_about_an_object_of_a_custom_kind_has_no_long_name() -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]}
    document = {
        "apiVersion": "example.com/v1",
        "kind": "Farm",
        "metadata": {"name": LONG, "namespace": "shop"},
        "spec": {"template": template},
    }
    sent = body(object=document, resource={"group": "example.com", "version": "v1", "resource": "farms"})
    answer = await Gate(CUSTOM).interceptor.review(Half.VALIDATE, sent)
    assert answer.decision.workload.startswith("farm.example.com/nnn")
    assert len(answer.decision.workload) <= NAME_MAX + len("farm.example.com/")
