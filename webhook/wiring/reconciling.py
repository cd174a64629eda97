"""The controller's loops with everything behind their ports, wherever they run: on their own, or within a server."""

from collections.abc import Iterable

from webhook.controller import Controller
from webhook.core.draft import Compiled
from webhook.core.overrides import overridden, resets
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
        overrides = self._overrides.current()
        if self._key != (loaded.hash, overrides.generation):
            self._key = loaded.hash, overrides.generation
            self._compiled = Compiled(overridden(loaded, overrides.entries))
        return self._compiled


def controller(sources: Sources, watch: PodWatch, ledger: PodLedger, clock: Clock, telemetry: Telemetry) -> Controller:
    """Return a controller, which runs for as long as it leads."""

    def asked() -> Iterable[tuple[str, int, int | None]]:
        return resets(sources.overrides.keeper.current().entries.values(), clock.now_us())

    reports = telemetry.controller_reports()
    return Controller(watch, ledger, clock, InForce(sources).current, sources.namespaces, reports, resets=asked)
