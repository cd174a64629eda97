"""Metrics of watched inputs: resources, keys, files, overrides and outcomes; and of the process's own health."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Row, Totals
from webhook.adapters.metrics.families import FAILURE, SUCCESS
from webhook.adapters.metrics.family import Family
from webhook.core.breaker import Transition, TransitionCause
from webhook.core.overload import OverloadCause
from webhook.core.overrides import Override
from webhook.ports import PartialObserver


class WatchHealth:
    """Failures, contact and unread objects by watched resource, or source of load."""

    def __init__(self) -> None:
        self._failures = Totals(families.KUBERNETES_FAILURES)
        self.totals = (self._failures,)
        self._contact_seconds: dict[str, float] = {}
        self._unread: dict[str, int] = {}

    def count_failure(self, resource: str, count: int = 1) -> None:
        """Count a list or a watch that failed."""
        self._failures.add(resource, count=count)

    def set_contact(self, resource: str, at_seconds: float) -> None:
        """Set when the API server last sent data for a watch, in seconds since the Unix epoch."""
        # Replaced, never changed in place: a scrape may be reading it.
        self._contact_seconds = {**self._contact_seconds, resource: at_seconds}

    def set_unread(self, resource: str, count: int) -> None:
        """Set how many objects cannot be read."""
        self._unread = {**self._unread, resource: count}  # replaced, as above

    def end(self, resource: str) -> None:
        """End the series of a watch that this process no longer needs."""
        self._contact_seconds = {name: at for name, at in self._contact_seconds.items() if name != resource}
        self._unread = {name: count for name, count in self._unread.items() if name != resource}

    def rows(self) -> Sequence[tuple[Family, list[Row]]]:
        return [
            (families.KUBERNETES_CONTACT, [((name,), at) for name, at in self._contact_seconds.items()]),
            (families.OBJECTS_UNREAD, [((name,), float(count)) for name, count in self._unread.items()]),
        ]


class FileTotals:
    """Totals and times by the name of a file, or of files that belong together."""

    def __init__(self) -> None:
        self._loads = Totals(families.FILE_RELOADS)
        self.totals = (self._loads,)
        self._loaded_seconds: dict[str, float] = {}
        self._good: dict[str, bool] = {}

    def count_load(self, name: str, at_seconds: float, *, is_good: bool) -> None:
        """Count a load, at the start or after a change."""
        self._loads.add(name, FAILURE, count=not is_good)  # from 0 on, so that the first failure is an increase
        self._good[name] = is_good
        if is_good:
            self._loads.add(name, SUCCESS)
            self._loaded_seconds[name] = at_seconds

    def rows(self) -> Sequence[tuple[Family, list[Row]]]:
        return [
            (families.FILE_LOADED, [((name,), at) for name, at in self._loaded_seconds.items()]),
            (families.FILE_GOOD, [((name,), int(is_good)) for name, is_good in self._good.items()]),
        ]


class OutcomeTotals:
    """Totals of outcomes pushed by reporters or observed by the watch on Pods."""

    def __init__(self) -> None:
        self._recorded = Totals(families.OUTCOMES)
        self._dropped = Totals(families.OUTCOMES_DROPPED)
        # From 0 on, so that the first one is an increase.
        self._refused = Totals(families.OUTCOMES_REFUSED, *((word,) for word in families.OUTCOME_REFUSALS))
        self.totals = (self._recorded, self._dropped, self._refused)
        self._services: frozenset[str] | None = None

    def on_outcomes_counted(self, service: str, source: str, result: str, count: int = 1) -> None:
        """Count outcomes recorded by a breaker: `source` is `Pushed` or `PodStart`, `result` is `ok` or `error`."""
        self._recorded.add(self._find_label(service), source, result, count=count)

    def on_outcomes_dropped(self, service: str, reason: str, count: int = 1) -> None:
        """Count outcomes that no breaker recorded."""
        self._dropped.add(self._find_label(service), reason, count=count)

    def on_outcomes_refused(self, reason: str, count: int = 1) -> None:
        """Count rejected outcomes; `reason` is one of `families.OUTCOME_REFUSALS`."""
        self._refused.add(reason, count=count)

    def keep(self, services: frozenset[str]) -> None:
        """Set the policy's services; late outcomes of other services count under ""."""
        self._services = services

    def _find_label(self, service: str) -> str:
        return service if self._services is None or service in self._services else ""


