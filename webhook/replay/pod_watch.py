"""What a controller does in a replay: it has listed all Pods at 0, and sees at once what becomes of each."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from webhook.core.kubernetes.pod import Pod
from webhook.core.quota import CounterPlan, Sighting
from webhook.core.quota.pod_cost import counted, taken
from webhook.replay.store_outage import StoreOutage

Plans = Mapping[str, CounterPlan]
"""Those of the policy in force, by service."""


@dataclass(frozen=True, slots=True)
class _Watched:
    service: str
    pod: Pod
    lives: bool = True


class Watching:
    """Pods that came in during the replay, until their end has been told. It goes by service, as labels do."""

    def __init__(self, outage: StoreOutage) -> None:
        self._outage = outage
        self._pods: dict[str, _Watched] = {}

    async def came(self, uid: str, service: str, pod: Mapping[str, Any], plans: Plans) -> None:
        """See a Pod that was admitted, or resized, as it is stored."""
        self._pods[uid] = _Watched(service, msgspec.json.decode(msgspec.json.encode(pod), type=Pod))
        await self._tell([uid], plans)

    async def ended(self, uid: str, plans: Plans) -> None:
        """See that a Pod lives no longer."""
        if uid in self._pods:
            self._pods[uid] = replace(self._pods[uid], lives=False)
            await self._tell([uid], plans)

    def never_was(self, uid: str) -> None:
        """Forget a Pod that is refunded."""
        self._pods.pop(uid, None)

    async def list_all(self, plans: Plans) -> None:
        """Tell of everybody anew, as after a change of the policy, or when the store is back."""
        await self._tell(tuple(self._pods), plans)
        await self.confirm(plans)

    async def confirm(self, plans: Plans) -> None:
        """Say that all Pods are known."""
        for plan in plans.values():
            if plan.standing is not None:
                await self._outage.mark_complete(plan)

    async def _tell(self, uids: Iterable[str], plans: Plans) -> None:
        """Tell what can be told now: an end once, a life as often as one likes."""
        for uid in uids:
            watched = self._pods[uid]
            plan = plans.get(watched.service)
            if plan is None or plan.standing is None:
                continue
            if await self._outage.observe(plan, _sighting(uid, watched, plan)) and not watched.lives:
                del self._pods[uid]


def _sighting(uid: str, watched: _Watched, plan: CounterPlan) -> Sighting:
    """Return what the watch shows. All were charged when they came: nobody is charged afterwards."""
    metadata = watched.pod.metadata
    cost = taken(watched.pod, counted(plan))
    return Sighting(metadata.namespace, metadata.name, uid, cost, watched.lives)
