"""Cost of a breaker in a review, from the AdmissionReview's bytes to the answer's: closed, and open.

The interceptor over counters in memory, so that the breaker's own arithmetic is part of it, which Redis does otherwise.
Reviews of a service without a breaker, with a closed one and with an open one come in turns, a few at a time, once with
nobody to tell and once with metrics and logs.
"""

import gc
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import uvloop

from tests.bench.policies import BREAKERS, CLOSED, OPEN, UNBROKEN
from tests.bench.traffic import Workload, encode_validating_review, renew, typical_pod
from webhook.adapters.clocks import SystemClock
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.logs import JsonLines, Logs
from webhook.adapters.memory_store import MemoryStore
from webhook.adapters.metrics import Metrics
from webhook.core.admission.decision import Half
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.document import Purpose, load
from webhook.core.policy.model import LoadedPolicy
from webhook.interceptor import Interceptor
from webhook.observers import Observers
from webhook.ports import Caller

TURNS = 20
REVIEWS, UNTIMED = 20, 5
"""Of one turn; the first few bring the processor's caches back from whoever had the turn before."""
_CALLER = Caller("apiserver", "bench", "issuer", "subject", "CN=kube-apiserver")
_HEARD = Outcomes(succeeded=20, failed=1, latency_us=400_000)
"""What reporters say of one turn's time: no second passes in which nothing is heard."""

Costs = dict[str, list[float]]
"""By service, microseconds of CPU of one review, a figure a round."""


def measure(rounds: int) -> list[str]:
    """Return what there is to print."""
    loaded = load(BREAKERS.encode(), Purpose.LINT).policy
    workloads = (Workload(service) for service in (UNBROKEN, CLOSED, OPEN))
    traffic = {
        workload.service: encode_validating_review(workload, typical_pod(loaded.hash, workload))
        for workload in workloads
    }
    best = f"best of {TURNS} turns of {REVIEWS}"
    lines = [f"evaluation of a review of {len(traffic[OPEN])} bytes, CPU, {best}, {rounds} rounds"]
    with Path(os.devnull).open("w") as nowhere:
        told = {"": Observers(), ", metrics and logs": Observers(Metrics("bench"), Logs(JsonLines(nowhere)))}
        for name, observers in told.items():
            observers.on_policy_loaded(loaded)
            costs = uvloop.run(_costs(loaded, traffic, observers, rounds))
            more = [mine - none for mine, none in zip(costs[CLOSED], costs[UNBROKEN], strict=True)]
            lines += [
                _line(f"a closed breaker{name}: microseconds", more),
                _line(f"a closed breaker{name}: times none", _ratios(costs[CLOSED], costs[UNBROKEN])),
                _line(f"refused in OPEN{name}: times admitted", _ratios(costs[OPEN], costs[CLOSED])),
            ]
    return lines


async def _costs(loaded: LoadedPolicy, traffic: dict[str, str], observers: Observers, rounds: int) -> Costs:
    clock = SystemClock()
    store = MemoryStore(clock)
    namespaces = FixedNamespaces({service: {} for service in traffic})
    policy = FixedPolicy(loaded, clock)
    interceptor = Interceptor(policy, store, namespaces, observers)
    plan = policy.get_current().plans[CLOSED]

    async def ask(service: str) -> float:
        """Take one turn; return its microseconds."""
        bodies = [renew(traffic[service]) for _ in range(UNTIMED + REVIEWS)]
        for body in bodies[:UNTIMED]:
            await interceptor.review(Half.VALIDATE, body, _CALLER)
        started_ns = time.process_time_ns()
        for body in bodies[UNTIMED:]:
            answer = await interceptor.review(Half.VALIDATE, body, _CALLER)
        took_us = (time.process_time_ns() - started_ns) / 1000
        if answer.decision.status.code != (503 if service == OPEN else 200):
            raise SystemExit(f"error: {service}: answered {answer.body!r}")
        await store.record_outcomes(plan, [_HEARD])
        return took_us / REVIEWS

    costs: Costs = {service: [] for service in traffic}
    for _ in range(rounds + 1):  # in the first one caches fill, and the breaker opens
        for service, took_us in (await _round(tuple(traffic), ask)).items():
            costs[service].append(took_us)
    return {service: figures[1:] for service, figures in costs.items()}


async def _round(services: Sequence[str], ask: Callable[[str], Awaitable[float]]) -> dict[str, float]:
    """Return the best of each service's turns: what disturbs one only adds. Who goes first changes."""
    took_us: Costs = {service: [] for service in services}
    gc.collect()
    gc.disable()  # a collection scans thousands of counted Pods, and would be charged to one measurement
    for turn in range(TURNS):
        for service in services if turn % 2 else reversed(services):
            took_us[service].append(await ask(service))
    gc.enable()
    return {service: min(turns) for service, turns in took_us.items()}


def _ratios(mine: Sequence[float], others: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(mine, others, strict=True)]


def _line(name: str, values: Sequence[float]) -> str:
    return f"{name:60} {statistics.median(values):>6.2f}  (from {min(values):.2f} to {max(values):.2f})"