class OverrideGauges:
    """Gauges of the overrides in force. `is_good` is None until a document is loaded or known to be missing."""

    def __init__(self) -> None:
        self.is_good: bool | None = None
        self._live: dict[str, Sequence[Override]] = {}
        self._until_seconds: Mapping[str, float] = {}

    def apply_change(self, service: str, former: Override | None, now: Override | None) -> None:
        live = [entry for entry in self._live.get(service, ()) if entry != former]
        self._live[service] = live = [*live, *([now] if now is not None else ())]
        others = {name: at for name, at in self._until_seconds.items() if name != service}
        last = {service: max(entry.until_us for entry in live) / 1_000_000} if live else {}
        # Replaced, never changed in place: a scrape may be reading it.
        self._until_seconds = {**others, **last}

    def rows(self, is_known: Callable[[str], object]) -> Sequence[tuple[Family, list[Row]]]:
        """Return the gauges; a service that is not in the policy has no series."""
        ends: list[Row] = [((name,), at) for name, at in self._until_seconds.items() if is_known(name)]
        last_good: list[Row] = [] if self.is_good is None else [((), float(self.is_good))]
        return [(families.OVERRIDE_UNTIL, ends), (families.OVERRIDES_LAST_GOOD, last_good)]


class ProcessHealth(PartialObserver):
    """Readiness and leadership, set before a scrape, and the causes of an overload. None: without a series."""

    def __init__(self, overload: Mapping[OverloadCause, str] | None) -> None:
        self._overload = overload
        self._ready: bool | None = None
        self._leads: bool | None = None

    def on_overload_changed(self, former: Mapping[OverloadCause, str], now: Mapping[OverloadCause, str]) -> None:  # noqa: ARG002  the log reports the start
        self._overload = now

    def update(self, *, ready: bool, leads: bool | None) -> None:
        """Set whether the process is ready, and whether it holds the Lease; None if it needs none."""
        self._ready, self._leads = ready, leads

    def rows(self) -> Iterable[tuple[Family, list[Row]]]:
        """Return the gauges with their series."""
        yield families.READY, [] if self._ready is None else [((), float(self._ready))]
        causes = () if self._overload is None else OverloadCause
        yield families.OVERLOAD, [((cause,), float(cause in (self._overload or ()))) for cause in causes]
        yield families.LEADER, [] if self._leads is None else [((), float(self._leads))]


_FORCED = "forced"


def find_reason_label(cause: TransitionCause) -> str:
    """Return the value of the label `reason`: the cause, or one word for both forced states."""
    return _FORCED if cause in {TransitionCause.FORCED_OPEN, TransitionCause.FORCED_CLOSED} else cause.value


class Transitions:
    """Totals by service."""

    def __init__(self) -> None:
        self._changes = Totals(families.BREAKER_TRANSITIONS)
        self._held = Totals(families.BREAKER_HELD)
        self._expired = Totals(families.BREAKER_EXPIRED)
        self.totals = (self._changes, self._held, self._expired)

    def add(self, transition: Transition) -> None:
        if transition.is_change:
            self._changes.add(transition.service, transition.old, transition.new, find_reason_label(transition.cause))
        elif transition.is_held_back:
            self._held.add(transition.service)
        else:
            self._expired.add(transition.service)


class KeyTotals:
    """Totals and times by the source of keys."""

    def __init__(self) -> None:
        self._fetches = Totals(families.KEY_FETCHES)
        self.totals = (self._fetches,)
        self._fetched_seconds: dict[str, float] = {}
        self._counts: Callable[[], Mapping[str, int]] = dict

    def count_fetch(self, source: str, at_seconds: float) -> None:
        """Count a successful fetch."""
        self._fetches.add(source, SUCCESS)
        self._fetches.add(source, FAILURE, count=0)  # from 0 on, so that the first failure is an increase
        self._fetched_seconds[source] = at_seconds

    def count_failed_fetch(self, source: str) -> None:
        """Count a failed fetch."""
        self._fetches.add(source, FAILURE)

    def watch(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Export `counts()`, by source, as the number of keys."""
        self._counts = counts

    def rows(self) -> Sequence[tuple[Family, list[Row]]]:
        return [
            (families.KEYS_FETCHED, [((name,), at) for name, at in self._fetched_seconds.items()]),
            (families.KEYS, [((name,), float(count)) for name, count in self._counts().items()]),
        ]
