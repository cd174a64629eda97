"""Rules of the times of `nodes`: loads that stay fresh between two readings, and windows that Prometheus answers."""

from collections.abc import Iterator

from webhook.core.document.yaml.parts import DocumentPart
from webhook.core.document.yaml.problems import Problem
from webhook.core.kubernetes.quantity import Duration
from webhook.core.policy_fields.nodes import Nodes

_POINTS_MAX = 11_000
"""Points of one series in an answer of Prometheus; for more it answers with an error."""
_EVERY_US_MIN = 1_000_000


def loads_stay_fresh(document: DocumentPart) -> Iterator[Problem]:
    """`nodes.staleAfter`, `forgetAfter`: refuse a load that is stale before it is read again, or forgotten too soon."""
    nodes = document.get("nodes")
    if nodes is None:
        return
    stale, forget = nodes.get("staleAfter"), nodes.get("forgetAfter")
    refresh_us = _read_us(nodes.get("refresh"), _DEFAULTS.refresh)
    stale_us = _read_us(stale, _DEFAULTS.stale_after)
    written = stale or nodes.get("refresh")
    if written is not None and stale_us <= refresh_us:
        remedy = "write a staleAfter of refresh and the scrape interval together, or more"
        yield written.report("no load is fresh until the next reading: refresh must be shorter than staleAfter", remedy)
    if forget is not None and _read_us(forget, _DEFAULTS.forget_after) < stale_us:
        yield forget.report("a load is forgotten while it is fresh", "write a longer forgetAfter than staleAfter")


def windows_can_be_queried(document: DocumentPart) -> Iterator[Problem]:
    """`nodes.window`, `decay.every`: refuse those for which a Prometheus answers no query."""
    nodes = document.get("nodes")
    if nodes is None or not _list_prometheuses(document):
        return
    every = nodes.get("decay", "every")
    window_us = _read_us(nodes.get("window"), _DEFAULTS.window)
    every_us = _read_us(every, _DEFAULTS.decay.every)
    if every is not None and every_us < _EVERY_US_MIN:
        yield every.report("rates are over two of these, in which a Prometheus has no two samples", "write 1s or more")
    elif window_us > _POINTS_MAX * every_us:
        part = nodes.get("window") or every
        if part is not None:
            reason = f"more than {_POINTS_MAX} times decay.every, which Prometheus refuses: too many points"
            yield part.report(reason, "write a shorter window, or a longer decay.every")


def loads_outlive_scrapes(document: DocumentPart) -> Iterator[Problem]:
    """`nodes.staleAfter`: warn if a load may be stale before the next scrape is read."""
    nodes = document.get("nodes")
    if nodes is None or not _list_prometheuses(document):
        return
    stale = nodes.get("staleAfter")
    refresh_us = _read_us(nodes.get("refresh"), _DEFAULTS.refresh)
    every_us = _read_us(nodes.get("decay", "every"), _DEFAULTS.decay.every)
    if refresh_us < _read_us(stale, _DEFAULTS.stale_after) < refresh_us + every_us:
        reason = "a load is stale before the next one is read if a scrape takes place once in decay.every"
        part = stale or nodes
        yield part.report(reason, "write a staleAfter of refresh and decay.every together, or more")


def _list_prometheuses(document: DocumentPart) -> list[DocumentPart]:
    return document.select("nodes", "sources", "*", "prometheus")


_DEFAULTS = Nodes(())


def _read_us(part: DocumentPart | None, default: Duration) -> int:
    """Return a duration in microseconds, as written or by default."""
    return (default if part is None else part.read(Duration)).us
