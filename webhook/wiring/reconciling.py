"""The controller's loops with everything behind their ports, wherever they run: on their own, or within a server."""

from collections.abc import Callable, Iterable

from webhook.controller import Controller, Resets
from webhook.core import overrides
from webhook.core.draft import Compiled
from webhook.ports import Clock, PodLedger, PodWatch
from webhook.wiring.sources import Sources
from webhook.wiring.telemetry import Telemetry


class InForce:
    """The policy in force under the overrides in force, worked out once for each."""

    def __init__(self, sources: Sources) -> None:
        self._policies = sources.policies
        self._overrides = sources.overrides.keeper
        self._key: tuple[str, int] | None = None
        self._compiled: Compiled | None = None

    def current(self) -> Compiled | None:
        loaded = self._policies.current()
        if loaded is None:
            return None
        live = self._overrides.current()
        if self._key != (loaded.hash, live.generation):
            self._key = loaded.hash, live.generation
            self._compiled = Compiled(overrides.overridden(loaded, live.entries))
        return self._compiled


def controller(sources: Sources, watch: PodWatch, ledger: PodLedger, clock: Clock, telemetry: Telemetry) -> Controller:
    """Return a controller, which runs for as long as it leads."""
    reports, asked = telemetry.controller_reports(), _asked(sources, clock)
    return Controller(watch, ledger, clock, InForce(sources).current, sources.namespaces, reports, resets=asked)


def resets(sources: Sources, ledger: PodLedger, clock: Clock) -> Resets:
    """Return what a server does itself that has no cluster, and so no controller beside it."""
    return Resets(ledger, InForce(sources).current, _asked(sources, clock))


def _asked(sources: Sources, clock: Clock) -> Callable[[], Iterable[overrides.Reset]]:
    """Return the resets that live overrides ask for."""
    return lambda: overrides.resets(sources.overrides.keeper.current().entries.values(), clock.now_us())
