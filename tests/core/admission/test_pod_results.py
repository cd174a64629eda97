"""Cached results of rewrite, check and cost equal computed ones, for Pods that differ in any field that is read."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields, replace

from tests.core.rewriting import decode_pod
from tests.core.strategies import HASH, PROPERTY, Json, Pair, pairs, service_of
from webhook.core.admission import charging, pod_results, stages
from webhook.core.admission.decision import Deviation, Half
from webhook.core.admission.evaluation import Evaluation
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.admission.pod_results import encode_pod_key
from webhook.core.admission.review import Request
from webhook.core.compiled_policy import CompiledPolicy, CompiledService
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.kubernetes.pod import Pod, PodMetadata, PodSpec
from webhook.core.policy.model import LoadedPolicy, Policy, Service
from webhook.core.quota import CounterPlan

COUNTED = ("pods", "requests.cpu", "limits.memory", "requests.nvidia.com/gpu")
SERVICE = service_of({"schedulerName": "podgate-scheduler"})


def compile_service(service: Service) -> CompiledPolicy:
    loaded = LoadedPolicy(Policy("podgate.io/v1alpha1", "Policy", (service,)), HASH)
    return CompiledPolicy(loaded, {service.name: CompiledService(service, CounterPlan.from_service(service), COUNTED)})


def evaluation(policy: CompiledPolicy, pod: Pod, **request: Any) -> Evaluation:
    asked = Request("review-1", "CREATE", "pods", "", "shop", "alice", dry_run=False, pod=pod, old_pod=None)
    (service,) = policy.services.values()
    return Evaluation(Half.MUTATE, replace(asked, **request), policy, pod, service=service)


def collect_results(policy: CompiledPolicy, pod: Pod, *, degraded: str = "", hash_known: bool = True) -> list[Any]:
    """Return everything that the cached stages find about a Pod."""
    found: list[Any] = []
    rewritten = evaluation(policy, pod)
    rewritten.deviation = Deviation(degraded=degraded)
    checked = evaluation(policy, replace(pod, metadata=replace(pod.metadata, uid="uid-1")))
    checked.hash_known = hash_known
    for stage, subject in ((stages.rewrite, rewritten), (stages.check, checked)):
        try:
            stage(subject)
        except BadReviewError as error:
            found.append(str(error))
        found.append((subject.patch, subject.overwritten, subject.qos_change))
        found.append((subject.findings, subject.would_write, subject.steps))
    try:
        found.append(charging.build_acquire(checked).cost)
    except BadReviewError as error:
        found.append(str(error))
    return found


@st.composite
def similar_pods(draw: st.DrawFn, pod: Json, other: Json) -> Json:
    """Draw the Pod with one field of its metadata, spec or first container replaced by the other's, or removed."""
    parts = [("metadata",), ("spec",), ("spec", "containers", 0), ("metadata", "annotations"), ("metadata", "labels")]
    path = draw(st.sampled_from(parts))
    changed = msgspec.json.decode(msgspec.json.encode(pod))
    part, source = changed, other
    try:
        for token in path:
            part, source = part[token], source[token]
    except (KeyError, IndexError, TypeError):
        return dict(changed)
    if not isinstance(part, dict) or not isinstance(source, dict) or not {**part, **source}:
        return dict(changed)
    field = draw(st.sampled_from(sorted({**part, **source})))
    if field in source:
        part[field] = source[field]
    elif field not in {"containers", "metadata", "spec"}:
        del part[field]
    return dict(changed)


@PROPERTY
@given(
    data=st.data(), pair=pairs, other=pairs, degraded=st.sampled_from(["", "breaker OPEN"]), hash_known=st.booleans()
)
def test_cached_results_equal_computed_ones(
    data: st.DataObject, pair: Pair, other: Pair, degraded: str, *, hash_known: bool
) -> None:
    policy = compile_service(pair.service)
    for raw in (pair.pod, data.draw(similar_pods(pair.pod, other.pod)), pair.pod):
        pod = decode_pod(raw)
        for variant in ({"degraded": degraded}, {"hash_known": hash_known}, {}):
            assert collect_results(policy, pod, **variant) == collect_results(
                compile_service(pair.service), pod, **variant
            )


