"""Live Pods of stores under contract: sightings, marks and lists."""

from typing import Any, Protocol

from tests.contract.counter_store import ONE
from webhook.core.quota import CounterPlan, Seen, Sighting
from webhook.ports import CounterStore, PodLedger


class Store(CounterStore, PodLedger, Protocol):
    """The interface of all stores."""


async def observe(
    store: Store, plan: CounterPlan, uid: str, cost: dict[str, int] = ONE, namespace: str = "payments", **more: Any
) -> Seen:
    (seen,) = await store.observe(plan, [Sighting(namespace, f"{uid}-pod", uid, cost, **{"lives": True, **more})])
    return seen


async def mark_complete(store: Store, plan: CounterPlan) -> None:
    await store.mark_complete(plan, await store.list_scopes(plan))


async def list_live_uids(store: Store, plan: CounterPlan, scope: str = "") -> set[str]:
    found, after = await store.list_live(plan, scope)
    uids = set(found)
    while after:
        found, after = await store.list_live(plan, scope, after)
        uids |= set(found)
    return uids
