"""Suggestion of limits from past requests: what is read, observed and suggested, and its proof by a replay."""

from collections.abc import Collection, Mapping

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.policy.model import LoadedPolicy, Policy, Service
from webhook.core.policy_fields import Mode, Scope
from webhook.core.policy_fields.nodes import PrometheusSource
from webhook.core.quota import STANDING
from webhook.core.suggestion.limits import (
    CounterUses,
    build_quota,
    build_windows,
    has_limits,
    list_unseen_windows,
    suggest_limits,
    suggest_pool,
)
from webhook.core.suggestion.seen_time import SeenTime
from webhook.core.suggestion.suggestion import SuggestedPool, SuggestedService, Suggestion
from webhook.errors import NoSuchServiceError, UserError
from webhook.operations.named_policies import load_named_policy
from webhook.operations.prometheus_history import DEFAULT_SINCE, PrometheusHistory, read_history
from webhook.operations.recorded_events import (
    RecordedEvents,
    RequestSource,
    make_replay,
    read_namespace_labels,
    read_recorded,
)
from webhook.operations.service_pods import observe_pods
from webhook.replay.limit_prover import LimitProver, ObservedReplay
from webhook.replay.observed_requests import ObservedService, ObservedUses

_SECOND_US = 1_000_000
Labels = Mapping[str, Mapping[str, str]]


class SuggestionInputs(Struct, frozen=True):
    """What is suggested, and from which requests."""

    policy: str
    """A file, or `live`."""
    service: str
    """"" for all."""
    headroom_percent: int
    source: RequestSource
    prometheus: PrometheusSource | None = None


class Suggested(Struct, frozen=True):
    """A suggestion, and what could not be read for it."""

    suggestion: Suggestion
    warnings: tuple[str, ...] = ()


async def suggest_policy(inputs: SuggestionInputs) -> Suggested:
    """Observe past requests, and suggest limits. UserError: an input cannot be read; NoSuchServiceError."""
    loaded, found = await load_named_policy(inputs.policy, inputs.source.kubeconfig)
    names = _select_services(loaded.policy, inputs.service)
    history = await _read_history(inputs)
    past, failures = await _read_events(inputs)
    warnings = [*found, *failures, *past.warnings]
    labels = await read_namespace_labels(inputs.source, warnings)
    seen = await _observe(loaded, past, labels)
    services = tuple(_suggest_service(seen, name, past, history, inputs.headroom_percent) for name in names)
    services = await _add_live_pods(services, inputs, warnings)
    pools = tuple(
        SuggestedPool(
            pool,
            suggest_pool(pool.windows, CounterUses({"": seen.pools[pool.name]}, seen.seconds), inputs.headroom_percent),
        )
        for pool in loaded.policy.pools
        if not inputs.service
    )
    candidate = _build_candidate(loaded, services, pools)
    proving = LimitProver(_make_observed_replay(candidate, past, labels), seen.admitted)
    for event in past.read():
        await proving.add(event)
    suggestion = Suggestion(
        source=past.name,
        requests=seen.requests,
        headroom_percent=inputs.headroom_percent,
        services=tuple(replace(found, proof=proving.find_proof(found.service.name)) for found in services),
        pools=pools,
        time=None if seen.first_us is None else SeenTime(seen.first_us, seen.last_us, past.since is not None),
        history=history.time,
        exempts_daemon_sets=loaded.policy.exemptions.daemon_sets,
        left_out={**past.left_out, **seen.left_out},
        unowned=dict(seen.unowned.most_common()),
        notes=tuple(_list_notes(past, inputs.source.limit)),
    )
    return Suggested(suggestion, tuple(warnings))


async def _read_history(inputs: SuggestionInputs) -> PrometheusHistory:
    if inputs.prometheus is None:
        return PrometheusHistory()
    return await read_history(inputs.prometheus, inputs.source.since or DEFAULT_SINCE, inputs.service)


async def _read_events(inputs: SuggestionInputs) -> tuple[RecordedEvents, list[str]]:
    """Return the requests. With Prometheus they may be missing: the warning says why."""
    try:
        return await read_recorded(inputs.source), []
    except UserError as error:
        if inputs.prometheus is None or inputs.source.record is not None or inputs.source.decisions is not None:
            raise
        return RecordedEvents(lambda: iter(()), "servers"), [f"no decisions were read: {error}"]


def _select_services(policy: Policy, wanted: str) -> list[str]:
    names = [service.name for service in policy.services]
    if wanted and wanted not in names:
        raise NoSuchServiceError(f"no service {wanted!r}: the policy has {', '.join(names)}")
    return [wanted] if wanted else names


