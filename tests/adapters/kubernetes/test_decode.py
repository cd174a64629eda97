"""Objects of the API server with a field of another type than expected: that field is lost, and named."""

import msgspec
import pytest

from tests.harness.nesting import nest
from tests.harness.unread_values import UNREAD
from webhook.adapters.kubernetes.cluster_facts.decode import decode_fields, decode_items
from webhook.core.diagnosis.objects import ReportedOwner, ReportedPod

CRON_JOB = {
    "metadata": {"name": "nightly", "uid": "u1"},
    "spec": {"suspend": True},
    "status": {"active": [{"kind": "Job", "name": "nightly-1"}], "succeeded": 2},
}


def test_a_field_of_another_type_is_lost_alone() -> None:
    found, lost = decode_fields(msgspec.json.encode(CRON_JOB), ReportedOwner)
    assert (found.metadata.name, found.spec.suspend, found.status.active, found.status.succeeded) == (
        "nightly",
        True,
        None,
        2,
    )
    assert lost == {"status.active": "Expected `int | null`, got `array`"}


def test_each_of_several_fields_is_named() -> None:
    conditions = [{"type": "Ready", "reason": 1, "status": "True"}, {"type": "PodScheduled", "status": "False"}]
    pod = {"metadata": {"name": "web", "labels": {"app": 1}}, "status": {"phase": 7, "conditions": conditions}}
    found, lost = decode_fields(msgspec.json.encode(pod), ReportedPod)
    assert (found.metadata.name, found.metadata.labels, found.status.phase) == ("web", {}, "")
    assert [(condition.type, condition.status) for condition in found.status.conditions or ()] == [
        ("Ready", "True"),
        ("PodScheduled", "False"),
    ]
    assert set(lost) == {"metadata.labels[...]", "status.phase", "status.conditions[0].reason"}


def test_an_object_of_a_list_that_cannot_be_read_is_lost_alone() -> None:
    items = [{"metadata": {"name": "a"}}, {"metadata": 7}, {"metadata": {"name": "b"}, "status": {"phase": []}}]
    found, lost = decode_items(msgspec.json.encode({"items": items}), ReportedPod)
    assert [pod.metadata.name for pod in found] == ["a", "b"]
    assert lost == {"": "Object missing required field `metadata`", "b status.phase": "Expected `str`, got `array`"}


def test_an_object_of_a_list_that_is_nested_deeply_hides_no_other_one() -> None:
    deep = f'{{"metadata": {{"name": "deep", "managedFields": {nest(9_000)}}}}}'
    items = f'[{deep}, {{"metadata": 7}}, {{"metadata": {{"name": "b"}}}}]'
    found, lost = decode_items(f'{{"items": {items}}}'.encode(), ReportedPod)
    assert [pod.metadata.name for pod in found] == ["deep", "b"]
    assert lost == {"": "Object missing required field `metadata`"}


@pytest.mark.parametrize("unread", UNREAD.values(), ids=UNREAD)
def test_what_nobody_reads_hides_neither_a_field_nor_an_object(unread: bytes) -> None:
    item = b'{"metadata": {"name": "a", "managedFields": %s}, "spec": {"suspend": 7}}' % unread
    expected = {"spec.suspend": "Expected `bool | null`, got `int`"}
    found, lost = decode_fields(item, ReportedOwner)
    assert (found.metadata.name, lost) == ("a", expected)
    listed, lost = decode_items(b'{"items": [{"metadata": {"name": "b"}}, %s]}' % item, ReportedOwner)
    assert [owner.metadata.name for owner in listed] == ["b", "a"]
    assert lost == {f"a {field}": reason for field, reason in expected.items()}


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"items": 3}'])
def test_what_is_no_list_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_items(body, ReportedPod)


def test_an_empty_list_has_no_objects() -> None:
    assert decode_items(b'{"items": null}', ReportedPod) == ((), {})
