"""Records contain the fields that policies use, and no private data of tenants."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.reporting.replay_record import CONTAINER, POD, SECRET
from tests.core.strategies import examples
from webhook.commands.simulator import Ask, build_admission_review
from webhook.core.admission import review
from webhook.core.admission.decision import Half
from webhook.core.admission.review import Request
from webhook.core.reporting.replay_record import is_kept, make_labels_event, make_pod_event


def request(pod: dict[str, Any] = POD, **fields: Any) -> Request:
    body = build_admission_review(Ask(pod, "shop", "u1", "alice", **fields), pod, Half.VALIDATE)
    body["request"]["userInfo"] |= {"groups": [SECRET], "uid": SECRET, "extra": {"token": [SECRET]}}
    body["request"]["options"] = {"fieldManager": SECRET}
    return review.decode(json.dumps(body).encode())


def record_event(reviewed: Request, at_us: int = 1_500_000) -> dict[str, Any]:
    event: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(make_pod_event(reviewed, at_us)))
    return event


def test_record_has_only_the_fields_that_policies_use() -> None:
    container = {
        "name": "app",
        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
        "restartPolicy": "Always",
    }
    placed = (
        "schedulerName",
        "nodeName",
        "nodeSelector",
        "tolerations",
        "affinity",
        "topologySpreadConstraints",
        "schedulingGates",
    )
    classes = ("priorityClassName", "priority", "preemptionPolicy", "runtimeClassName", "overhead", "resources")
    assert record_event(request()) == {
        "at": 1.5,
        "namespace": "shop",
        "uid": "u1",
        "user": "alice",
        "pod": {
            "metadata": {
                **{name: POD["metadata"][name] for name in ("name", "generateName", "namespace", "uid", "labels")},
                "annotations": {"podgate.io/policy-hash": "", "kubernetes.io/config.mirror": ""},
                "managedFields": [{"fieldsV1": {"f:spec": {}}}],
                "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "r1", "controller": True}],
            },
            "spec": {
                **{name: POD["spec"][name] for name in (*placed, *classes)},
                "containers": [container],
                "initContainers": [{**container, "name": "init"}],
            },
        },
    }


def test_record_keeps_a_valid_policy_hash() -> None:
    annotations = {"podgate.io/policy-hash": "0123456789abcdef"}
    pod = {**POD, "metadata": {**POD["metadata"], "annotations": annotations}}
    assert record_event(request(pod))["pod"]["metadata"]["annotations"] == annotations


def test_record_keeps_of_managed_fields_who_wrote_the_priority_class() -> None:
    managers = [{"manager": SECRET, "fieldsV1": {"f:spec": {"f:priorityClassName": {}, f"f:{SECRET}": {}}}}]
    pod = {**POD, "metadata": {**POD["metadata"], "managedFields": managers}}
    kept = record_event(request(pod))["pod"]["metadata"]["managedFields"]
    assert kept == [{"fieldsV1": {"f:spec": {"f:priorityClassName": {}}}}]


def objects_of(value: Any) -> st.SearchStrategy[Any]:
    """Build objects with `value` in fields of any known name, and in an unknown field."""
    names = st.sampled_from([*CONTAINER, *POD["spec"], *POD["metadata"], "x"])
    return st.dictionaries(names, value, max_size=4)


SECRETS = st.recursive(st.just(SECRET), lambda inner: st.lists(inner, max_size=2) | objects_of(inner), max_leaves=6)
FREE_TEXT = {"labels", "name", "generateName", "namespace", "uid", "ownerReferences"}
NOT_TEXT = {*FREE_TEXT, "annotations", "deletionTimestamp", "managedFields"}
KNOWN_SPEC = {*POD["spec"]} - {"volumes", "imagePullSecrets", "hostAliases", "securityContext", "dnsConfig"}


@examples(100)
@given(objects_of(SECRETS), objects_of(SECRETS), objects_of(SECRETS))
def test_record_has_no_secret_from_any_field_that_policies_do_not_use(
    container: dict[str, Any], spec: dict[str, Any], metadata: dict[str, Any]
) -> None:
    decoded = {"name", "resources", "restartPolicy"}
    pod = {
        **{name: value for name, value in spec.items() if name not in POD},
        "metadata": {**POD["metadata"], **{key: value for key, value in metadata.items() if key not in NOT_TEXT}},
        "spec": {
            **POD["spec"],
            **{key: value for key, value in spec.items() if key not in KNOWN_SPEC},
            "containers": [{**CONTAINER, **{key: value for key, value in container.items() if key not in decoded}}],
        },
    }
    pod["spec"] = {key: value for key, value in pod["spec"].items() if key != "metadata"}
    assert SECRET not in json.dumps(record_event(request(pod)))


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({}, True),
        ({"dry_run": True}, True),
        ({"operation": "UPDATE", "sub_resource": "resize", "old_pod": POD}, True),
        ({"operation": "UPDATE", "old_pod": POD}, False),
        ({"operation": "DELETE"}, False),
        ({"sub_resource": "binding"}, False),
    ],
)
def test_only_requests_that_can_be_charged_are_recorded(fields: dict[str, Any], kept: bool) -> None:  # noqa: FBT001  a row of the table
    assert is_kept(request(**fields)) is kept


def test_record_of_a_resize_has_both_pods_and_no_secrets() -> None:
    event = record_event(request(operation="UPDATE", sub_resource="resize", old_pod=POD, dry_run=True))
    assert (event["operation"], event["subResource"], event["dryRun"]) == ("UPDATE", "resize", True)
    assert event["oldPod"] == event["pod"]
    assert SECRET not in json.dumps(event)


def test_labels_of_a_namespace_are_a_separate_event() -> None:
    assert make_labels_event("shop", {"tier": "prod"}, 2_000_001) == {
        "at": 2.000001,
        "namespaceLabels": {"shop": {"tier": "prod"}},
    }
