"""Membership of a new Pod in a group, by what its creator or its controller wrote.

It is decided once, when the Pod is created, and written into the Pod: what a tenant changes afterwards has no effect.
"""

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.kubernetes.controllers import find_owning_controller
from webhook.core.kubernetes.pod import OwnerReference, Pod
from webhook.core.policy_fields import GroupSource

GROUP_ANNOTATION = "podgate.io/queued-group"
"""The membership of a waiting Pod, in JSON. Podgate writes it."""
NAME_ANNOTATION, SIZE_ANNOTATION = "podgate.io/group", "podgate.io/group-size"
_INDEX_ANNOTATION = "podgate.io/group-index"
_KUEUE = "kueue.x-k8s.io/pod-group-"
_LEADER_WORKER_SET = "leaderworkerset.sigs.k8s.io/"
_JOB_SET = "jobset.sigs.k8s.io/jobset-"
_COSCHEDULING = "scheduling.x-k8s.io/pod-group"
_VOLCANO = "scheduling.k8s.io/group-name"
_JOB_INDEX = "batch.kubernetes.io/job-completion-index"
_SHOWN_MAX = 80
_NAME = re.compile("[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


class GroupError(Exception):
    """A Pod says of its group what cannot be. `field` is where; the text has value, reason and remedy."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class Membership(Struct, frozen=True, omit_defaults=True, gc=False):
    """The group of a Pod. `size` is 0 if another object has it: the one of `source` with this name."""

    source: GroupSource
    name: str
    owner: str = ""
    """Uid of the owner that the group belongs to: a later one of the same name has other groups."""
    size: int = 0
    index: str = ""
    """Place of the Pod in its group: of two Pods with one index only one counts. "" without."""

    @classmethod
    def decode(cls, text: str) -> "Membership | None":
        """Return the membership in an annotation; None if it is not readable."""
        try:
            return _decoder.decode(text)
        except UNREADABLE_JSON:
            return None

    def encode(self) -> str:
        return _encoder.encode(self).decode()

    @property
    def key(self) -> tuple[GroupSource, str, str]:
        """Key of the group within its namespace and service."""
        return self.source, self.name, self.owner


_PRECEDENCE = dict.fromkeys(GroupSource, 1) | {GroupSource.ANNOTATIONS: 0, GroupSource.JOB: 2}
_decoder = msgspec.json.Decoder(Membership)
_encoder = msgspec.json.Encoder()


def find_membership(
    pod: Pod, sources: Sequence[GroupSource], user: str, read_pod_group: Callable[[], str], size_max: int
) -> Membership | None:
    """Return the group of a new Pod that `user` creates, by the first of the sources that names one.

    Annotations come first, and JobSet before Job: the Pods of a JobSet are those of its Jobs.

    `read_pod_group` returns its `spec.schedulingGroup.podGroupName`. GroupError: its size is missing, or cannot be.
    """
    owner = find_owning_controller(user, pod)
    for source in sorted(sources, key=_PRECEDENCE.__getitem__):
        found = read_pod_group() if source is GroupSource.POD_GROUP else _READERS[source](pod, owner)
        if isinstance(found, str):
            found = Membership(source, found) if found else None
        if found is not None:
            if source is not GroupSource.JOB:  # an owner's name is one, or not known yet in a review
                _check_name(_NAME_FIELDS[source], found.name)
            if source is GroupSource.ANNOTATIONS and found.index:
                _check_name(_format(_INDEX_ANNOTATION), found.index)
            _check_size(found, size_max)
            return found
    return None


def _check_name(field: str, name: str) -> None:
    """Refuse what is no name: it becomes a part of paths and of messages."""
    if _NAME.fullmatch(name) is None:
        remedy = "write at most 253 letters, digits, '-', '_' and '.', with a letter or digit at both ends"
        raise GroupError(field, f"{field} is {name[:_SHOWN_MAX]!r}, no name: {remedy}")


def _check_size(found: Membership, size_max: int) -> None:
    if found.size > size_max:
        field = _SIZE_FIELDS[found.source]
        raise GroupError(
            field, f"{field} is {found.size}, above quota.queue.groups.maxSize {size_max}: make it smaller"
        )


def _read_ours(pod: Pod, _: OwnerReference | None) -> Membership | None:
    annotations = pod.annotations
    name = annotations.get(NAME_ANNOTATION, "")
    if not name:
        if SIZE_ANNOTATION in annotations:
            field = _format(SIZE_ANNOTATION)
            raise GroupError(field, f"{field} is set without {NAME_ANNOTATION}: add the group's name, or remove it")
        return None
    size = _read_size(annotations, SIZE_ANNOTATION)
    return Membership(GroupSource.ANNOTATIONS, name, size=size, index=annotations.get(_INDEX_ANNOTATION, ""))


def _read_kueue(pod: Pod, _: OwnerReference | None) -> Membership | None:
    name = pod.labels.get(f"{_KUEUE}name", "")
    if not name:
        return None
    size = _read_size(pod.annotations, f"{_KUEUE}total-count")
    return Membership(GroupSource.KUEUE, name, size=size, index=pod.labels.get(f"{_KUEUE}pod-index", ""))


def _read_leader_worker_set(pod: Pod, _: OwnerReference | None) -> Membership | None:
    labels = pod.labels
    key = labels.get(f"{_LEADER_WORKER_SET}group-key", "")
    if not key:
        return None
    size, index = _read_size(pod.annotations, f"{_LEADER_WORKER_SET}size"), f"{_LEADER_WORKER_SET}worker-index"
    if size > 1 and (exclusive := f"{_LEADER_WORKER_SET}exclusive-topology") in pod.annotations:
        field, remedy = _format(exclusive), "remove it, or have an admin leave LeaderWorkerSet out of groups.from"
        raise GroupError(field, f"{field}: workers are created only when their leader is on a node: {remedy}")
    return Membership(GroupSource.LEADER_WORKER_SET, key, size=size, index=labels.get(index, ""))


def _read_job(pod: Pod, owner: OwnerReference | None) -> Membership | None:
    """Return the group of a Pod that the Job controller creates: a tenant can name any owner."""
    if owner is None or owner.kind != "Job" or not owner.is_in_group("batch"):
        return None
    return Membership(GroupSource.JOB, owner.name, owner.uid, index=pod.annotations.get(_JOB_INDEX, ""))


def _read_job_set(pod: Pod, owner: OwnerReference | None) -> Membership | None:
    labels = pod.labels
    name = labels.get(f"{_JOB_SET}name", "")
    if not name or owner is None or owner.kind != "Job":
        return None
    index = pod.annotations.get(_JOB_INDEX, "")
    return Membership(
        GroupSource.JOB_SET, name, labels.get(f"{_JOB_SET}uid", ""), index=f"{owner.name}/{index}" if index else ""
    )


def _read_coscheduling(pod: Pod, _: OwnerReference | None) -> str:
    return pod.labels.get(_COSCHEDULING, "")


def _read_volcano(pod: Pod, _: OwnerReference | None) -> str:
    return pod.annotations.get(_VOLCANO, "")


_READERS: Mapping[GroupSource, Callable[[Pod, OwnerReference | None], Membership | str | None]] = {
    GroupSource.ANNOTATIONS: _read_ours,
    GroupSource.JOB: _read_job,
    GroupSource.JOB_SET: _read_job_set,
    GroupSource.LEADER_WORKER_SET: _read_leader_worker_set,
    GroupSource.KUEUE: _read_kueue,
    GroupSource.COSCHEDULING: _read_coscheduling,
    GroupSource.VOLCANO: _read_volcano,
}


def _read_size(annotations: Mapping[str, str], key: str) -> int:
    """Return a size from 1 on. GroupError: it is missing, or no such number."""
    text, field = annotations.get(key), _format(key)
    if text is None:
        raise GroupError(field, f"{field} is missing: write how many Pods the group has")
    if not (text.isascii() and text.isdigit() and int(text[:10]) and len(text) <= 9):  # noqa: PLR2004  fits 32 bits
        raise GroupError(
            field, f"{field} is {text[:_SHOWN_MAX]!r}, no number from 1: write how many Pods the group has"
        )
    return int(text)


def _format(annotation: str) -> str:
    return f"metadata.annotations[{annotation}]"


_SIZE_FIELDS = {
    GroupSource.ANNOTATIONS: _format(SIZE_ANNOTATION),
    GroupSource.KUEUE: _format(f"{_KUEUE}total-count"),
    GroupSource.LEADER_WORKER_SET: _format(f"{_LEADER_WORKER_SET}size"),
}
_NAME_FIELDS = {
    GroupSource.ANNOTATIONS: _format(NAME_ANNOTATION),
    GroupSource.JOB_SET: f"metadata.labels[{_JOB_SET}name]",
    GroupSource.LEADER_WORKER_SET: f"metadata.labels[{_LEADER_WORKER_SET}group-key]",
    GroupSource.POD_GROUP: "spec.schedulingGroup.podGroupName",
    GroupSource.KUEUE: f"metadata.labels[{_KUEUE}name]",
    GroupSource.COSCHEDULING: f"metadata.labels[{_COSCHEDULING}]",
    GroupSource.VOLCANO: _format(_VOLCANO),
}