def test_second_pod_of_a_controller_is_not_evaluated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, raw = compile_service(SERVICE), {"metadata": {"namespace": "shop"}, "spec": {"containers": [{"name": "c"}]}}
    first = collect_results(policy, decode_pod({**raw, "metadata": {"namespace": "shop", "name": "web-1", "uid": "1"}}))
    monkeypatch.setattr("webhook.core.admission.mutation.rewrite", None)
    monkeypatch.setattr("webhook.core.admission.validation.check", None)
    monkeypatch.setattr("webhook.core.quota.pod_cost.compute_cost", None)
    assert (
        collect_results(policy, decode_pod({**raw, "metadata": {"namespace": "shop", "name": "web-2", "uid": "2"}}))
        == first
    )


@pytest.mark.parametrize("name", [field.name for field in fields(PodSpec)])
def test_every_field_of_the_spec_is_part_of_the_key(name: str) -> None:
    pod = Pod(PodMetadata(), PodSpec())
    assert encode_pod_key(pod, SERVICE) != encode_pod_key(replace(pod, spec=replace(pod.spec, **{name: "x"})), SERVICE)


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {"a": "1"}},
        {"labels": {}},
        {"annotations": {}},
        {"annotations": {HASH_ANNOTATION: HASH}},
        {"namespace": "payments"},
    ],
)
def test_metadata_that_is_read_is_part_of_the_key(change: dict[str, Any]) -> None:
    pod = Pod(PodMetadata(), PodSpec())
    assert encode_pod_key(pod, SERVICE) != encode_pod_key(
        replace(pod, metadata=replace(pod.metadata, **change)), SERVICE
    )


def test_annotations_and_namespace_labels_of_the_policy_are_part_of_the_key() -> None:
    service = service_of({"annotations": {"queue": {"fromNamespace": "team"}, "note": "n"}})
    pod = Pod(PodMetadata(annotations={"queue": "a", "other": "1"}), PodSpec())
    changed = [{"queue": "b", "other": "1"}, {"queue": "a", "note": "x", "other": "1"}]
    keys = [encode_pod_key(replace(pod, metadata=PodMetadata(annotations=found)), service) for found in changed]
    keys += [encode_pod_key(pod, service.resolve_namespace({"team": name})) for name in ("t1", "t2")]
    assert len({encode_pod_key(pod, service), *keys}) == 5
    assert encode_pod_key(replace(pod, metadata=PodMetadata(annotations={"queue": "a"})), service) == encode_pod_key(
        pod, service
    )


def test_priority_class_that_must_be_allowed_depends_on_field_managers() -> None:
    service = service_of({"allow": {"priorityClassNames": []}})
    assert encode_pod_key(Pod(PodMetadata(), PodSpec(priority_class_name="low")), service) is None
    assert encode_pod_key(Pod(PodMetadata(), PodSpec()), service) is not None


@pytest.mark.parametrize("spec", [{"priority_class_name": "low"}, {"priority_class_name": "high"}])
def test_results_that_depend_on_field_managers_are_not_cached(spec: dict[str, Any]) -> None:
    service = service_of({"priorityClassName": "high"})
    assert encode_pod_key(Pod(PodMetadata(), PodSpec(**spec)), service) is None
    assert encode_pod_key(Pod(PodMetadata(), PodSpec(**spec, priority=7)), service) is None or spec == {
        "priority_class_name": "high"
    }


def test_errors_updates_and_pods_that_are_large_long_or_have_huge_integers_are_not_cached() -> None:
    policy = compile_service(SERVICE)
    pod = decode_pod(
        {"metadata": {"uid": "1"}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "?"}}}]}}
    )
    for _ in range(2):
        with pytest.raises(BadReviewError):
            charging.build_acquire(evaluation(policy, pod))
    good = decode_pod({"metadata": {"uid": "1"}, "spec": {"containers": [{"name": "c"}]}})
    charging.build_acquire(evaluation(policy, good, operation="UPDATE", old_pod=good))
    large = evaluation(policy, good)
    large.is_large = True
    charging.build_acquire(large)
    charging.build_acquire(evaluation(policy, replace(good, spec=replace(good.spec, node_name="x" * 20_000))))
    charging.build_acquire(evaluation(policy, replace(good, spec=replace(good.spec, affinity={"weight": 2**64}))))
    assert not any(policy.pod_results.values())
    charging.build_acquire(evaluation(policy, good))
    assert list(map(len, policy.pod_results.values())) == [0, 1]
    assert pod_results.encode_pod_key(good, SERVICE) is not None
