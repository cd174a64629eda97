"""The patch: Podgate's label and annotation, escaped keys, no redundant operations."""

from typing import Any

from tests.core.rewriting import patch_of
from tests.core.strategies import HASH, OUR_ANNOTATION, OUR_LABEL, service_of


def test_keys_of_labels_are_escaped_as_json_pointers() -> None:
    raw = {"metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}}, "spec": {"nodeSelector": {"a/b": "2"}}}
    patch = patch_of(raw, service_of({"nodeSelector": {"a/b": "1", "c~d": "1"}, "onConflict": {"default": "Override"}}))
    assert [(one.op, one.path) for one in patch] == [
        ("add", "/metadata/labels/podgate.io~1service"),
        ("add", "/metadata/annotations/podgate.io~1policy-hash"),
        ("replace", "/spec/nodeSelector/a~1b"),
        ("add", "/spec/nodeSelector/c~0d"),
    ]


def test_a_tenants_own_label_and_hash_are_overwritten() -> None:
    forged = {"metadata": {"labels": {OUR_LABEL: "gold"}, "annotations": {OUR_ANNOTATION: "f" * 16}}, "spec": {}}
    assert [(one.op, one.value) for one in patch_of(forged, service_of({}))] == [("replace", "s"), ("replace", HASH)]


def test_a_pod_without_labels_and_annotations_gets_both_maps() -> None:
    raw: dict[str, Any] = {"metadata": {"labels": None}, "spec": {}}
    assert [(one.op, one.path, one.value) for one in patch_of(raw, service_of({}))] == [
        ("add", "/metadata/labels", {OUR_LABEL: "s"}),
        ("add", "/metadata/annotations", {OUR_ANNOTATION: HASH}),
    ]


def test_pod_with_label_and_annotation_gets_no_patch() -> None:
    raw = {"metadata": {"labels": {OUR_LABEL: "s"}, "annotations": {OUR_ANNOTATION: HASH}}, "spec": {}}
    assert patch_of(raw, service_of({})) == ()
