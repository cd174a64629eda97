"""Membership of a Pod in a group: by which of its fields, with which size, and whom it believes."""

from typing import Any

import pytest

from tests.harness.nesting import BEYOND_EACH_INTERPRETER, nest
from webhook.core.groups.membership import GroupError, Membership, find_membership
from webhook.core.kubernetes.pod import OwnerReference, Pod, PodMetadata, PodSpec
from webhook.core.policy_fields import GroupSource

ALL = tuple(GroupSource)
JOBS, ALICE = "system:serviceaccount:kube-system:job-controller", "alice"


def pod_of(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **metadata: Any) -> Pod:
    return Pod(PodMetadata(namespace="ml", labels=labels, annotations=annotations, **metadata), PodSpec())


def job(name: str = "train") -> tuple[OwnerReference, ...]:
    return (OwnerReference("batch/v1", "Job", name, f"uid-of-{name}", controller=True),)


def find(pod: Pod, sources: tuple[GroupSource, ...] = ALL, user: str = ALICE, pod_group: str = "") -> Membership | None:
    return find_membership(pod, sources, user, lambda: pod_group, 512)


@pytest.mark.parametrize(
    ("pod", "user", "expected"),
    [
        (
            pod_of(annotations={"podgate.io/group": "a", "podgate.io/group-size": "4", "podgate.io/group-index": "2"}),
            ALICE,
            Membership(GroupSource.ANNOTATIONS, "a", size=4, index="2"),
        ),
        (
            pod_of({"kueue.x-k8s.io/pod-group-name": "k"}, {"kueue.x-k8s.io/pod-group-total-count": "3"}),
            ALICE,
            Membership(GroupSource.KUEUE, "k", size=3),
        ),
        (
            pod_of(
                {"leaderworkerset.sigs.k8s.io/group-key": "h", "leaderworkerset.sigs.k8s.io/worker-index": "1"},
                {"leaderworkerset.sigs.k8s.io/size": "2"},
            ),
            ALICE,
            Membership(GroupSource.LEADER_WORKER_SET, "h", size=2, index="1"),
        ),
        (
            pod_of(None, {"batch.kubernetes.io/job-completion-index": "7"}, owner_references=job()),
            JOBS,
            Membership(GroupSource.JOB, "train", "uid-of-train", index="7"),
        ),
        (
            pod_of(owner_references=(OwnerReference(kind="Job", name="recorded", uid="u", controller=True),)),
            JOBS,
            Membership(GroupSource.JOB, "recorded", "u"),
        ),
        (
            pod_of(
                {"jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/jobset-uid": "u"},
                {"batch.kubernetes.io/job-completion-index": "0"},
                owner_references=job("set-workers-1"),
            ),
            JOBS,
            Membership(GroupSource.JOB_SET, "set", "u", index="set-workers-1/0"),
        ),
        (
            pod_of({"scheduling.x-k8s.io/pod-group": "pg"}),
            ALICE,
            Membership(GroupSource.COSCHEDULING, "pg"),
        ),
        (
            pod_of(None, {"scheduling.k8s.io/group-name": "vg"}),
            ALICE,
            Membership(GroupSource.VOLCANO, "vg"),
        ),
        (pod_of(), ALICE, None),
    ],
)
def test_each_source_names_a_group(pod: Pod, user: str, expected: Membership | None) -> None:
    assert find(pod, user=user) == expected
    if expected is not None:
        assert find(pod, tuple(set(ALL) - {expected.source, GroupSource.JOB}), user) is None
        assert Membership.decode(expected.encode()) == expected


def test_a_pod_group_of_kubernetes_is_read_only_where_it_is_a_source() -> None:
    assert find(pod_of(), pod_group="pg") == Membership(GroupSource.POD_GROUP, "pg")
    assert find(pod_of(), (GroupSource.JOB,), pod_group="pg") is None


def test_our_own_annotations_come_first_and_a_job_last() -> None:
    pod = pod_of(
        {"jobset.sigs.k8s.io/jobset-name": "set"},
        {"podgate.io/group": "a", "podgate.io/group-size": "4"},
        owner_references=job(),
    )
    sources = (GroupSource.JOB, GroupSource.JOB_SET, GroupSource.ANNOTATIONS)
    found = [find(pod, sources[:count], JOBS) for count in (3, 2, 1)]
    assert [membership and membership.source for membership in found] == [
        GroupSource.ANNOTATIONS,
        GroupSource.JOB_SET,
        GroupSource.JOB,
    ]


