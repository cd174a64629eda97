"""Removal of the gates of charged groups: of each one member first, then the others."""

from collections.abc import Sequence

from webhook.controller.release.gated_pods import GatedPod
from webhook.controller.release.removal_attempts import RemovalAttempts
from webhook.core.quota import CounterPlan

_REFUSALS_MAX = 16
"""Refusals in a row from which the members of a group are tried one a second: the cause may concern all of them."""


class GroupRemoval:
    """The members of a group whose gates may still be there.

    Until a gate is removed, one member is tried: if that is refused, nothing has happened to the group.
    """

    def __init__(self, plan: CounterPlan, pods: Sequence[GatedPod]) -> None:
        self.plan = plan
        self.pods = {pod.waiting.uid: pod for pod in pods}
        self.untried = dict(self.pods)
        """Those to try as soon as the rate of releases allows it, in order."""
        self.has_begun = False
        """Whether a gate was removed, or may have been: the group is not taken back."""
        self.is_given_up = False
        """Whether charges were refunded: it must not begin any more."""
        self._first = ""
        """Who is tried before the others; "" if nobody is."""
        self._refusals = 0
        """In a row."""

    @property
    def namespace(self) -> str:
        return next(iter(self.pods.values())).namespace

    @property
    def is_ready(self) -> bool:
        """Whether the next member may be tried."""
        return bool(self.untried) and not self.is_given_up and (self.has_begun or not self._first)

    @property
    def is_refused(self) -> bool:
        """Whether the last members were all refused."""
        return self._refusals >= _REFUSALS_MAX

    def note_refusal(self) -> None:
        self._refusals += 1

    def take_next(self) -> GatedPod:
        """Return the next member to try."""
        uid = self._first = next(iter(self.untried))
        return self.untried.pop(uid)

    def remove(self, uid: str, *, has_begun: bool) -> None:
        """Forget a member whose gate is gone, or that is gone itself."""
        self.has_begun |= has_begun
        self._refusals = 0
        self.pods.pop(uid)
        self.untried.pop(uid, None)
        if uid == self._first:
            self._first = ""


class GroupRemovals:
    """The groups whose gates are being removed."""

    def __init__(self, attempts: RemovalAttempts) -> None:
        self._attempts = attempts
        self._of: dict[str, GroupRemoval] = {}
        """By uid of a member."""
        self._groups: list[GroupRemoval] = []

    def find(self, uid: str) -> GroupRemoval | None:
        """Return the group of a member."""
        return self._of.get(uid)

    def has_begun(self, uid: str) -> bool:
        """Return whether a Pod is in a group of which others are released, or may be."""
        group = self._of.get(uid)
        return group is not None and group.has_begun

    def start(self, plan: CounterPlan, pods: Sequence[GatedPod]) -> None:
        """Start to remove the gates of a charged group."""
        group = GroupRemoval(plan, pods)
        self._groups.append(group)
        self._of.update(dict.fromkeys(group.pods, group))
        self.go_on(group)

    def forget(self, uid: str) -> None:
        """Forget a member."""
        del self._of[uid]

    def try_all(self, group: GroupRemoval) -> None:
        """Try all members of a group soon: the cause of their refusals may be gone."""
        group.untried.update((uid, pod) for uid, pod in group.pods.items() if uid not in self._attempts)

    def go_on(self, group: GroupRemoval) -> None:
        """Try members as far as there is room for them."""
        while group.is_ready and not group.is_refused and self._has_room(group):
            self._attempts.start(group.plan, group.take_next())

    def go_on_all(self) -> None:
        """Try members for which there was no room before."""
        self._groups = [group for group in self._groups if group.pods]
        for group in self._groups:
            self.go_on(group)

    def try_refused(self) -> None:
        """Try one member of each group of which the last ones were refused."""
        for group in self._groups:
            if group.is_ready and group.is_refused and self._has_room(group):
                self._attempts.start(group.plan, group.take_next())

    def _has_room(self, group: GroupRemoval) -> bool:
        """Return whether the next member may be tried: one that waits for a slot in vain would hold its service."""
        namespace = group.namespace
        return not group.has_begun or (self._attempts.has_room(namespace) and not self._attempts.is_stuck(namespace))
