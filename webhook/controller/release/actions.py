"""Release actions: what happens to the Pods that leave a queue, alone or as a group."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from webhook.controller.release.gated_groups import GatedGroup
from webhook.controller.release.gated_pods import GatedPod
from webhook.core.controller.waiting_pod import Member
from webhook.core.policy_fields import WhenExpired
from webhook.core.quota import CounterPlan, QueuePlan

Released = GatedPod | GatedGroup
"""What is charged and released at once."""
DRAINING = QueuePlan(
    for_quota=False,
    for_breaker=False,
    rank=0,
    max_pods=0,
    max_wait_us=0,
    when_expired=WhenExpired.KEEP,
    ageing_us=600_000_000,
    lifted_percent=10,
)
"""For the Pods of a service that no longer queues."""


def build_member(plan: CounterPlan) -> Member:
    """Return a service as a member of the queue of its tag."""
    rules = plan.queue or DRAINING
    return Member(plan.service, rules.rank, rules.ageing_us, rules.lifted_percent, rules.pause is not None)


def keeps_expired(plan: CounterPlan | None) -> bool:
    """Return whether a Pod waits on that has waited for `maxWait`: also without a service, or without a queue."""
    return plan is None or plan.queue is None or plan.queue.keeps_expired


@dataclass(frozen=True, slots=True)
class ReleaseActions:
    """What happens to Pods whose time has come. They raise nothing: a failed release refunds its charge."""

    release: Callable[[Released], Awaitable[None]]
    """Remove the gate of a charged Pod, or the gates of a charged group."""
    keep: Callable[[GatedPod], None]
    """The Pod has waited for `maxWait`, and waits on: called once."""
    delete: Callable[[GatedPod], Awaitable[bool]]
    """The Pod has waited for `maxWait`: remove and delete it. False: there is no room for that now; it waits on."""
