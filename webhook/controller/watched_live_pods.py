"""Live Pods as the watch has them: what the store should have, apart from states that are still to be sent."""

import asyncio
from collections.abc import Collection

from webhook.controller.pod_lifecycle import PodTracker
from webhook.controller.reports import ControllerTiming
from webhook.controller.sighting_sender import SightingSender
from webhook.core.pods.ownership import OwnedPod
from webhook.core.quota import Cost, StandingPlan, WindowPlan, clip_amounts
from webhook.ports import Clock

_SENT_POLLS_MAX = 50


class WatchedLivePods:
    """The view of those who repair the store."""

    def __init__(
        self, tracker: PodTracker, sighting_sender: SightingSender, clock: Clock, timing: ControllerTiming
    ) -> None:
        self._tracker = tracker
        self._pending = tracker.pending
        self._unknown = sighting_sender.unknown
        self._clock = clock
        self._timing = timing

    def list_live(self, services: Collection[str]) -> dict[str, dict[str, OwnedPod]]:
        """Return, by service, the live Pods whose state the store has received."""
        now_us = self._clock.now_us()
        found: dict[str, dict[str, OwnedPod]] = {service: {} for service in services}
        for uid, pod in self._tracker.index:
            if pod.service in found and pod.is_live(now_us) and uid not in self._unknown:
                found[pod.service][uid] = pod
        for service, pods in found.items():
            for uid in self._pending.list_uids(service):
                pods.pop(uid, None)
        return found

    def list_underway(self, services: Collection[str]) -> set[str]:
        """Return the Pods of these services whose state is still to be sent."""
        return {uid for service in services for uid in self._pending.list_uids(service)}

    def find(self, uid: str, services: Collection[str]) -> OwnedPod | None:
        """Return a Pod that lives and belongs to one of these services."""
        pod = self._tracker.index.get(uid)
        is_found = pod is not None and pod.service in services and pod.is_live(self._clock.now_us())
        return pod if is_found else None

    def is_live(self, uid: str, services: Collection[str]) -> bool:
        return self.find(uid, services) is not None

    def differs(self, uid: str, pod: OwnedPod, held: Cost, limits: StandingPlan | WindowPlan) -> bool:
        """Return whether a live Pod counts by other amounts in the store than the watch shows.

        A resize is in the store before the watch shows it, or for nothing if it was refused afterwards.
        """
        shown = limits.select_amounts(pod.standing_cost)
        is_equal = shown == held or clip_amounts(shown) == clip_amounts(held)
        return not is_equal and not self._tracker.is_ahead_of_watch(uid)

    def is_gone(self, uid: str, service: str) -> bool:
        """Return whether a Pod that the store counts is no longer the service's."""
        compiled = self._tracker.compiled
        owner = None if compiled is None else compiled.services.get(service)
        if owner is not None and self._tracker.may_have_lost_label(uid, owner):
            return False
        return not self._tracker.is_ahead_of_watch(uid)

    def is_sent(self, turn: int, services: Collection[str]) -> bool:
        """Return whether all that was to be sent for these services up to a turn has been sent."""
        return all(self._pending.is_sent(turn, service) for service in services)

    async def wait_until_sent(self, services: Collection[str]) -> bool:
        """Wait until all that is pending for these services has been sent; False if that takes too long."""
        turn = self._pending.turn
        for _ in range(_SENT_POLLS_MAX):
            if self.is_sent(turn, services):
                return True
            await asyncio.sleep(self._timing.round_seconds / _SENT_POLLS_MAX)
        return False