async def _observe(loaded: LoadedPolicy, past: RecordedEvents, labels: Labels) -> ObservedUses:
    origin_us = 0 if past.since is None else round(past.since.timestamp() * _SECOND_US)
    requests = _make_observed_replay(loaded, past, labels)
    seen = ObservedUses(loaded.policy, requests, past.verdicts, origin_us)
    for event in past.read():
        await seen.add(event)
    return seen


def _make_observed_replay(loaded: LoadedPolicy, past: RecordedEvents, labels: Labels) -> ObservedReplay:
    if not past.has_ends:  # every Pod of the past would be live
        loaded = replace(loaded, policy=_drop_standing(loaded.policy))
    replayed = make_replay(loaded, labels, past.since)
    return ObservedReplay(replayed, has_ends=past.has_ends, has_starts=past.has_starts)


def _drop_standing(policy: Policy) -> Policy:
    services = tuple(
        replace(service, quota=replace(service.quota, standing=None)) if service.quota is not None else service
        for service in policy.services
    )
    pools = tuple(replace(pool, standing=None) for pool in policy.pools)
    return replace(policy, services=services, pools=pools)


def _suggest_service(
    seen: ObservedUses, name: str, past: RecordedEvents, history: PrometheusHistory, headroom_percent: int
) -> SuggestedService:
    found = seen.services[name]
    measured = history.uses.get(name, {})
    evidence = CounterUses(found.charged, seen.seconds, found.live if past.has_ends else {}, measured)
    return SuggestedService(
        found.service,
        found.requests,
        found.denied,
        found.unfinished,
        suggest_limits(found.service.quota, evidence, headroom_percent),
        outcomes=found.outcomes.measure(),
        breaker=found.outcomes.suggest(),
        notes=(*_list_service_notes(found, past, measured, seen.seconds), *filter(None, [history.notes.get(name)])),
    )


async def _add_live_pods(
    services: tuple[SuggestedService, ...], inputs: SuggestionInputs, warnings: list[str]
) -> tuple[SuggestedService, ...]:
    """Return the services with notes about their Pods, if the cluster is asked and not files alone."""
    source = inputs.source
    if source.record is not None or source.decisions is not None or not source.kubeconfig.exists():
        return services
    lines = await observe_pods(source.kubeconfig, [found.service for found in services], warnings)
    return tuple(replace(found, notes=(*found.notes, *lines.get(found.service.name, ()))) for found in services)


def _list_service_notes(
    found: ObservedService, past: RecordedEvents, measured: Collection[tuple[str, str]], seen_seconds: float
) -> list[str]:
    notes = []
    quota = found.service.quota
    unseen = [] if has_limits(quota) else list_unseen_windows(seen_seconds)
    if unseen:
        notes.append(f"no number for {', '.join(unseen)}: less time was seen")
    if past.has_ends:
        lived = [use for history in found.live.values() if (use := history.measure(0, "pods")) is not None]
        if lived:
            largest = max(use.largest for use in lived)
            notes.append(f"live Pods: at most {largest} of those created in this time; older ones are not known")
    elif not any(window == STANDING for window, _ in measured):
        notes.append("live Pods were not seen: these requests do not tell when Pods ended")
    if quota is not None and quota.scope is Scope.FLEET:
        notes.append("scope Fleet: other clusters count too, and only these requests were seen")
    if quota is not None and quota.schedules:
        notes.append("schedules: the numbers fit the use at any time, and are for the limits without a schedule")
    return notes


def _list_notes(past: RecordedEvents, limit: int) -> list[str]:
    notes = []
    if past.is_cut:
        notes.append(f"only the newest {limit} decisions were read")
    if past.sample_every > 1:
        notes.append(f"the record has one in {past.sample_every} services; the others were not seen")
    if not past.verdicts.are_known:
        notes.append("a record does not say what was denied: requests that the policy would deny now count as denied")
    return notes


def _build_candidate(
    loaded: LoadedPolicy, services: tuple[SuggestedService, ...], pools: tuple[SuggestedPool, ...]
) -> LoadedPolicy:
    """Return the policy with everything that is suggested, enforced."""
    found = {suggested.service.name: suggested for suggested in services}
    windows = {suggested.pool.name: build_windows(suggested.limits) for suggested in pools}
    policy = replace(
        loaded.policy,
        services=tuple(
            _apply(service, found[service.name]) if service.name in found else service
            for service in loaded.policy.services
        ),
        pools=tuple(replace(pool, windows=windows.get(pool.name, pool.windows)) for pool in loaded.policy.pools),
    )
    return LoadedPolicy(policy, "suggested")


def _apply(service: Service, suggested: SuggestedService) -> Service:
    return replace(
        service,
        quota=build_quota(service.quota, suggested.limits) if suggested.limits else service.quota,
        breaker=service.breaker if suggested.breaker is None else suggested.breaker.breaker,
        modes=replace(service.modes, quota=Mode.ENFORCE, breaker=Mode.ENFORCE),
    )
