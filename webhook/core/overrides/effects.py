"""Effects of live overrides on a policy. The policy's hash does not change: overrides are not part of it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict, fields, replace

from webhook.core.breaker import Forcing, State
from webhook.core.kubernetes.name_patterns import matches_any
from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.core.overrides.entry import ManualBreakerState, Override, PartialModes, QueueState, encode_entries
from webhook.core.overrides.merging import combine
from webhook.core.policy.model import LoadedPolicy, Match, Modes, Policy, QueuePause, Service
from webhook.core.policy.targets import Target, TargetWorkload
from webhook.core.policy_fields import Mode, Quota, Rule, Window
from webhook.core.quota import QueuePlan, canonicalize
from webhook.core.quota.scaling import build_quantity, convert_to_units

_FORCED = {ManualBreakerState.FORCED_OPEN: State.FORCED_OPEN, ManualBreakerState.FORCED_CLOSED: State.FORCED_CLOSED}


class LiveOverrides(Struct, frozen=True, eq=False):
    """The live entries by service; no two set the same thing. Compared by identity: policies are compiled for each."""

    entries: Mapping[str, tuple[Override, ...]] = {}

    def list_all(self) -> tuple[Override, ...]:
        return tuple(entry for entries in self.entries.values() for entry in entries)


class WindowReset(NamedTuple):
    """Reset of a service's own windows, or of its window of `seconds`: charges before `at_us` are removed."""

    service: str
    at_us: int
    seconds: int | None


def apply_overrides(loaded: LoadedPolicy, entries: Mapping[str, tuple[Override, ...]]) -> LoadedPolicy:
    """Return the policy with live entries for whole services applied; entries may have no effect."""
    policy = loaded.policy
    entries = select_lasting(entries)
    if not any(service.name in entries for service in policy.services):
        return loaded
    services = tuple(
        override_service(own, service) if (own := entries.get(service.name)) else service for service in policy.services
    )
    forcings = {
        entry.breaker_name: forcing
        for service in policy.services
        for entry in entries.get(service.name, ())
        if (forcing := _build_forcing(entry)) is not None
    }
    pauses = {
        service.name: QueuePause(entry.until_us, entry.reason, entry.by or "")
        for service in policy.services
        for entry in entries.get(service.name, ())
        if entry.queue is QueueState.PAUSED
    }
    names = (service.name for service in policy.services if service.name in entries)
    encoded = {name: encode_entries([entry for entry in entries[name] if entry.variant is None]) for name in names}
    changed = replace(policy, services=services)
    return replace(loaded, policy=changed, forcings=forcings, pauses=pauses, overrides=encoded)


def select_lasting(entries: Mapping[str, Sequence[Override]]) -> dict[str, tuple[Override, ...]]:
    """Return the entries that hold for all Pods of a service, also those of variants: all but the exceptions."""
    found = {name: tuple(entry for entry in own if entry.target is None) for name, own in entries.items()}
    return {name: own for name, own in found.items() if own}


def override_service(entries: Sequence[Override], service: Service) -> Service:
    """Return a service with the changes of entries; a later entry wins. What is about a variant changes no service."""
    own = [entry for entry in entries if entry.variant is None]
    return _apply_entry(combine(own), service) if own else service


