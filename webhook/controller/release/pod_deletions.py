"""Deletions of Pods that have waited for `maxWait`: concurrent ones, which no release waits for."""

from collections.abc import Callable
from contextlib import suppress

from webhook.controller.release.gated_pods import GatedPod
from webhook.controller.release.observed_gates import ObservedGates
from webhook.controller.release.rate_limit import ReleaseRateLimit
from webhook.controller.release.removal import GateRemoval
from webhook.controller.release.removal_attempts import Answer, RemovalAttempts
from webhook.core.quota import CounterPlan
from webhook.errors import GateError, StoreUnavailableError
from webhook.ports import QueueIndex

_UNTRIED = "cannot delete: no answer in time to other calls in its namespace"


class PodDeletions:
    """Each counts in the rate of releases. They have slots of their own, shared by namespaces as those of removals.

    A Pod that is not deleted is set aside, as one that is not released. It expires again when it waits again.
    """

    def __init__(
        self,
        gates: ObservedGates,
        index: QueueIndex,
        limit: ReleaseRateLimit,
        removal: GateRemoval,
        now_us: Callable[[], int],
        on_deleted: Callable[[CounterPlan, GatedPod], None],
    ) -> None:
        """`on_deleted` is called with each Pod that is deleted, or gone."""
        self._index = index
        self._removal = removal
        self._on_deleted = on_deleted
        self._gone: set[str] = set()
        """Pods that were deleted, or whose gates were removed, before the API server has answered."""
        self._attempts = RemovalAttempts(gates, limit, now_us, self._note_answer, self._gone.discard, deletes=True)
        self.has_room, self.ping, self.cancel = self._attempts.has_room, self._attempts.ping, self._attempts.cancel

    def __contains__(self, uid: str) -> bool:
        return uid in self._attempts

    def start(self, plan: CounterPlan, pod: GatedPod) -> None:
        """Start to delete a Pod that is in no queue."""
        self._attempts.start(plan, pod)

    def note_gone(self, uid: str) -> None:
        """Note that a Pod waits no longer, if it is being deleted: it must not wait again."""
        if uid in self:
            self._gone.add(uid)

    async def _note_answer(self, plan: CounterPlan | None, pod: GatedPod, answer: Answer) -> None:
        uid = pod.waiting.uid
        if not isinstance(answer, bool) and uid not in self._gone:
            self._removal.set_aside(pod, answer or GateError(f"{pod.namespace}/{pod.name}", _UNTRIED))
        elif plan is not None:
            self._removal.remove(uid)
            self._on_deleted(plan, pod)
            with suppress(StoreUnavailableError):  # then the repair of the index does it
                await self._index.forget(plan, [uid])