@pytest.mark.parametrize("labels", [None, {"jobset.sigs.k8s.io/jobset-name": "set"}])
def test_an_owner_is_believed_only_if_its_controller_creates_the_pod(labels: dict[str, str] | None) -> None:
    assert find(pod_of(labels, owner_references=job()), user=ALICE) is None
    other = (OwnerReference("example.com/v1", "Job", "train", "u", controller=True),)
    assert find(pod_of(owner_references=other), user=JOBS) is None


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"podgate.io/group": "a"}, "metadata.annotations[podgate.io/group-size] is missing: write how many"),
        ({"podgate.io/group-size": "4"}, "group-size] is set without podgate.io/group: add the group's name"),
        ({"podgate.io/group": "a", "podgate.io/group-size": "0"}, "is '0', no number from 1: write how many"),
        ({"podgate.io/group": "a", "podgate.io/group-size": "-4"}, "is '-4', no number from 1"),
        ({"podgate.io/group": "a", "podgate.io/group-size": "four"}, "is 'four', no number from 1"),
        ({"podgate.io/group": "a", "podgate.io/group-size": "٤"}, "no number from 1"),
        ({"podgate.io/group": "a", "podgate.io/group-size": "9" * 400}, "no number from 1"),
        ({"podgate.io/group": "a", "podgate.io/group-size": "513"}, "is 513, above quota.queue.groups.maxSize 512"),
    ],
)
def test_a_size_that_cannot_be_is_refused(annotations: dict[str, str], message: str) -> None:
    with pytest.raises(GroupError) as caught:
        find(pod_of(None, annotations))
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300
    assert caught.value.field == "metadata.annotations[podgate.io/group-size]"


@pytest.mark.parametrize("size", ["1", "2"])
def test_a_leader_worker_set_whose_workers_follow_their_leader_is_no_group(size: str) -> None:
    annotations = {f"leaderworkerset.sigs.k8s.io/{key}": size for key in ("size", "exclusive-topology")}
    pod = pod_of({"leaderworkerset.sigs.k8s.io/group-key": "h"}, annotations)
    if size == "1":
        assert find(pod) == Membership(GroupSource.LEADER_WORKER_SET, "h", size=1)
        return
    with pytest.raises(
        GroupError, match="workers are created only when their leader is on a node: remove it"
    ) as caught:
        find(pod)
    assert caught.value.field == "metadata.annotations[leaderworkerset.sigs.k8s.io/exclusive-topology]"
    assert find(pod, (GroupSource.ANNOTATIONS, GroupSource.JOB)) is None


@pytest.mark.parametrize("name", ["../../kube-system/podgroups/x", "a?b", ".", "a" * 254, "a b", "-a", "ä", "a\nb"])
@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("podgate.io/group", "metadata.annotations[podgate.io/group]"),
        ("podgate.io/group-index", "metadata.annotations[podgate.io/group-index]"),
        ("scheduling.k8s.io/group-name", "metadata.annotations[scheduling.k8s.io/group-name]"),
    ],
)
def test_what_is_no_name_is_refused(name: str, key: str, field: str) -> None:
    annotations = {"podgate.io/group": "a", "podgate.io/group-size": "2"} if key.startswith("podgate") else {}
    with pytest.raises(GroupError, match="no name: write at most 253 letters") as caught:
        find(pod_of(None, {**annotations, key: name}))
    assert caught.value.field == field
    assert len(str(caught.value)) < 300


def test_a_pod_group_with_another_path_is_refused() -> None:
    with pytest.raises(GroupError, match="podGroupName is 'a/b', no name"):
        find(pod_of(), pod_group="a/b")


@pytest.mark.parametrize("text", ["", "x", "{}", '{"source": "Job"}', '{"source": "Other", "name": "x"}', '["Job"]'])
def test_an_unreadable_membership_is_none(text: str) -> None:
    assert Membership.decode(text) is None


@pytest.mark.parametrize("end", ["]", ""])
def test_an_annotation_that_is_nested_too_deeply_is_no_membership(end: str) -> None:
    assert Membership.decode(f'{{"x":{nest(BEYOND_EACH_INTERPRETER, "[", end)}}}') is None
