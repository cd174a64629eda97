"""Rules of `quota.queue.groups`: when groups have an effect, and which of them could never be released."""

from collections.abc import Iterator

from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.policy_fields import GROUP_SIZE_MAX, GroupSource, QueueRules, WhenExceeded, WhenExpired

_PLACED = (GroupSource.POD_GROUP, GroupSource.COSCHEDULING, GroupSource.VOLCANO)
"""Sources whose schedulers place all Pods of a group, or none."""
_OF_JOBS = (GroupSource.JOB, GroupSource.JOB_SET)


def groups_can_wait(service: DocumentPart) -> Iterator[Problem]:
    """`quota.queue.groups`: only with `quota.whenExceeded: Queue`. Refuse it without."""
    groups, exceeded = service.get("quota", "queue", "groups"), service.get("quota", "whenExceeded")
    if groups is None or (exceeded is not None and exceeded.read(WhenExceeded) is WhenExceeded.QUEUE):
        return
    reason = "Pods of a group wait for each other in the queue of the quota, and there is none"
    yield groups.report_field(reason, "write whenExceeded: Queue, or remove groups")


def groups_are_placed_together(service: DocumentPart) -> Iterator[Problem]:
    """`groups.from`: warn if none of its sources tells a scheduler, too, that the Pods belong together."""
    sources = service.get("quota", "queue", "groups", "from")
    if sources is None or not set(_PLACED).isdisjoint(sources.read(tuple[GroupSource, ...])):
        return
    yield sources.report_field(
        "what is promised is quota, not placement: nodes may have room for a part of a released group only",
        "add PodGroup, Coscheduling or Volcano and give the Pods such a group, or expect that",
    )


def members_of_jobs_are_kept(service: DocumentPart) -> Iterator[Problem]:
    """`queue.whenExpired`: warn about Delete beside groups of Jobs, whose `backoffLimit` counts deleted Pods."""
    queue = service.get("quota", "queue")
    sources = service.get("quota", "queue", "groups", "from")
    if queue is None or sources is None or set(_OF_JOBS).isdisjoint(sources.read(tuple[GroupSource, ...])):
        return
    expired = queue.get("whenExpired")
    reason = "a member of a Job that is deleted while it waits counts towards the Job's backoffLimit"
    if expired is None:
        yield queue.report_missing("whenExpired", f"the default is Delete, and {reason}", "write whenExpired: Keep")
    elif expired.read(WhenExpired) is WhenExpired.DELETE:
        yield expired.report(reason, "write whenExpired: Keep")


def groups_fit_the_queue(service: DocumentPart) -> Iterator[Problem]:
    """`queue.maxPods`: warn if it is below `groups.maxSize`. `windows[].hard.pods`: warn if a written maxSize is above.

    Without either of the first two, the defaults hold, and nothing is said.
    """
    queue, groups = service.get("quota", "queue"), service.get("quota", "queue", "groups")
    if queue is None or groups is None:
        return
    written, most = groups.get("maxSize"), queue.get("maxPods")
    size = GROUP_SIZE_MAX if written is None else written.read(int)
    waiting = QueueRules().max_pods if most is None else most.read(int)
    if waiting < size and (written is not None or most is not None):
        shown = written if written is not None else groups
        yield shown.report_field(
            f"a group of {waiting + 1} to {size} Pods never waits as a whole: queue.maxPods is {waiting}",
            f"write maxSize: {waiting}, or raise queue.maxPods" if waiting else "raise queue.maxPods",
        )
    if written is not None:
        for hard in service.select("quota", "windows", "*", "hard", "pods"):
            yield from stop_at_invalid(_check_limit(hard, size))


def _check_limit(hard: DocumentPart, size: int) -> Iterator[Problem]:
    most = hard.read(Quantity).value
    if most < size:
        reason = f"a group of more than {hard.node.shown} Pods never fits, and groups.maxSize is {size}"
        yield hard.report(reason, f"write maxSize: {hard.node.shown} in groups, or raise the limit")
