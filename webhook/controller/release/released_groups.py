"""Released groups: an observer of the watch that knows of which groups members are in the cluster without a gate.

Of those that have ended it knows when they were scheduled, and whether they have succeeded.
"""

from collections import Counter
from collections.abc import Callable, Collection

from msgspec import Struct

from webhook.controller.release.gated_groups import GroupFacts, GroupKey
from webhook.controller.release.gated_pods import read_attempt, read_run
from webhook.core.admission.mutation import has_queue_gate
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.groups.completeness import Size
from webhook.core.groups.membership import GROUP_ANNOTATION, Membership
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods.ownership import OwnedPod, read_scheduled_us

_ENDED = frozenset({"Succeeded", "Failed"})


class _EndedMember(Struct, frozen=True, gc=False):
    scheduled_us: int
    index: str
    run: str
    has_succeeded: bool


class ReleasedGroups:
    """A `PodObserver`. A Pod that comes when members of its group run is released by itself: it replaces one."""

    def __init__(self) -> None:
        self._key_of: dict[str, GroupKey] = {}
        self._live = Counter[GroupKey]()
        self._ended: dict[GroupKey, dict[str, _EndedMember]] = {}
        """By group and uid."""

    def __contains__(self, key: GroupKey) -> bool:
        return self._live[key] > 0

    def find_last_start_us(self, key: GroupKey) -> int:
        """As in `GroupFacts`."""
        return max((member.scheduled_us for member in self._ended.get(key, {}).values()), default=0)

    def count_succeeded(self, key: GroupKey, runs: Collection[str]) -> int:
        """As in `GroupFacts`."""
        found = self._ended.get(key, {}).items()
        return len({member.index or uid for uid, member in found if member.has_succeeded and member.run in runs})

    def on_list_begun(self, compiled: CompiledPolicy | None) -> None:
        """Do nothing: Pods that are not in the list are reported as deleted."""

    def on_list_complete(self) -> None:
        """Do nothing, as above."""

    def on_listed(self, pod: Pod, found: OwnedPod | None) -> None:
        self.on_changed(pod, found)

    def on_changed(self, pod: Pod, found: OwnedPod | None) -> None:
        uid, text = pod.metadata.uid, pod.annotations.get(GROUP_ANNOTATION)
        if text is None and uid not in self._key_of:
            return
        is_leaving = pod.metadata.deletion_timestamp is not None
        membership = None if text is None or is_leaving or has_queue_gate(pod) else Membership.decode(text)
        self.on_deleted(uid)
        if membership is not None and found is not None:
            key = GroupKey(pod.metadata.namespace, found.service, *membership.key, read_attempt(pod))
            self._key_of[uid] = key
            if pod.status.phase in _ENDED:
                ended = _EndedMember(
                    read_scheduled_us(pod), membership.index, read_run(pod), pod.status.phase == "Succeeded"
                )
                self._ended.setdefault(key, {})[uid] = ended
            else:
                self._live[key] += 1

    def on_deleted(self, uid: str) -> None:
        key = self._key_of.pop(uid, None)
        if key is None:
            return
        ended = self._ended.get(key, {})
        if ended.pop(uid, None) is None:
            self._live[key] -= 1
            if not self._live[key]:
                del self._live[key]
        elif not ended:
            del self._ended[key]


def build_group_facts(released: ReleasedGroups, find_size: Callable[[GroupKey], Size | None]) -> GroupFacts:
    """Return what the watch shows of groups, beside their sizes."""
    return GroupFacts(find_size, released.__contains__, released.find_last_start_us, released.count_succeeded)
