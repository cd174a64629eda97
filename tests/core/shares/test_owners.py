"""Owners of slots: believed only from Kubernetes' controllers, and indexes only as these write them."""

from typing import Any

import pytest

from tests.core.reviewing import ALICE, REPLICA_SETS
from webhook.core.kubernetes.pod import OwnerReference, Pod, PodMetadata, PodSpec
from webhook.core.placement import VARIANT_LABEL
from webhook.core.shares import CLAIM_ANNOTATION, SLOT_ANNOTATION, PodSlot, SlotOwner, find_slot_owner, read_slot

_SERVICE_ACCOUNTS = "system:serviceaccount:kube-system:"
JOBS, STATEFUL_SETS = f"{_SERVICE_ACCOUNTS}job-controller", f"{_SERVICE_ACCOUNTS}statefulset-controller"
INDEX = "batch.kubernetes.io/job-completion-index"
ENORMOUS = "9" * 5000
"""More digits than Python converts."""


def pod_of(kind: str, group: str, **metadata: Any) -> Pod:
    owner = OwnerReference(api_version=f"{group}/v1", kind=kind, name="work", uid="u", controller=True)
    return Pod(PodMetadata(owner_references=(owner,), **metadata), PodSpec())


def find_index(user: str, pod: Pod) -> int | None:
    owner = find_slot_owner(user, pod, "shop")
    assert owner is not None
    return owner.index


def test_a_pod_of_a_stateful_set_has_the_ordinal_of_its_name() -> None:
    assert find_index(STATEFUL_SETS, pod_of("StatefulSet", "apps", name="work-7")) == 7
    forged = pod_of("StatefulSet", "apps", name="work-7", labels={"apps.kubernetes.io/pod-index": "0"})
    assert find_index(STATEFUL_SETS, forged) == 7


@pytest.mark.parametrize("name", ["", "work", "work-", "work-x", "other-1", "work-٣", f"work-{ENORMOUS}"])
def test_a_pod_of_a_stateful_set_without_an_ordinal_takes_no_slot(name: str) -> None:
    assert find_slot_owner(STATEFUL_SETS, pod_of("StatefulSet", "apps", name=name), "shop") is None


def test_a_pod_of_an_indexed_job_has_its_index() -> None:
    assert find_index(JOBS, pod_of("Job", "batch", generate_name="work-12-", annotations={INDEX: "12"})) == 12


def test_a_long_name_of_an_indexed_job_is_cut_off_before_the_index() -> None:
    name = "w" * 63
    owner = OwnerReference(api_version="batch/v1", kind="Job", name=name, uid="u", controller=True)
    metadata = PodMetadata(generate_name=f"{name[:55]}-1-", annotations={INDEX: "1"}, owner_references=(owner,))
    assert find_index(JOBS, Pod(metadata, PodSpec())) == 1


@pytest.mark.parametrize("index", ["0", "x", "٣", "-1", ENORMOUS])
def test_an_index_in_the_template_of_a_job_without_indexes_chooses_no_slot(index: str) -> None:
    assert find_index(JOBS, pod_of("Job", "batch", generate_name="work-", annotations={INDEX: index})) is None


def test_an_owner_without_an_api_version_is_that_of_a_record_and_of_kubernetes_own() -> None:
    owner = OwnerReference(kind="ReplicaSet", name="work", uid="u", controller=True)
    recorded = Pod(PodMetadata(owner_references=(owner,)), PodSpec())
    found = find_slot_owner(REPLICA_SETS, recorded, "shop")
    assert found is not None
    assert found.uid == "u"
    assert find_slot_owner(ALICE, recorded, "shop") is None


def test_pods_of_tenants_and_of_other_controllers_have_no_owner() -> None:
    assert find_slot_owner(ALICE, pod_of("ReplicaSet", "apps", generate_name="work-"), "shop") is None
    assert find_slot_owner(REPLICA_SETS, pod_of("ReplicaSet", "example.com", generate_name="work-"), "shop") is None
    assert find_slot_owner(REPLICA_SETS, pod_of("DaemonSet", "apps", generate_name="work-"), "shop") is None


def test_all_pods_of_a_replica_set_have_its_hash() -> None:
    made = pod_of("ReplicaSet", "apps", generate_name="work-", labels={"pod-template-hash": "abc"})
    owner = SlotOwner("ReplicaSet", "shop", "work", "u", ("pod-template-hash", "abc"))
    assert find_slot_owner(REPLICA_SETS, made, "shop") == owner


@pytest.mark.parametrize("slot", ["", "0", "-1", "+1", "1.5", "x", "٣", "100001", ENORMOUS])
def test_no_slot_is_read_that_podgate_does_not_write(slot: str) -> None:
    metadata = PodMetadata(labels={VARIANT_LABEL: "spot"}, annotations={SLOT_ANNOTATION: slot})
    assert read_slot(Pod(metadata, PodSpec())) is None


def test_a_slot_is_read_with_its_variant_and_claim() -> None:
    annotations = {SLOT_ANNOTATION: "3", CLAIM_ANNOTATION: "c"}
    made = Pod(PodMetadata(labels={VARIANT_LABEL: "spot"}, annotations=annotations), PodSpec())
    assert read_slot(made) == PodSlot(3, "spot", "spot", "c")
    assert read_slot(Pod(PodMetadata(annotations=annotations), PodSpec())) is None
