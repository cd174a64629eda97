"""Removal of the gates of one charged group: of one member first, then of the others."""

from collections.abc import Sequence

from webhook.controller.release.gated_pods import GatedPod
from webhook.core.quota import CounterPlan


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

    @property
    def namespace(self) -> str:
        return next(iter(self.pods.values())).namespace

    @property
    def is_ready(self) -> bool:
        """Whether the next member may be tried."""
        return bool(self.untried) and not self.is_given_up and (self.has_begun or not self._first)

    def take_next(self) -> GatedPod:
        """Return the next member to try."""
        uid = self._first = next(iter(self.untried))
        return self.untried.pop(uid)

    def remove(self, uid: str, *, has_begun: bool) -> None:
        """Forget a member whose gate is gone, or that is gone itself."""
        self.has_begun |= has_begun
        self.pods.pop(uid)
        self.untried.pop(uid, None)
        if uid == self._first:
            self._first = ""
