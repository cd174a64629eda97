"""Plan of a rollout before it begins: when each step would come, and which workloads it would reach."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.kubernetes.timestamps import format_rfc3339
from webhook.core.policy_fields.rollout import Canary, CanaryBy, CanaryStep, Rollout
from webhook.core.rollout.selection import Reach
from webhook.core.rollout.state import Phase


class PlannedWorkload(Struct, frozen=True):
    """A workload of a service."""

    namespace: str
    kind: str
    name: str
    service: str


class PlannedStep(Struct, frozen=True, rename="camel"):
    """One step. `begins` is when it comes at the earliest: too little data, a pause or a symptom delay or end it.

    `workloads`: how many it reaches of all, together with the steps before it.
    """

    phase: str
    number: int
    begins: str
    asks: str
    """What the stanza says: `10% of reviews`, `namespaces staging-*`, `25%`."""
    workloads: int
    of: int
    namespaces: tuple[str, ...] = ()
    """Namespaces with a workload that it reaches."""
    services: tuple[str, ...] = ()
    """With `by: Service`: the services that it reaches."""


_EVERYWHERE = "everywhere"


def plan_steps(
    stanza: Rollout | None,
    candidate: str,
    workloads: Sequence[PlannedWorkload],
    service_keys: Mapping[str, str],
    now_us: int,
) -> tuple[PlannedStep, ...]:
    """Return the steps that a candidate would take under the stanza of the policy in force, None for none.

    `service_keys`: the key by which each service moves.
    """
    return tuple(_plan(stanza, candidate, workloads, service_keys, now_us))


def _plan(
    stanza: Rollout | None,
    candidate: str,
    workloads: Sequence[PlannedWorkload],
    service_keys: Mapping[str, str],
    at_us: int,
) -> Iterator[PlannedStep]:
    of, number = len(workloads), 0
    if stanza is not None and stanza.shadow is not None:
        number += 1
        asks = f"{stanza.shadow.sample} of reviews, without effect"
        yield PlannedStep(Phase.SHADOW, number, format_rfc3339(at_us), asks, 0, of)
        at_us += stanza.shadow.duration.us
    canary = None if stanza is None else stanza.canary
    if canary is not None:
        for index, step in enumerate(canary.steps):
            number += 1
            reach = Reach.from_canary(canary, index)
            reached = [
                workload
                for workload in workloads
                if reach.includes(candidate, workload.namespace, _find_key(workload, canary, service_keys))
            ]
            asks = _describe_step(canary, step)
            planned = PlannedStep(Phase.CANARY, number, format_rfc3339(at_us), asks, len(reached), of)
            yield _add_places(planned, canary, reached)
            at_us += step.duration.us
    yield PlannedStep(Phase.STABLE, number + 1, format_rfc3339(at_us), _EVERYWHERE, of, of, _list_namespaces(workloads))


def _describe_step(canary: Canary, step: CanaryStep) -> str:
    return f"{step.percent}% by {canary.by}" if step.percent else f"namespaces {', '.join(step.namespaces)}"


def _add_places(step: PlannedStep, canary: Canary, reached: Sequence[PlannedWorkload]) -> PlannedStep:
    services = {workload.service for workload in reached} if canary.by is CanaryBy.SERVICE else ()
    return replace(step, namespaces=_list_namespaces(reached), services=tuple(sorted(services)))


def _find_key(workload: PlannedWorkload, canary: Canary, service_keys: Mapping[str, str]) -> str:
    """Return what moves as a whole with a workload, as the selection of requests names it."""
    if canary.by is CanaryBy.SERVICE:
        return service_keys.get(workload.service, "")
    if canary.by is CanaryBy.NAMESPACE:
        return workload.namespace
    return f"{workload.namespace}/{workload.kind}/{workload.name}"


def _list_namespaces(workloads: Sequence[PlannedWorkload]) -> tuple[str, ...]:
    return tuple(sorted({workload.namespace for workload in workloads}))
