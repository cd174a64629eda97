"""Charging of waiting Pods: one request to the store, and what a refusal says about the next attempt."""

from webhook.controller.release.gated_pods import GatedPod
from webhook.core.breaker import State
from webhook.core.quota import Acquire, CounterPlan, DeniedBy, Holder, Receipt
from webhook.errors import StoreUnavailableError
from webhook.ports import CounterStore

AGAIN_US = 1_000_000
"""After a refusal whose end nobody knows: of live Pods, probes in flight, or a store without an answer."""
_NEVER_US = 60_000_000
"""A limit was lowered below what the Pod needs: it can pass only under another policy."""


async def charge(store: CounterStore, plan: CounterPlan, pod: GatedPod) -> Receipt | None:
    """Charge a Pod if it fits; None if the store gives no answer. Concurrent charges share one call."""
    waiting = pod.waiting
    # A refusal is no quota event: nobody asked.
    asked = Acquire(plan, pod.namespace, waiting.uid, waiting.cost, pod.source, name=pod.name, counts_as_event=False)
    try:
        return await store.acquire(asked)
    except StoreUnavailableError:
        return None


def obstacle(receipt: Receipt) -> tuple[int, Holder]:
    """Return until when a refused Pod is passed, and whose limit refuses it."""
    view = receipt.breaker
    if receipt.refused is DeniedBy.BREAKER:
        is_open = view is not None and view.state in {State.OPEN, State.FORCED_OPEN}
        return (view.open_until_us if view is not None and is_open else receipt.at_us + AGAIN_US), Holder.SERVICE
    holders = {use.of for use in receipt.over}
    by = holders.pop() if len(holders) == 1 else Holder.SERVICE
    if receipt.free_at_us is None:
        return receipt.at_us + _NEVER_US, by
    ends_unknown = any(use.of is Holder.STANDING for use in receipt.over)
    return max(receipt.free_at_us, receipt.at_us + AGAIN_US if ends_unknown else 0), by
