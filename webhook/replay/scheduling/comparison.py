"""Comparison of schedulers on the same nodes and Pods: the default one, and one with the extender."""

from collections.abc import Sequence

from msgspec import Struct

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.pod import Pod
from webhook.replay.scheduling.extender import ExtenderInVirtualTime, without_assumed_load
from webhook.replay.scheduling.model_gaps import NotModelled, not_modelled
from webhook.replay.scheduling.nodes import SimulatedNode
from webhook.replay.scheduling.pods import ScheduledPod
from webhook.replay.scheduling.simulation import SchedulerOutcome, SchedulerSimulation


class SchedulerComparison(Struct, frozen=True, rename="camel"):
    """The outcome of each scheduler, over the same virtual time."""

    pods: int
    duration_seconds: float
    default: SchedulerOutcome
    """The model of kube-scheduler alone."""
    without_assumed_load: SchedulerOutcome
    """With an extender that knows only what is measured: many Pods at once go to the same cool node."""
    extender: SchedulerOutcome
    not_modelled: tuple[NotModelled, ...] = ()


async def compared(
    policy: CompiledPolicy,
    nodes: Sequence[SimulatedNode],
    running: Sequence[Pod],
    pods: Sequence[ScheduledPod],
    after_seconds: float,
    weight: int,
) -> SchedulerComparison:
    """Return the outcomes, until `after_seconds` after the last Pod was created or has ended."""
    last_seconds = max(max(one.at_seconds, one.ends_seconds or 0.0) for one in pods)
    until_seconds = last_seconds + after_seconds

    async def run(rules: CompiledPolicy | None) -> SchedulerOutcome:
        extender = None if rules is None else ExtenderInVirtualTime(rules, nodes)
        return await SchedulerSimulation(nodes, running, extender, weight).run(pods, until_seconds)

    return SchedulerComparison(
        *(len(pods), until_seconds),
        *(await run(None), await run(without_assumed_load(policy)), await run(policy)),
        not_modelled(policy, nodes, running, [one.pod for one in pods]),
    )
