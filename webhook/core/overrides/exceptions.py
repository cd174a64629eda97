"""Exceptions: overrides of a service for a part of its Pods, and which policy judges such a Pod.

A service under an exception has the counters and the breaker of the service itself: its Pods are charged as all others,
and only limits, modes and rules differ. An exception holds for what is created: an existing Pod is judged by the
service.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from webhook.core.admission.review import Request
from webhook.core.compiled_policy import CompiledException, CompiledPolicy, compile_services
from webhook.core.kubernetes.controllers import add_cron_job, list_workloads
from webhook.core.overrides.effects import override_service
from webhook.core.overrides.entry import Override, encode_entries
from webhook.core.policy.model import Service
from webhook.core.policy.targets import ReviewedPod, TargetPods


def group_exceptions(entries: Sequence[Override]) -> tuple[tuple[Override, ...], ...]:
    """Return the entries of a service by target; those of workloads come first, as they precede selectors."""
    groups: dict[str, tuple[Override, ...]] = {}
    for entry in sorted(entries, key=lambda entry: isinstance(entry.target, TargetPods)):
        if entry.target is not None:
            groups[entry.target_key] = (*groups.get(entry.target_key, ()), entry)
    return tuple(groups.values())


def compile_exceptions(
    services: Mapping[str, Service], compiled: CompiledPolicy, entries: Mapping[str, Sequence[Override]]
) -> Iterator[CompiledException]:
    """Yield the exceptions among `entries`; the caller may pause between two of them.

    `services`: as the policy says; `compiled`: the policy under the entries for whole services.
    """
    for name, own in entries.items():
        if name not in compiled.parts or name not in services:
            continue
        whole = tuple(entry for entry in own if entry.target is None)
        for group in group_exceptions(own):
            target = group[0].target
            if target is not None:
                service = override_service((*whole, *group), services[name])
                yield _compile_exception(compiled, service, CompiledException(target, compiled.parts[name]), group)


def _compile_exception(
    compiled: CompiledPolicy, service: Service, found: CompiledException, group: Sequence[Override]
) -> CompiledException:
    loaded = compiled.loaded
    alone = replace(loaded, policy=replace(loaded.policy, services=(service,)))
    [part] = compile_services(alone)
    # The breaker is the service's: what trips it, and what breakerGuard counts, must not depend on who asks.
    plan = replace(part.plan, breaker=found.part.plan.breaker)
    if plan.pool is not None and found.part.plan.pool is not None:
        plan = replace(plan, pool=found.part.plan.pool)  # with the guarantees of all members
    if plan.queue is not None:
        plan = replace(plan, queue=replace(plan.queue, waits_in_turn=False))
    # So are the breakers of variants, where it divides its Pods as the service does.
    shares = part.shares and found.part.shares
    before = compiled.overrides.get(service.name, "")
    texts = [text[1:-1] for text in (before, encode_entries(group)) if text]
    return found._replace(part=part._replace(plan=plan, shares=shares), overrides=f"[{','.join(texts)}]")


def choose_exception(policy: CompiledPolicy, request: Request) -> CompiledPolicy:
    """Return the policy as it is for the Pod of a request: with the exceptions that are about it."""
    if not policy.exceptions or (request.operation != "CREATE" and request.workload is None):
        return policy
    if request.namespace not in policy.exceptions:
        return policy
    return policy.apply_exceptions(build_reviewed_pod(request))


def build_reviewed_pod(request: Request) -> ReviewedPod:
    """Return a new Pod, or that of a workload under review, as targets see it."""
    labels = {} if request.pod is None else request.pod.labels
    return ReviewedPod(request.namespace, frozenset(_list_own(request)), labels)


def _list_own(request: Request) -> Iterable[tuple[str, str]]:
    if request.workload is None:
        return () if request.pod is None else list_workloads(request.user, request.pod)
    shown, _, name = request.workload.name.partition("/")
    kind = "CronJob" if shown.startswith("cronjob") else request.workload.kind
    return add_cron_job(kind, name)
