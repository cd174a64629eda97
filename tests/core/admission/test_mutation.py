"""The patch: Podgate's label and annotation, escaped keys, no redundant operations."""

from typing import Any

import msgspec
import pytest

from tests.core.rewriting import decode_pod, patch_of, rewrite_pod
from tests.core.strategies import HASH, OUR_ANNOTATION, OUR_LABEL, Json, service_of
from webhook.core.admission.enforcement_preview import preview_enforcement
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.policy.model import Modes, Service
from webhook.core.policy_fields import Mode, ResourceRules


def test_keys_of_labels_are_escaped_as_json_pointers() -> None:
    raw = {"metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}}, "spec": {"nodeSelector": {"a/b": "2"}}}
    patch = patch_of(raw, service_of({"nodeSelector": {"a/b": "1", "c~d": "1"}, "onConflict": {"default": "Override"}}))
    assert [(operation.op, operation.path) for operation in patch] == [
        ("add", "/metadata/labels/podgate.io~1service"),
        ("add", "/metadata/annotations/podgate.io~1policy-hash"),
        ("replace", "/spec/nodeSelector/a~1b"),
        ("add", "/spec/nodeSelector/c~0d"),
    ]


def test_a_tenants_own_label_and_hash_are_overwritten() -> None:
    forged = {"metadata": {"labels": {OUR_LABEL: "gold"}, "annotations": {OUR_ANNOTATION: "f" * 16}}, "spec": {}}
    assert [(operation.op, operation.value) for operation in patch_of(forged, service_of({}))] == [
        ("replace", "s"),
        ("replace", HASH),
    ]


def test_a_pod_without_labels_and_annotations_gets_both_maps() -> None:
    raw: dict[str, Any] = {"metadata": {"labels": None}, "spec": {}}
    assert [(operation.op, operation.path, operation.value) for operation in patch_of(raw, service_of({}))] == [
        ("add", "/metadata/labels", {OUR_LABEL: "s"}),
        ("add", "/metadata/annotations", {OUR_ANNOTATION: HASH}),
    ]


def test_pod_with_label_and_annotation_gets_no_patch() -> None:
    raw = {"metadata": {"labels": {OUR_LABEL: "s"}, "annotations": {OUR_ANNOTATION: HASH}}, "spec": {}}
    assert patch_of(raw, service_of({})) == ()


@pytest.mark.parametrize(("label", "paths"), [("gold", ["/metadata/labels/podgate.io~1service"]), ("s", [])])
def test_a_service_with_all_modes_disabled_removes_only_the_label_of_another(label: str, paths: list[str]) -> None:
    disabled = service_of({}, modes=Modes(Mode.DISABLED, Mode.DISABLED, Mode.DISABLED, Mode.DISABLED))
    patch = patch_of({"metadata": {"labels": {OUR_LABEL: label, "app": "x"}}, "spec": {}}, disabled)
    assert [(operation.op, operation.path) for operation in patch] == [("remove", path) for path in paths]
    assert patch_of({"metadata": {}, "spec": {}}, disabled) == ()


def quarter_of_1_cpu(mode: Mode = Mode.ENFORCE) -> Service:
    container = {"default": {"cpu": "1"}, "defaultRequestRatio": {"cpu": "0.25"}}
    rules = msgspec.convert({"container": container}, ResourceRules, dec_hook=lambda _, text: Quantity.parse(text))
    return service_of({}, resources=rules, modes=Modes(resources=mode))


def one_container(resources: Json, metadata: Json | None = None) -> Json:
    return {"metadata": metadata or {}, "spec": {"containers": [{"name": "c", "resources": resources}]}}


ONE: Json = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("resources", "final"),
    [
        ({"requests": {"cpu": "1"}}, ONE),
        (ONE, {"requests": {"cpu": "250m"}, "limits": {"cpu": "1"}}),
        ({}, {"requests": {"cpu": "250m"}, "limits": {"cpu": "1"}}),
    ],
)
def test_a_reinvocation_lowers_no_request_to_a_share_of_the_default_limit(resources: Json, final: Json) -> None:
    service = quarter_of_1_cpu()
    once = rewrite_pod(one_container(resources), service)
    assert once["spec"]["containers"][0]["resources"] == final
    assert patch_of(once, service) == ()


@pytest.mark.parametrize(
    ("labels", "annotations", "is_lowered"),
    [
        ({OUR_LABEL: "s"}, {OUR_ANNOTATION: HASH}, False),
        ({OUR_LABEL: "s"}, {OUR_ANNOTATION: "f" * 16}, False),
        ({OUR_LABEL: "s"}, {}, True),
        ({OUR_LABEL: "gold"}, {OUR_ANNOTATION: HASH}, True),
    ],
)
def test_a_copy_of_a_rewritten_pod_keeps_its_requests(labels: Json, annotations: Json, *, is_lowered: bool) -> None:
    copy = one_container(ONE, {"labels": labels, "annotations": annotations})
    patched = rewrite_pod(copy, quarter_of_1_cpu())
    assert patched["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "250m" if is_lowered else "1"}


def test_a_preview_shows_the_share_that_enforce_would_have_written_first() -> None:
    """In Warn the mutating half writes label and annotation, and no resources."""
    service = quarter_of_1_cpu(Mode.WARN)
    stored = rewrite_pod(one_container(ONE), service)
    assert stored["spec"]["containers"][0]["resources"] == ONE
    preview = preview_enforcement(decode_pod(stored), service)
    assert [write.concern for write in preview.writes] == ["resources"]
    containers = preview.pod.spec.containers
    assert containers is not None
    assert containers[0].resources is not None
    assert containers[0].resources.requests == {"cpu": "250m"}
