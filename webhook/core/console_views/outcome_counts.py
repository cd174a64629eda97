"""Outcomes that a server has counted since its start, by service, from its metrics."""

import re
from collections.abc import Mapping

from msgspec import Struct

_NAME = "podgate_outcomes_total{"
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class OutcomeCount(Struct, frozen=True):
    """Outcomes of one source with one result: `ok`, `error`, or the cause of a failed start."""

    source: str
    result: str
    count: int


def list_outcomes(metrics: str) -> Mapping[str, tuple[OutcomeCount, ...]]:
    """Return the counts by service from Prometheus' text format; lines that cannot be read are left out."""
    found: dict[str, list[OutcomeCount]] = {}
    for line in metrics.splitlines():
        if not line.startswith(_NAME):
            continue
        labels, _, value = line.removeprefix(_NAME).rpartition("} ")
        named = dict(_LABEL.findall(labels))
        try:
            count = int(float(value.split()[0]))
        except (ValueError, IndexError, OverflowError):
            continue
        if count:
            outcome = OutcomeCount(named.get("source", ""), named.get("result", ""), count)
            found.setdefault(named.get("service", ""), []).append(outcome)
    return {service: tuple(sorted(counts, key=lambda one: -one.count)) for service, counts in found.items()}
