"""History of limits and outcomes from a Prometheus that scrapes Podgate's servers."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping
from math import ceil, isfinite
from statistics import median_high

from msgspec import Struct

from webhook.adapters.node_loads import PrometheusApi, Series
from webhook.core.kubernetes.quantity import Duration
from webhook.core.policy_fields.nodes import PrometheusSource
from webhook.core.quota import canonicalize, is_cpu
from webhook.core.suggestion.observed_use import ObservedUse
from webhook.core.suggestion.seen_time import SeenTime
from webhook.errors import LoadSourceError, UserError

NAME = "Prometheus"
DEFAULT_SINCE = "168h"
_STEP_SECONDS = 3600
_TIMEOUT_SECONDS = 60.0
_US = 1_000_000
_ERROR = 1e-6
"""Rounding of floats, in units of counters."""
_USED = "max by (service, resource, window) (max_over_time(podgate_quota_used{selector}[1h]))"
_OUTCOMES = "sum by (service, result) (increase(podgate_outcomes_total{selector}[1h]))"

Samples = list[tuple[int, float]]
"""Microseconds since the Unix epoch, each the end of an hour, and values."""


class PrometheusHistory(Struct, frozen=True):
    """The largest use of each limit, by service, window and canonical resource, and lines about outcomes."""

    uses: Mapping[str, Mapping[tuple[str, str], ObservedUse]] = {}
    notes: Mapping[str, str] = {}
    time: SeenTime | None = None
    """None: no samples."""


async def read_history(source: PrometheusSource, since: str, service: str) -> PrometheusHistory:
    """Return what a Prometheus has about all services, or one. UserError: it gives no answer."""
    api = PrometheusApi(NAME, source)
    selector = f'{{service="{service}"}}' if service else ""
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            used = await _read(api, _USED.replace("{selector}", selector), since)
            outcomes = await _read(api, _OUTCOMES.replace("{selector}", selector), since)
    except TimeoutError:
        remedy = "give a shorter --since, or one service"
        raise UserError(f"{NAME}: {source.url}: no answer within {_TIMEOUT_SECONDS:g} s", remedy) from None
    except LoadSourceError as error:
        remedy = "see that --prometheus is the URL of a Prometheus server, or give one service"
        raise UserError(str(error), remedy) from None
    finally:
        await api.close()
    moments = [at_us for _, samples in used for at_us, _ in samples]
    return PrometheusHistory(
        _summarize_uses(used),
        _summarize_outcomes(outcomes),
        SeenTime(min(moments) - _STEP_SECONDS * _US, max(moments), is_dated=True) if moments else None,
    )


async def _read(api: PrometheusApi, query: str, since: str) -> list[tuple[Mapping[str, str], Samples]]:
    """Return labels and finite samples of each series, one an hour."""
    now_seconds = time.time()
    parameters = {
        "query": query,
        "start": f"{now_seconds - Duration.parse(since).us / _US:.3f}",
        "end": f"{now_seconds:.3f}",
        "step": str(_STEP_SECONDS),
    }
    return [
        (series.metric, _parse(series))
        async for found in api.ask("query_range", **parameters)
        for series in found
        if isinstance(series, Series)  # one that cannot be decoded is no series of Podgate's
    ]


def _parse(series: Series) -> Samples:
    samples = []
    for at_seconds, text in series.values:
        try:
            value = float(text)
        except ValueError:
            continue
        if isfinite(value):
            samples.append((round(at_seconds * _US), value))
    return samples


def _summarize_uses(
    found: list[tuple[Mapping[str, str], Samples]],
) -> Mapping[str, Mapping[tuple[str, str], ObservedUse]]:
    uses: defaultdict[str, dict[tuple[str, str], ObservedUse]] = defaultdict(dict)
    for labels, samples in found:
        resource, window = labels.get("resource", ""), labels.get("window", "")
        unit = 1000 if is_cpu(resource) else 1
        amounts = [(ceil(value * unit - _ERROR), at_us) for at_us, value in samples if value > 0]
        if not amounts:
            continue
        largest, at_us = max(amounts)
        use = ObservedUse(
            0,
            canonicalize(resource),
            largest,
            at_us,
            usual=median_high(amount for amount, _ in amounts),
            spans=len(amounts),
            contributors=(),
            source=NAME,
        )
        uses[labels.get("service", "")][window, use.resource] = use
    return uses


def _summarize_outcomes(found: list[tuple[Mapping[str, str], Samples]]) -> Mapping[str, str]:
    """Return a line for each service with outcomes: how many failed, and the hour with the largest share of them."""
    totals: defaultdict[str, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for labels, samples in found:
        for at_us, value in samples:
            totals[labels.get("service", "")][at_us][labels.get("result") != "ok"] += value
    notes = {}
    for service, hours in totals.items():
        succeeded, failed = (sum(hour[place] for hour in hours.values()) for place in (0, 1))
        if succeeded + failed:
            share, at_us = max((hour[1] / (sum(hour) or 1), at_us) for at_us, hour in hours.items())
            worst = f"; at most {share:.0%} in the hour before {_format(at_us)}" if failed else ""
            notes[service] = f"{NAME}: about {succeeded + failed:.0f} outcomes, {failed:.0f} failed{worst}"
    return notes


def _format(at_us: int) -> str:
    return SeenTime(0, 0, is_dated=True).format_moment(at_us)