def list_window_resets(entries: Iterable[Override], now_us: int) -> tuple[WindowReset, ...]:
    """Return the due resets of live entries. They are idempotent by `at_us`."""
    wanted = ((entry.service, entry.quota_reset) for entry in entries if entry.quota_reset is not None)
    return tuple(
        WindowReset(service, reset.at_us, None if reset.window is None else reset.window.us // 1_000_000)
        for service, reset in wanted
        if reset.at_us <= now_us
    )


def list_breaker_resets(entries: Iterable[Override], now_us: int) -> dict[str, int]:
    """Return the due breaker resets by the names of the plans, as `list_window_resets` does for windows."""
    wanted = ((entry.breaker_name, entry.reset_at_us) for entry in entries)
    return {name: at_us for name, at_us in wanted if at_us is not None and at_us <= now_us}


def list_released_uids(live: LiveOverrides) -> frozenset[str]:
    """Return the uids of the waiting Pods that live overrides release."""
    return frozenset(pod.uid for entry in live.list_all() for pod in entry.release_pods)


def list_remarks(
    policy: Policy, entry: Override, candidate: Mapping[str, Service] = MappingProxyType({})
) -> tuple[str, ...]:
    """Return remarks on the parts of an entry without effect. They are no errors: the policy may change.

    `candidate`: services of a canary's, in which an entry of a variant has an effect too.
    """
    service = next((service for service in policy.services if service.name == entry.service), None)
    if service is None:
        return ("no such service in the policy in force",)
    if entry.variant is not None:
        other = candidate.get(entry.service)
        if other is not None and entry.variant in other.breaker_variants:
            return ()
        return tuple(_find_idle_variant(service, entry.variant))
    return (*_find_idle(service, entry), *_find_idle_queue(policy, service, entry))


def _apply_entry(entry: Override, service: Service) -> Service:
    modes = service.modes if entry.modes is None else _apply_modes(entry.modes, service.modes)
    if entry.breaker is ManualBreakerState.FORCED_OPEN and (entry.modes is None or entry.modes.breaker is None):
        modes = replace(modes, breaker=Mode.ENFORCE)  # a breaker that is forced open must deny
    quota = service.quota
    if quota is not None and (entry.quota_factor is not None or entry.grant):
        quota = _apply_to_quota(entry, quota)
    return replace(service, modes=modes, quota=quota, rules=_apply_to_rules(entry, service.rules))


def _build_forcing(entry: Override) -> Forcing | None:
    state = None if entry.breaker is None else _FORCED.get(entry.breaker)
    return None if state is None else Forcing(state, entry.until_us, entry.reason)


def _apply_modes(wanted: PartialModes, own: Modes) -> Modes:
    names = [field.name for field in fields(own)]
    return replace(own, **{name: mode for name in names if (mode := getattr(wanted, name)) is not None})


def _apply_to_rules(entry: Override, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Return the rules in the mode of the entry; a Disabled one stays so: nobody has seen what it finds."""
    mode = None if entry.modes is None else entry.modes.rules
    if mode is None:
        return rules
    return tuple(rule if rule.mode is Mode.DISABLED else replace(rule, mode=mode) for rule in rules)


def _apply_to_quota(entry: Override, quota: Quota) -> Quota:
    factor = Fraction(1) if entry.quota_factor is None else entry.quota_factor.value
    granted = {grant.window: grant.hard for grant in entry.grant}
    windows = tuple(_apply_to_window(window, factor, granted.get(window.window, {})) for window in quota.windows)
    return replace(quota, windows=windows)


def _apply_to_window(window: Window, factor: Fraction, granted: Mapping[str, Quantity]) -> Window:
    """Return the window scaled, with the grant added. Resources without a limit stay unlimited."""
    more = {canonicalize(resource): convert_to_units(resource, quantity) for resource, quantity in granted.items()}
    hard = {
        resource: build_quantity(
            resource, convert_to_units(resource, quantity) * factor + more.get(canonicalize(resource), 0)
        )
        for resource, quantity in window.hard.items()
    }
    return Window(window.window, hard)


def _find_idle(service: Service, entry: Override) -> Iterator[str]:
    yield from _find_idle_target(service.match, entry.target)
    windows = () if service.quota is None else service.quota.windows
    by_length = {window.window: window for window in windows}
    if entry.quota_factor is not None and not windows:
        yield "quotaFactor: the service has no windows of its own"
    for name, mode in ({} if entry.modes is None else asdict(entry.modes)).items():
        if mode is not None and not getattr(service, name) and not (name == "quota" and service.pool):
            yield f"modes.{name}: the service has no {name}"
    for grant in entry.grant:
        window = by_length.get(grant.window)
        if window is None:
            yield f"grant: {_describe_no_window(grant.window, by_length)}"
            continue
        limited = {canonicalize(resource) for resource in window.hard}
        for resource in grant.hard:
            if canonicalize(resource) not in limited:
                yield f"grant: the window {window.window} does not limit {resource}"
    reset = entry.quota_reset
    if reset is not None and not windows:
        yield "quotaReset: the service has no windows of its own"
    elif reset is not None and reset.window is not None and reset.window not in by_length:
        yield f"quotaReset: {_describe_no_window(reset.window, by_length)}"
    yield from _find_idle_breaker(service, entry)


def _find_idle_target(match: Match, target: Target | None) -> Iterator[str]:
    if target is None:
        return
    if match.namespaces and not matches_any(match.namespaces, target.namespace):
        yield f"the service has no Pods in namespace {target.namespace}"
    kind = target.kind if isinstance(target, TargetWorkload) else None
    if kind is not None and match.owner_kinds and not {"Job" if kind == "CronJob" else kind} & {*match.owner_kinds}:
        yield f"workload.kind: the service has no Pods of a {kind}"


def _find_idle_breaker(service: Service, entry: Override) -> Iterator[str]:
    reason = ""
    if service.breaker is None:
        reason = "the service has no breaker"
    elif _apply_entry(entry, service).modes.breaker is Mode.DISABLED:
        reason = "modes.breaker is Disabled"
    for name, wanted in (("breaker", entry.breaker), ("resetAt", entry.reset_at)):
        if reason and wanted is not None:
            yield f"{name}: {reason}"


def _find_idle_variant(service: Service, variant: str) -> Iterator[str]:
    placement = service.placement
    if placement is None or placement.shares is None:
        yield f"variant: {variant}: the service has no placement.shares"
    elif service.modes.placement is not Mode.ENFORCE:
        yield f"variant: {variant}: modes.placement is {service.modes.placement}, and shares act only in Enforce"
    elif variant not in service.breaker_variants:
        with_breaker = ", ".join(service.breaker_variants)
        known = "the last of the list, which nothing replaces" if variant in service.variants else "no such variant"
        yield f"variant: {variant}: {known}; variants with a breaker: {with_breaker}"


def _find_idle_queue(policy: Policy, service: Service, entry: Override) -> Iterator[str]:
    pool = next((pool for pool in policy.pools if pool.name == service.pool), None)
    if QueuePlan.from_service(_apply_entry(entry, service), pool, rank=0) is None:
        for name, wanted in (("queue", entry.queue), ("releasePods", entry.release_pods)):
            if wanted:
                yield f"{name}: Pods of the service do not wait"


def _describe_no_window(wanted: Duration, windows: Mapping[Duration, Window]) -> str:
    has = ", ".join(str(length) for length in windows) or "no windows of its own"
    return f"the service has no window {wanted}, it has {has}"
